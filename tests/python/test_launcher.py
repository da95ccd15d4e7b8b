"""The embedded launcher: exit codes, death, signals, output, ports, and nothing left running."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tilewire import launcher
from tilewire.errors import InvalidArgument
from tilewire.launcher import Launch, _reserved_port, launch, make_layout, rank_command
from tilewire.rank_processes import RankProcesses

PACKAGE_ROOT = str(Path(launcher.__file__).resolve().parents[1])
# What every rank begins with. It leaves its number, so that a test can look for it afterwards, and can wait until the
# launcher has noted that another rank has failed.
RANK = """
import os, sys, time, signal
rank = int(os.environ['TILEWIRE_RANK'])
def mark(name):
    open(f'{FOLDER}/{name}', 'w').close()
def after(other):
    while not os.path.exists(f'{FOLDER}/noted.{other}'):
        time.sleep(0.01)
mark(f'pid.{os.getpid()}')
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    note_failures = RankProcesses._note_failures

    def note(ranks: RankProcesses) -> None:
        note_failures(ranks)
        for failure in ranks._failures:
            (tmp_path / f"noted.{failure.rank}").touch()

    monkeypatch.setattr(RankProcesses, "_note_failures", note)

    def write(body: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(f"FOLDER = {str(tmp_path)!r}\n{RANK}{body}")
        return str(path)

    return write


def run(path: str, ranks: int = 3, grace_s: float = 0.5) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = launch(Launch(rank_command(path, []), [ranks], grace_s=grace_s), out, err)
    return code, out.getvalue(), err.getvalue()


def left_running(folder: Path) -> list[int]:
    numbers = [int(path.suffix[1:]) for path in folder.glob("pid.*")]
    assert numbers
    return [number for number in numbers if is_running(number)]


def is_running(number: int) -> bool:
    try:
        status = Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def until(condition: Callable[[], bool], limit_s: float = 40) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_all_ranks_see_their_place_and_share_one_secret(script: Callable[[str], str]) -> None:
    names = ["RANK", "WORLD_SIZE", "LAYOUT", "RENDEZVOUS", "SECRET"]
    path = script(f"import json; print(json.dumps([os.environ['TILEWIRE_' + name] for name in {names}]))")
    out = io.StringIO()
    assert launch(Launch(rank_command(path, []), [2, 1], prefix=False), out, io.StringIO()) == 0
    seen = sorted(json.loads(line) for line in out.getvalue().splitlines())
    assert [row[:3] for row in seen] == [["0", "3", "2,1"], ["1", "3", "2,1"], ["2", "3", "2,1"]]
    assert len({tuple(row[3:]) for row in seen}) == 1
    assert seen[0][3].startswith("127.0.0.1:") and len(seen[0][4]) == 64


def test_every_launch_makes_a_new_secret(script: Callable[[str], str]) -> None:
    path = script("print(os.environ['TILEWIRE_SECRET'])")
    assert run(path, 1)[1] != run(path, 1)[1]


def test_output_lines_carry_their_rank_and_stay_whole(script: Callable[[str], str]) -> None:
    body = (
        "for i in range(200): print('a' * 50, i)\nprint('to stderr', file=sys.stderr)\nsys.stdout.write('no newline')"
    )
    code, out, err = run(script(body))
    assert code == 0
    lines = out.splitlines()
    for rank in range(3):
        expected = [f"[{rank}] {'a' * 50} {i}" for i in range(200)] + [f"[{rank}] no newline"]
        assert [line for line in lines if line.startswith(f"[{rank}]")] == expected
    assert sorted(err.splitlines()) == [f"[{rank}] to stderr" for rank in range(3)]


def test_output_comes_while_ranks_run_not_at_their_end(script: Callable[[str], str], tmp_path: Path) -> None:
    body = f"print('early')\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.02)"
    process = start_cli(script(body))
    assert process.stdout is not None and process.stdout.readline().endswith("] early\n")
    (tmp_path / "go").touch()
    assert process.wait(40) == 0


def test_endless_line_does_not_pile_up(script: Callable[[str], str]) -> None:
    code, out, _ = run(script("sys.stdout.write('x' * 300_000)"), 1)
    assert code == 0 and out.count("x") == 300_000 and out.count("[0] ") >= 3


def test_bytes_that_are_no_text_do_not_end_the_launcher(script: Callable[[str], str]) -> None:
    code, out, _ = run(script(r"sys.stdout.buffer.write(b'\xff\xfe ok\n')"), 1)
    assert code == 0 and out.endswith(" ok\n")


def test_exit_code_of_the_failing_rank_is_given(script: Callable[[str], str], tmp_path: Path) -> None:
    code, _, err = run(script("sys.exit(7) if rank == 1 else time.sleep(60)"))
    assert code == 7 and "rank 1 failed (exit code 7)" in err
    assert left_running(tmp_path) == []


def test_first_failure_counts_not_the_lowest_rank(script: Callable[[str], str]) -> None:
    assert run(script("rank == 2 or after(2 if rank == 1 else 1)\nsys.exit(10 + rank)"), grace_s=30)[0] == 12


def test_last_words_of_the_failing_rank_are_shown_again_when_others_covered_them(script: Callable[[str], str]) -> None:
    body = """
if rank == 1:
    raise RuntimeError('the cause')
after(1)
for line in range(50):
    print('noise', line, file=sys.stderr)
"""
    code, _, err = run(script(body), 3, grace_s=30)
    assert code == 1
    last = err.splitlines()[-6:]
    assert last[0] == "tilewire run: the last lines of rank 1:"
    assert last[1] == "[1] Traceback (most recent call last):" and last[4] == "[1] RuntimeError: the cause"
    assert last[-1] == "tilewire run: rank 1 failed (exit code 1): RuntimeError: the cause"


def test_last_words_that_are_still_in_sight_are_not_repeated(script: Callable[[str], str]) -> None:
    code, _, err = run(script("raise RuntimeError('the cause')"), 1)
    assert code == 1 and "last lines" not in err


def test_rank_that_only_tells_of_another_is_not_the_cause(script: Callable[[str], str]) -> None:
    body = """
if rank == 0:
    sys.stderr.write('tilewire.errors.Aborted: rank 1: left by an exception [rank 0]\\n')
    sys.exit(1)
after(0)
if rank == 1:
    print('my own mistake')
    sys.exit(9)
"""
    code, _, err = run(script(body), 3, grace_s=30)
    told, cause = err.splitlines()[-2:]
    assert code == 9 and cause == "tilewire run: rank 1 failed first (exit code 9): my own mistake"
    assert told.startswith("tilewire run: rank 0 heard of it (exit code 1): tilewire.errors.Aborted: rank 1: left by")


def test_ranks_that_disagree_are_not_the_cause_one_by_one(script: Callable[[str], str]) -> None:
    """All of them tell of the same disagreement, after one that heard of it first."""
    body = """
if rank == 0:
    sys.stderr.write('tilewire.errors.Aborted: rank 1: a mismatch [rank 0]\\n')
    sys.exit(1)
after(0)
print(f'tilewire.errors.Mismatch: rank 1: bf16 | rank 2: fp16 [rank {rank}]', file=sys.stderr)
sys.exit(1)
"""
    code, _, err = run(script(body), 3, grace_s=30)
    last = "tilewire run: ranks 1, 2 failed first (exit code 1): tilewire.errors.Mismatch: rank 1: bf16 | rank 2: fp16"
    assert code == 1 and err.splitlines()[-1] == last, err


def test_rank_that_was_ended_is_not_the_cause(script: Callable[[str], str]) -> None:
    body = "if rank == 0: print('tilewire.errors.PeerLost: rank 7 is lost'); sys.exit(3)\ntime.sleep(60)"
    code, _, err = run(script(body), 2, grace_s=0.2)
    last = err.splitlines()[-2:]
    assert code == 3 and last[0] == "tilewire run: did not end by themselves: rank 1 killed by SIGTERM", err
    assert last[1].startswith("tilewire run: rank 0 failed (exit code 3)")


def test_signal_without_a_name_is_told_by_its_number(script: Callable[[str], str]) -> None:
    code, _, err = run(script("os.kill(os.getpid(), 40)\ntime.sleep(9)"), 1)
    assert code == 168 and "rank 0 failed (killed by signal 40)" in err


@pytest.fixture
def open_files() -> Iterator[Callable[[int, int], None]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda soft, hard: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_soft_limit_of_open_files_is_raised_as_far_as_needed(
    script: Callable[[str], str], open_files: Callable[[int, int], None]
) -> None:
    path = script("print('up')")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    open_files(len(os.listdir("/proc/self/fd")) + 5, hard)
    assert run(path, 4)[1].count("up") == 4


@pytest.mark.parametrize(
    ("limit", "pieces"),
    [
        ("ulimit -n 20", ["4 ranks need ", "ulimit -n is 20", "raise it: ulimit -n "]),
        # As a user of whom nothing else runs; root has no such limit.
        ("ulimit -u 2", ["cannot be started", "ulimit -u is 2", "raise it: ulimit -u ", "each rank needs about 9"]),
    ],
)
def test_limit_of_the_system_is_named_with_what_is_needed(limit: str, pieces: list[str]) -> None:
    if "-u" in limit and (os.getuid() != 0 or not shutil.which("setpriv")):
        pytest.skip("only root can become a user without processes")
    as_user = "setpriv --reuid=12345 --regid=12345 --clear-groups " if "-u" in limit else ""
    code = "import sys; from tilewire.cli import main; main()"
    command = f'{as_user}bash -c \'{limit}; exec "{sys.executable}" -c "{code}" run -n 4 true\''
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    for piece in pieces:
        assert piece in done.stderr


def test_killed_rank_ends_the_others_soon(script: Callable[[str], str], tmp_path: Path) -> None:
    begin = time.monotonic()
    code, _, err = run(script("if rank == 2: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)"))
    assert code == 128 + 9 and "rank 2 failed (killed by SIGKILL)" in err
    assert time.monotonic() - begin < 40
    assert left_running(tmp_path) == []


def test_survivors_have_time_to_report_before_they_are_ended(script: Callable[[str], str]) -> None:
    body = "if rank == 0: sys.exit(3)\nafter(0)\ntime.sleep(0.4)\nprint('rank 0 is gone')\nsys.exit(1)"
    code, out, _ = run(script(body), 2, grace_s=30)
    assert code == 3 and out == "[1] rank 0 is gone\n"


def test_rank_that_ignores_sigterm_is_killed(script: Callable[[str], str], tmp_path: Path) -> None:
    body = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
mark(f'ready.{rank}')
if rank == 0:
    while not all(os.path.exists(f'{FOLDER}/ready.{other}') for other in range(3)): time.sleep(0.01)
    sys.exit(4)
time.sleep(60)
"""
    begin = time.monotonic()
    assert run(script(body))[0] == 4
    assert time.monotonic() - begin < 40
    assert left_running(tmp_path) == []


def test_what_a_rank_started_does_not_outlive_it(script: Callable[[str], str], tmp_path: Path) -> None:
    body = """
child = os.fork()
if child == 0:
    time.sleep(60)
mark(f'pid.{child}')
"""
    begin = time.monotonic()
    assert run(script(body), 2)[0] == 0
    assert time.monotonic() - begin < 40
    assert len(list(tmp_path.glob("pid.*"))) == 4
    until(lambda: left_running(tmp_path) == [])


def test_rank_that_ends_well_does_not_end_the_others(script: Callable[[str], str]) -> None:
    code, out, _ = run(script("if rank: time.sleep(0.5); print('done')"), 2)
    assert code == 0 and out == "[1] done\n"


def start_cli(path: str, *options: str) -> subprocess.Popen[str]:
    code = f"import sys; sys.path.insert(0, {PACKAGE_ROOT!r}); from tilewire.cli import main; main()"
    command = [sys.executable, "-c", code, "run", *(options or ("-n", "3")), path]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_ranks(folder: Path, count: int = 3) -> None:
    until(lambda: len(list(folder.glob("pid.*"))) == count)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ending_signal_ends_all_and_is_the_exit_code(
    script: Callable[[str], str], tmp_path: Path, number: signal.Signals
) -> None:
    process = start_cli(script("print('up')\ntime.sleep(60)"))
    wait_for_ranks(tmp_path)
    process.send_signal(number)
    assert process.wait(40) == 128 + number
    assert left_running(tmp_path) == []


def test_ranks_see_ctrl_c_and_may_clean_up(script: Callable[[str], str], tmp_path: Path) -> None:
    body = "try:\n    print('up'); time.sleep(60)\nexcept KeyboardInterrupt:\n    print('cleaned up')"
    process = start_cli(script(body))
    lines = [process.stdout.readline() for _ in range(3)] if process.stdout else []
    assert all(line.endswith("up\n") for line in lines)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=40)
    assert process.returncode == 130 and out.count("cleaned up") == 3
    assert "Traceback" not in err


def test_ctrl_c_is_one_line_and_no_traceback(script: Callable[[str], str]) -> None:
    process = start_cli(
        script("if rank == 2: signal.signal(signal.SIGINT, lambda *_: sys.exit(0))\nprint('up'); time.sleep(60)")
    )
    assert process.stdout is not None and all(process.stdout.readline() for _ in range(3))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=40)
    assert process.returncode == 130
    assert err == "tilewire run: ended by SIGINT: ranks 0, 1 killed by SIGINT, rank 2 exit code 0\n"


def test_error_while_cleaning_up_after_ctrl_c_is_shown(script: Callable[[str], str]) -> None:
    body = "try:\n    print('up'); time.sleep(60)\nexcept KeyboardInterrupt:\n    raise RuntimeError('cannot save')"
    process = start_cli(script(body))
    assert process.stdout is not None and all(process.stdout.readline() for _ in range(3))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=40)
    assert process.returncode == 130 and err.count("RuntimeError: cannot save") == 1
    assert err.splitlines()[-1] == "tilewire run: ended by SIGINT: ranks 0-2 exit code 1"


def test_second_ctrl_c_kills_at_once(script: Callable[[str], str], tmp_path: Path) -> None:
    body = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, lambda *_: mark(f'heard.{rank}'))
print('up')
end = time.monotonic() + 100
while time.monotonic() < end: time.sleep(1)
"""
    process = start_cli(script(body), "-n", "3", "--grace", "100")
    assert process.stdout is not None and all(process.stdout.readline() for _ in range(3))
    process.send_signal(signal.SIGINT)
    until(lambda: len(list(tmp_path.glob("heard.*"))) == 3)  # two at once may come as one
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(40) == 130
    assert left_running(tmp_path) == []


def test_other_signals_reach_the_ranks(script: Callable[[str], str]) -> None:
    body = "signal.signal(signal.SIGUSR1, lambda *_: (print('got it'), os._exit(0)))\nprint('up')\ntime.sleep(60)"
    process = start_cli(script(body))
    assert process.stdout is not None and all(process.stdout.readline() for _ in range(3))
    process.send_signal(signal.SIGUSR1)
    out, _ = process.communicate(timeout=40)
    assert process.returncode == 0 and out.count("got it") == 3


def test_killed_launcher_takes_its_ranks_along(script: Callable[[str], str], tmp_path: Path) -> None:
    process = start_cli(script("time.sleep(60)"))
    wait_for_ranks(tmp_path)
    process.kill()
    process.wait(40)
    until(lambda: left_running(tmp_path) == [])


def test_signal_handlers_are_restored(script: Callable[[str], str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    run(script("pass"), 1)
    assert signal.getsignal(signal.SIGINT) is before


def test_no_file_descriptor_is_left_open(script: Callable[[str], str]) -> None:
    path = script("sys.exit(rank)")
    run(path)
    before = len(os.listdir("/proc/self/fd"))
    run(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_reserved_port_goes_to_rank_0_and_to_nobody_who_asks_for_any_port() -> None:
    with _reserved_port() as port:
        others = []
        for _ in range(2000):
            other = socket.socket()
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 0))
            others.append(other)
        assert port not in {other.getsockname()[1] for other in others}
        for other in others:
            other.close()
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
            with socket.create_connection(("127.0.0.1", port), 5) as client:
                server, _ = listener.accept()
                client.sendall(b"hello")
                assert server.recv(5) == b"hello"
                server.close()


@pytest.mark.parametrize(
    ("ranks", "nodes", "expected"),
    [
        (4, "2", [2, 2]),
        (5, "2", [3, 2]),
        (3, "2", [2, 1]),
        (3, "3", [1, 1, 1]),
        (None, None, [1]),
        (3, None, [3]),
        (None, "2", [1, 1]),
        (None, "3,1", [3, 1]),
        (None, "3+1", [3, 1]),
        (4, "1,3", [1, 3]),
    ],
)
def test_layouts(ranks: int | None, nodes: str | None, expected: list[int]) -> None:
    assert make_layout(ranks, nodes) == expected


@pytest.mark.parametrize(
    ("ranks", "nodes", "message"),
    [
        (1, "2", "1 rank on 2 nodes"),
        (0, None, "0 ranks"),
        (4, "3,2", "--nodes 3,2 are 5 ranks, --ranks says 4"),
        (None, "3,", "--nodes is '3,', must be how many nodes, as in 2, or the ranks of each, as in 3,1"),
        (None, "", "--nodes is ''"),
        (None, "2,0", "--nodes is '2,0'"),
        (None, "0", "--nodes is '0'"),
        (None, "-1", "--nodes is '-1'"),
        (None, "²", "--nodes is '²'"),
        (None, "9" * 5000, "--nodes is '999"),
        (None, "2000000", "2000000 ranks on --nodes 2000000: there may be at most 1048576"),
        (2_000_000, None, "2000000 ranks: there may be at most"),
        (None, "1048576,1", "1048577 ranks on --nodes 1048576,1: there may be at most"),
    ],
)
def test_bad_layouts_are_named(ranks: int | None, nodes: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_layout(ranks, nodes)


def test_a_layout_beside_the_one_of_the_launch_is_refused(
    script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILEWIRE_RANK", raising=False)
    monkeypatch.setenv("TILEWIRE_LAYOUT", "1,1")
    with pytest.raises(InvalidArgument, match=r"TILEWIRE_LAYOUT = 1,1, and 2 of this launch.*--nodes"):
        launch(Launch(rank_command(script("pass"), []), [2]))
    assert launch(Launch(rank_command(script("pass"), []), [1, 1])) == 0


def test_missing_script_and_program_are_named() -> None:
    with pytest.raises(ValueError, match=r"no script /no/such\.py"):
        rank_command("/no/such.py", [])
    with pytest.raises(ValueError, match="no program no-such-program"):
        rank_command("no-such-program", [])


def test_other_programs_and_modules_run_too() -> None:
    out = io.StringIO()
    assert launch(Launch(rank_command("echo", ["hi"]), [2]), out, io.StringIO()) == 0
    assert sorted(out.getvalue().splitlines()) == ["[0] hi", "[1] hi"]
    assert rank_command("json.tool", ["x"], module=True) == [sys.executable, "-m", "json.tool", "x"]


def test_launch_needs_no_thread_but_the_main_one(script: Callable[[str], str]) -> None:
    before = threading.active_count()
    run(script("pass"), 2)
    assert threading.active_count() == before
