"""How an error of the core becomes an exception, whatever happens meanwhile."""

from __future__ import annotations

import subprocess
import sys

# A Ctrl-C that comes while the core's error is being turned into an exception.
INTERRUPTED = """
import signal, tilewire as tw, tilewire.errors as errors

make_error = errors.make_error

def interrupted(*parts):
    signal.raise_signal(signal.SIGINT)
    return make_error(*parts)

errors.make_error = interrupted
try:
    tw.plan_all_gather_matmul(1, -1, 1)
except BaseException as error:
    print("raised", type(error).__name__)
errors.make_error = make_error
try:
    tw.plan_all_gather_matmul(1, -1, 1)
except tw.InvalidArgument as error:
    print("then", error.kind)
"""


def test_ctrl_c_while_an_error_is_raised_is_a_keyboard_interrupt() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["raised KeyboardInterrupt", "then invalid argument"]
