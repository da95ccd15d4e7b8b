"""Children made by fork while their parent is in a call: they are told so at once, whatever its threads held."""

from __future__ import annotations

import subprocess
import sys

# Everything that a rank does between init() and close(); prints the modules that were loaded on the way.
_CALLS = """
import os, sys
import numpy as np
import tilewire as tw

comm = tw.init()
before = set(sys.modules)
a = comm.empty((4, 4), "fp32")
a[:] = 1
with comm.trace() as timeline:
    tw.all_gather_matmul(np.ones((4, 4), np.float32), a, bias=np.ones(4, np.float32))
    tw.AllGatherMatmul([4], 4, 4, dtype="fp32")(a, a)
timeline.events
try:
    tw.all_gather_matmul([1.0], a)
except tw.InvalidArgument:
    pass
tw.plan_all_gather_matmul(4, 4, 4)
comm.barrier()
comm.all_gather_bytes(b"")
comm.check()
print(sorted(set(sys.modules) - before))
comm.close()
"""

# One thread is held in the middle of a call while another one forks.
_FORK_IN_CALL = """
import os, threading, time
import numpy as np
import tilewire as tw
from tilewire.operands import Operands

is_inside, may_go_on = threading.Event(), threading.Event()
make_results = Operands.make_results

def make_slowly(self, rows):
    is_inside.set()
    assert may_go_on.wait(90)
    return make_results(self, rows)

Operands.make_results = make_slowly
a = np.ones((4, 4), np.float32)
comm = tw.init(deadline_s=40)
call = threading.Thread(target=lambda: tw.all_gather_matmul(a, a, comm=comm))
call.start()
assert is_inside.wait(40)
child = os.fork()
if child == 0:
    for work in (
        lambda: tw.all_gather_matmul(a, a, comm=comm),
        lambda: tw.all_gather_matmul([1.0], a, comm=comm),
        lambda: comm.empty(3),
        lambda: comm.trace().start(),
        lambda: comm.barrier(),
        lambda: comm.check(),
    ):
        begin = time.monotonic()
        try:
            work()
        except tw.Error as error:
            soon = "soon" if time.monotonic() - begin < 10 else "late"
            print(type(error).__name__, soon, "forked from" in str(error), flush=True)
    os._exit(0)
status = os.waitpid(child, 0)[1]
may_go_on.set()
call.join()
comm.close()
print("child", status)
"""


def run(program: str) -> list[str]:
    """The lines that a rank of its own prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_init_loads_all_that_calls_need() -> None:
    assert run(_CALLS) == ["[]"]


def test_child_forked_during_a_call_is_told_at_once_whose_communicator_it_is() -> None:
    assert run(_FORK_IN_CALL) == ["Closed soon True"] * 6 + ["child 0"]
