"""`tilewire run --virtual` with a control program of MPS, and a wire, that are scripts of these tests."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tilewire import _core, launcher, virtual_cluster
from tilewire.cli import app
from tilewire.errors import InvalidArgument, Unavailable
from tilewire.gpu.mps import connections
from tilewire.launcher import Launch, launch, rank_command
from tilewire.virtual_cluster import virtual_layout

PACKAGE_ROOT = str(Path(launcher.__file__).resolve().parents[1])
# Starts as the real one does: its server stays behind, with a file that says so, until it is told to quit.
CONTROL = """#!/bin/sh
echo "control $1 $CUDA_MPS_PIPE_DIRECTORY" >>{notes}
if [ "$1" = -d ]; then
  {on_start}
  touch "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
else
  read word rest; echo "$word" >>{notes}
  rm -f "$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
fi
"""
WIRE = """#!{python}
import json, os, signal, sys
signal.signal(signal.SIGINT, lambda *_: note("wire interrupted"))
def note(text):
    with open({notes!r}, "a") as file: print(text, file=file, flush=True)
note("wire " + json.dumps({{k: v for k, v in os.environ.items() if k.startswith(("TILEWIRE", "CUDA"))}}))
{on_start}
open(os.environ["TILEWIRE_WIRE"], "w").close()
print("ready 132 SMs", flush=True)
sys.stdin.read()
note("wire ended")
"""


class Machine:
    """What happened on it, line by line."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.notes = folder, folder / "notes"
        self.notes.touch()
        (folder / "bin").mkdir()
        self.wire = folder / "bin" / "wire"
        self.set_control()
        self.set_wire()
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setattr(_core, "has_gpu_ranks", lambda: True, raising=False)
        monkeypatch.setattr(virtual_cluster, "wire_program", lambda: self.wire)

    def set_control(self, on_start: str = ":") -> None:
        self._write(
            self.folder / "bin" / "nvidia-cuda-mps-control", CONTROL.format(notes=self.notes, on_start=on_start)
        )

    def set_wire(self, on_start: str = "") -> None:
        self._write(self.wire, WIRE.format(python=sys.executable, notes=str(self.notes), on_start=on_start))

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def lines(self) -> list[str]:
        return self.notes.read_text().splitlines()

    def has_ended(self) -> bool:
        """Daemon and wire, in the right order, and their folders."""
        lines = self.lines()
        folders = [Path(line.split()[-1]) for line in lines if line.startswith("control")]
        sockets = [Path(json.loads(line[5:])["TILEWIRE_WIRE"]) for line in lines if line.startswith("wire {")]
        assert folders and not any(path.exists() for path in folders + [path.parent for path in sockets])
        return lines.count("quit") == 1 and (not sockets or lines.index("wire ended") < lines.index("quit"))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.delenv("TILEWIRE_EMULATED_BANDWIDTH_GBPS", raising=False)
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    def write(body: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(f"import json, os, signal, sys, time\n{body}")
        return str(path)

    return write


def run(path: str, layout: list[int]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = launch(Launch(rank_command(path, []), layout, grace_s=0.3, prefix=False, virtual=True), out, err)
    return code, out.getvalue(), err.getvalue()


SHOW = "print(json.dumps({k: v for k, v in os.environ.items() if k.startswith(('TILEWIRE', 'CUDA'))}))"


def test_each_rank_gets_its_share_and_what_all_use(machine: Machine, script: Callable[[str], str]) -> None:
    os.environ[virtual_cluster.PERCENTAGE] = "25"
    try:
        code, out, _ = run(script(SHOW), [2, 2])
    finally:
        del os.environ[virtual_cluster.PERCENTAGE]
    assert code == 0
    ranks = [json.loads(line) for line in out.splitlines()]
    assert sorted(rank["TILEWIRE_RANK"] for rank in ranks) == ["0", "1", "2", "3"]
    (wire,) = [json.loads(line[5:]) for line in machine.lines() if line.startswith("wire {")]
    for rank in ranks:
        assert rank["TILEWIRE_DEVICE"] == "cuda" and rank["TILEWIRE_LAYOUT"] == "2,2"
        assert rank["TILEWIRE_SMS"] == "32" and rank["TILEWIRE_EMULATED_BANDWIDTH_GBPS"] == "100"
        assert int(rank["CUDA_DEVICE_MAX_CONNECTIONS"]) == 8
        for name in ("TILEWIRE_WIRE", "TILEWIRE_SECRET", "CUDA_MPS_PIPE_DIRECTORY", "TILEWIRE_CUDA_DEVICE"):
            assert rank[name] == wire[name], name
        assert virtual_cluster.PERCENTAGE not in {**rank, **wire}
    assert machine.has_ended()


@pytest.mark.parametrize(
    ("layout", "sms", "rate"), [([4], "32", "100"), ([3, 1], "32", "100"), ([2] * 4, "14", "50"), ([1], "132", "400")]
)
def test_shares_are_even_and_leave_the_wire_its_sms(
    machine: Machine, script: Callable[[str], str], layout: list[int], sms: str, rate: str
) -> None:
    _, out, _ = run(script(SHOW), layout)
    for rank in map(json.loads, out.splitlines()):
        assert (rank["TILEWIRE_SMS"], rank["TILEWIRE_EMULATED_BANDWIDTH_GBPS"]) == (sms, rate)


def test_many_ranks_have_fewer_connections_each() -> None:
    for ranks in range(1, 60):
        each = int(connections(ranks + 1)["CUDA_DEVICE_MAX_CONNECTIONS"])
        assert each >= 1 and (ranks + 1) * each <= 96
        assert each == 8 or ranks > 10


def test_a_rate_that_is_set_stays(
    machine: Machine, script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWIRE_EMULATED_BANDWIDTH_GBPS", "7")
    _, out, _ = run(script(SHOW), [1, 1])
    assert {json.loads(line)["TILEWIRE_EMULATED_BANDWIDTH_GBPS"] for line in out.splitlines()} == {"7"}


def test_ranks_that_fail_or_are_killed_leave_nothing_behind(machine: Machine, script: Callable[[str], str]) -> None:
    code, _, _ = run(script("sys.exit(3) if os.environ['TILEWIRE_RANK'] == '1' else time.sleep(60)"), [2])
    assert code == 3 and machine.has_ended()


def test_a_killed_rank_leaves_nothing_behind(machine: Machine, script: Callable[[str], str]) -> None:
    code, _, _ = run(
        script("os.kill(os.getpid(), 9) if os.environ['TILEWIRE_RANK'] == '0' else time.sleep(60)"), [1, 1]
    )
    assert code == 128 + signal.SIGKILL and machine.has_ended()


def start_launch(machine: Machine, script: Callable[[str], str]) -> subprocess.Popen[bytes]:
    """In a process and a group of its own, with both ranks up."""
    path = script(f"open('{machine.folder}/up.' + os.environ['TILEWIRE_RANK'], 'w').close()\ntime.sleep(60)")
    launching = (
        "import sys\nfrom tilewire import _core, virtual_cluster\n"
        "from pathlib import Path\nfrom tilewire.launcher import Launch, launch, rank_command\n"
        f"_core.has_gpu_ranks = lambda: True\nvirtual_cluster.wire_program = lambda: Path({str(machine.wire)!r})\n"
        f"sys.exit(launch(Launch(rank_command({path!r}, []), [1, 1], grace_s=0.3, virtual=True)))"
    )
    child = subprocess.Popen([sys.executable, "-c", launching], cwd=PACKAGE_ROOT, start_new_session=True)
    until(lambda: len(list(machine.folder.glob("up.*"))) == 2)
    return child


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_ranks_wire_and_daemon(machine: Machine, script: Callable[[str], str], number: int) -> None:
    child = start_launch(machine, script)
    os.killpg(child.pid, number)  # as a terminal does it: to the whole group
    assert child.wait(30) == 128 + number
    assert machine.has_ended()
    assert "wire interrupted" not in machine.lines(), "the wire ends behind the ranks"


def test_a_launcher_that_is_killed_leaves_nothing_behind(machine: Machine, script: Callable[[str], str]) -> None:
    child = start_launch(machine, script)
    child.kill()
    child.wait()
    until(lambda: {"quit", "wire ended"} <= set(machine.lines()))
    until(lambda: not any(Path(line.split()[-1]).exists() for line in machine.lines() if line.startswith("control")))


def test_without_mps_it_refuses(
    machine: Machine, script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewire.gpu.mps._FOLDERS", ())
    monkeypatch.setenv("PATH", str(machine.folder))
    with pytest.raises(Unavailable, match="nvidia-cuda-mps-control is not there"):
        run(script("print('started')"), [2])


def test_a_daemon_that_does_not_start_is_named(machine: Machine, script: Callable[[str], str]) -> None:
    machine.set_control("echo no permission >&2; exit 1")
    with pytest.raises(Unavailable, match="MPS daemon does not start.*no permission"):
        run(script("print('started')"), [2])


def test_without_a_gpu_it_says_what_the_wire_says(machine: Machine, script: Callable[[str], str]) -> None:
    machine.set_wire("print('tilewire_wire: CUDA can see no GPU', file=sys.stderr); sys.exit(1)")
    with pytest.raises(Unavailable, match="wire process does not start.*CUDA can see no GPU"):
        run(script("print('started')"), [2])
    assert machine.lines()[-1] == "quit"


def test_a_package_without_cuda_is_named(
    machine: Machine, script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.wire.unlink()
    with pytest.raises(Unavailable, match=r"no CUDA part.*TILEWIRE_CUDA=ON"):
        run(script(""), [2])
    monkeypatch.setattr(_core, "has_gpu_ranks", lambda: False, raising=False)
    machine.set_wire()
    with pytest.raises(Unavailable, match="no CUDA part"):
        run(script(""), [2])
    assert machine.lines() == []


def test_too_many_ranks_are_refused(machine: Machine, script: Callable[[str], str]) -> None:
    with pytest.raises(InvalidArgument, match="too few SMs for so many ranks.*50 ranks, 132 SMs, 50 of them"):
        run(script(""), [25, 25])
    assert machine.has_ended()


def test_any_program_can_be_a_rank(machine: Machine) -> None:
    out = io.StringIO()
    plan = Launch(rank_command("sh", ["-c", "echo $TILEWIRE_SMS"]), [1, 1], prefix=False, virtual=True)
    assert launch(plan, out, io.StringIO()) == 0
    assert out.getvalue() == "64\n64\n"


def test_layouts() -> None:
    assert virtual_layout("2x2") == [2, 2]
    assert virtual_layout("1x4") == [4]
    assert virtual_layout("3,1") == virtual_layout("3+1") == [3, 1]
    for text in ("", "x", "2x", "x2", "0x2", "2x0", "2x2x2", "2,,1", "two", "-1x2"):
        with pytest.raises(ValueError, match="--virtual is"):
            virtual_layout(text)


def test_the_command_refuses_by_name(machine: Machine, script: Callable[[str], str]) -> None:
    path = script("")
    for words, what in (
        (["--virtual", "2x", path], "must be nodes x ranks"),
        (["--virtual", "2x2", "-n", "4", path], "leave out --ranks and --nodes"),
        (["--virtual", "25x2", path], "too few SMs"),
    ):
        result = CliRunner().invoke(app, ["run", *words])
        assert result.exit_code == 2 and what in result.output, result.output
