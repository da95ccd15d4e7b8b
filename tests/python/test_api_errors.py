"""Bad input and bad luck: every surviving rank gets an error that names what is wrong, soon, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rank_run import FAST_FAILURE, run_ranks
from tilewire.cli import app

HERE = Path(__file__).resolve().parent
# A call that fails must do so within seconds, on slow and busy machines too.
SOON_S = 15


def leftovers() -> set[str]:
    """What this library could leave behind."""
    shm = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
    return shm | {f"/tmp/{name}" for name in os.listdir("/tmp") if "tilewire" in name.lower()}


def processes_of(folder: Path) -> list[str]:
    """The commands, of those that run, that name the folder: each rank of a test's does."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [command for command in found if f"{folder} " in command]


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """No file and no process, whatever a test did to its ranks."""
    before = leftovers()
    yield
    end = time.monotonic() + SOON_S
    while (processes_of(tmp_path) or not leftovers() <= before) and time.monotonic() < end:
        time.sleep(0.05)  # whose launcher was killed end by the kernel's hand; other processes have names too
    assert processes_of(tmp_path) == []
    assert leftovers() <= before


# name of the refused call: (exception, pieces of its text)
REFUSALS: dict[str, tuple[str, list[str]]] = {
    "dtype of a": ("InvalidArgument", ["a is float64", "must be bf16, fp16 or fp32"]),
    "byte order": ("InvalidArgument", ["a is >f4"]),
    "dtypes differ": ("InvalidArgument", ["a is fp32, b is bf16"]),
    "a is on a GPU": ("InvalidArgument", ["a is not in host memory", "device (2, 1)", "pass a.cpu()", 'device="cuda"']),
    "b is on a GPU": ("InvalidArgument", ["b is not in host memory"]),
    "out is on a GPU": ("InvalidArgument", ["out is not in host memory", "written where it lies, or leave out away"]),
    "a has 1 dimension": ("InvalidArgument", ["a has shape [48]", "must have 2"]),
    "b has 3 dimensions": ("InvalidArgument", ["b has shape [1, 48, 40]"]),
    "a is a list": ("InvalidArgument", ["a is a list"]),
    "b is no array": ("InvalidArgument", ["b is a int"]),
    "b as [N, K]": ("InvalidArgument", ["a is [16, 48], b is [40, 48]", "pass b.T"]),
    "K differs": ("InvalidArgument", ["a is [16, 48], b is [52, 40]"]),
    "no weight": ("InvalidArgument", ["0 weights", "1 to 8"]),
    "nine weights": ("InvalidArgument", ["9 weights"]),
    "second weight is wrong": ("InvalidArgument", ["b[1] is [47, 40]"]),
    "bias is too long": ("InvalidArgument", ["bias has 41 values, its weight has 40 columns"]),
    "bias has 2 dimensions": ("InvalidArgument", ["bias has shape [1, 40]"]),
    "bias is a list": ("InvalidArgument", ["bias does not fit b", "bias is a list, b is one weight"]),
    "bias dtype": ("InvalidArgument", ["bias is float64"]),
    "out has the wrong shape": ("InvalidArgument", ["out is [48, 41]", "must be [48, 40]"]),
    "out has the wrong dtype": ("InvalidArgument", ["out is bf16", "must be fp32"]),
    "out is in column order": ("InvalidArgument", ["out has strides that cannot be written"]),
    "out repeats a row": ("InvalidArgument", ["out has strides that cannot be written"]),
    "out is read-only": ("InvalidArgument", ["out is read-only"]),
    "out is no array": ("InvalidArgument", ["out is a str"]),
    "out is a list": ("InvalidArgument", ["out does not fit b"]),
    "out aliases a": ("InvalidArgument", ["out overlaps a"]),
    "out aliases b": ("InvalidArgument", ["out overlaps b"]),
    "out twice": ("InvalidArgument", ["out[0] overlaps out[1]"]),
    "out_dtype": ("InvalidArgument", ["out_dtype = int8"]),
    "rows is too short": ("InvalidArgument", ["rows = [16]", "3 ranks"]),
    "rows is negative": ("InvalidArgument", ["negative count", "-1"]),
    "rows does not match a": ("InvalidArgument", ["= 17, a is [16, 48]"]),
    "rows is a word": ("InvalidArgument", ["rows = 'guess'"]),
    "rows has fractions": ("InvalidArgument", ["rows[0] = 16.5", "must be an integer"]),
    "rows is a number": ("InvalidArgument", ["rows = 3.5", "must be a list"]),
    "rows has a bool": ("InvalidArgument", ["rows[0] = True", "must be an integer"]),
    "rows is beyond 64 bits": ("InvalidArgument", [f"rows[0] = {2**70}", f"at most {2**63 - 1}"]),
    "return_gathered is a word": ("InvalidArgument", ["return_gathered = 'no'", "True or False"]),
    "plan is of another op": ("InvalidArgument", ['op must be "all_gather_matmul"']),
    "plan is no JSON": ("InvalidArgument", ["not a JSON object"]),
    "plan has an unknown field": ("InvalidArgument", ["an unknown field: speed"]),
    "plan is a number": ("InvalidArgument", ["plan is a int"]),
    "plan holds an array": ("InvalidArgument", ["plan cannot be written as JSON", "ndarray"]),
    "handle: n is a bool": ("InvalidArgument", ["n = True", "must be an integer"]),
    "handle: n is beyond 64 bits": ("InvalidArgument", [f"n[1] = {2**70}", f"at most {2**63 - 1}"]),
    "handle: k is a word": ("InvalidArgument", ["k = '48'", "must be an integer"]),
    "handle: rows is a number": ("InvalidArgument", ["rows = 16", "must be a list"]),
    "handle: return_gathered is a word": ("InvalidArgument", ["return_gathered = 'no'"]),
    "handle: dtype is a number": ("InvalidArgument", ["dtype = 3.5", "bf16, fp16 or fp32"]),
    "handle: comm is a number": ("InvalidArgument", ["comm is a int"]),
    "an argument is too large": ("ResourceError", ["no memory for the arguments", "512. MiB"]),
    "result is too large": ("ResourceError", ["[12288, 65536] of bf16", f"{12288 * 65536 * 2} bytes"]),
    "gathered rows are too large": ("ResourceError", ["the gathered rows", f"{3072 * 2**18 * 2} bytes"]),
    "empty: one is a bool": ("InvalidArgument", ["shape[1] = True"]),
    "empty: beyond 64 bits": ("ResourceError", [f"{2**81} bytes"]),
    "comm is a word": ("InvalidArgument", ["comm is a str"]),
    "handle: wrong shape": ("InvalidArgument", ["do not fit the handle", "K = 47", "K = 48"]),
    "empty: dtype": ("InvalidArgument", ["dtype = int8"]),
    "empty: shape": ("InvalidArgument", ["shape = (2, -2)"]),
    "empty: no room": ("ResourceError", ["USER_ARENA_RESERVE_BYTES"]),
    "closed": ("Closed", ["closed"]),
    "no communicator": ("InvalidArgument", ["is closed", "make a new one by tilewire.init()"]),
    "close again": ("", []),
}


def test_calls_that_all_ranks_refuse_leave_the_communicator_usable(tmp_path: Path) -> None:
    for rank, found in enumerate(run_ranks("refusals", tmp_path, "2,1").all_results()):
        assert found.pop("after") is True
        assert sorted(found) == sorted(REFUSALS)
        for name, (error, pieces) in REFUSALS.items():
            got = found[name]
            assert got["error"] == error, f"rank {rank}, {name}: {got}"
            assert all(piece in got["text"] for piece in pieces), f"rank {rank}, {name}: {got}"
            assert got["seconds"] < SOON_S, f"rank {rank}, {name}: {got}"
            # What is no call on a communicator, or none that is open, knows of no rank.
            is_of_no_rank = "comm is" in name or name.startswith(("empty: ", "no communicator", "close again"))
            assert is_of_no_rank or f"rank {rank}" in got["text"], f"{name}: {got}"


DISAGREEMENTS: dict[str, list[str]] = {
    "rows": ["16", "15"],
    "rows lists": ["16, 17, 16", "16"],
    "K": ["K = 48", "K = 49", "they differ in 'K = 48' and 'K = 49'"],
    "dtype": ["they differ in 'bf16' and 'fp16'"],
    "plan": ["they differ in 'chunk_rows = 8' and 'chunk_rows = 16'", "pass the same plan= on all ranks, or on none"],
    "refused by one": ["a is [16, 48], b is [47, 40]"],
    "refused by one, in Python": ["a has shape [48]"],
    "refused by one: device": ["a is not in host memory"],
    "refused by one: comm": ["comm is a str"],
    "refused by one: rows": ["rows = 3.5"],
    "refused by one: n": ["n = True"],
    "refused by one: memory": [f"{48 * 2 * 2**21} bytes"],
    "interrupted": [],
    "refused by one: bytes": ["what is to be gathered is no bytes: mine is a int"],
    "refused by one: many bytes": [f"{23 << 20} bytes, at most {(64 << 20) // 3} bytes a rank"],
    "call and barrier": ["barrier", "make the same calls in the same order"],
}


def test_disagreement_names_both_values_on_all_ranks(tmp_path: Path) -> None:
    results = run_ranks("disagreements", tmp_path, "2,1").all_results()
    for rank, found in enumerate(results):
        assert sorted(found) == sorted(DISAGREEMENTS)
        for name, pieces in DISAGREEMENTS.items():
            got = found[name]
            is_of_one = name.startswith(("refused", "interrupted"))
            own = {"refused by one: memory": "ResourceError", "interrupted": "KeyboardInterrupt"}
            # Of a gather outside calls, and of Ctrl-C.
            others = dict.fromkeys(("refused by one: bytes", "refused by one: many bytes", "interrupted"), "Aborted")
            if not is_of_one:
                expected = "Mismatch"
            elif rank == len(results) - 1:
                expected = own.get(name, "InvalidArgument")
            else:
                expected = others.get(name, "Refused")
            assert got["error"] == expected, f"rank {rank}, {name}: {got}"
            assert name != "interrupted" or got["error"] != "Aborted" or "rank 2: interrupted in" in got["text"], got
            assert all(piece in got["text"] for piece in pieces), f"rank {rank}, {name}: {got}"
            # What to do about rows is said only where they differ.
            assert ("pass rows=" in got["text"]) == name.startswith("rows") or got["error"] != "Mismatch", got
            assert got["seconds"] < SOON_S, f"rank {rank}, {name}: {got}"
            later = got["later"]
            assert later["error"], f"rank {rank}, {name}: a later call went through: {got}"
            # Who has heard of the end is told that this call was never made, why, and what to do.
            if got["error"] == expected and not (is_of_one and rank == len(results) - 1):
                assert later["error"] == got["error"] and "has ended before" in later["text"], f"{name}: {later}"
                assert all(piece in later["text"] for piece in pieces) and "init()" in later["text"], f"{name}: {later}"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("victim", ["0", "2"])
def test_killed_rank_is_named_and_leaves_nothing(victim: str, tmp_path: Path) -> None:
    done = run_ranks("endless_calls", tmp_path, "2,1", (str(tmp_path), victim, "kill"))
    assert done.code == 128 + signal.SIGKILL, done.output
    for rank, found in enumerate(done.results):
        if rank == int(victim):
            continue
        assert found is not None, done.output
        assert found["error"] == "PeerLost" and f"rank {victim}" in found["text"], found
        assert found["next"] == "PeerLost" and found["close"] < SOON_S and found["seconds"] < SOON_S
    pids = [int((tmp_path / f"pid{rank}").read_text()) for rank in range(3)]
    assert not any(map(is_running, pids))


@pytest.mark.parametrize("how", ["exception", "exit", "close"])
def test_rank_that_leaves_between_calls_ends_the_others(how: str, tmp_path: Path) -> None:
    done = run_ranks("endless_calls", tmp_path, "2,1", (str(tmp_path), "1", how))
    assert done.code == (3 if how == "exit" else 1 if how == "exception" else 0), done.output
    for rank in (0, 2):
        found = done.results[rank]
        assert found and found["error"] in ("PeerLost", "Aborted") and "rank 1" in found["text"], (found, done.output)
        assert found["seconds"] < SOON_S


def test_sleeping_rank_is_named_at_the_deadline(tmp_path: Path) -> None:
    environment = {"TILEWIRE_DEADLINE_S": "2"}
    done = run_ranks(
        "endless_calls", tmp_path, "2,1", (str(tmp_path), "1", "sleep"), environment, grace_s=0.5, limit_s=30
    )
    for rank in (0, 2):
        found = done.results[rank]
        assert found and found["error"] == "DeadlineError" and "1" in found["text"], (found, done.output)
        assert found["seconds"] < SOON_S


def test_rank_that_never_comes_is_listed(tmp_path: Path) -> None:
    done = run_ranks("never_comes", tmp_path, "3", (str(tmp_path),))
    for found in done.results[:2]:
        assert found["error"] == "DeadlineError" and "rank 2" in found["text"] and found["seconds"] < SOON_S, found


def test_what_init_refuses(tmp_path: Path) -> None:
    for found in run_ranks("init_errors", tmp_path, "1,1", (str(tmp_path),)).all_results():
        expected = {
            "unknown option": ("InvalidArgument", "deadline_s"),
            "bad value": ("InvalidArgument", "soon"),
            "bad layout": ("InvalidArgument", "1,x"),
            "layout is a number": ("InvalidArgument", "layout = 2"),
            "layout has a fraction": ("InvalidArgument", "layout[1] = 1.5"),
            "rank is a bool": ("InvalidArgument", "rank = True"),
            "layout does not fit": ("InvalidArgument", "7,1"),
            "options differ": ("Mismatch", "max_chunks_per_source"),
            "secret differs": ("", ""),
            "no transport": ("Unavailable", "pigeon"),
            "no transport, one node": ("Unavailable", "pigeon"),
            "trace file": ("ResourceError", "/no/such/folder/trace."),
            "two are open": ("InvalidArgument", "2 are open"),
        }
        for name, (error, piece) in expected.items():
            got = found[name]
            assert piece in got["text"], (name, got)
            assert got["error"] == error if error else got["error"], (name, got)
        assert found["first"] and found["second"] and found["trace written"] and found["ids differ"]
        assert {"call", "compute"} <= set(found["roles"])
    picture = tmp_path / "t.svg"
    result = CliRunner().invoke(
        app, ["trace", *map(str, sorted(tmp_path.glob("calls.*.json"))), "--picture", str(picture)]
    )
    assert result.exit_code == 0 and picture.exists(), result.output


def start(program: str, folder: Path, *arguments: str, layout: str = "2") -> subprocess.Popen[str]:
    """A launch in a process group of its own, as a terminal starts it."""
    command = [
        sys.executable,
        "-m",
        "tilewire",
        "run",
        *(["--nodes", layout] if "," in layout else ["-n", layout]),
        "--grace",
        "10",
    ]
    command += [str(HERE / "rank_run.py"), program, str(folder), *arguments]
    environment = {**os.environ, **FAST_FAILURE}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def wait_for(paths: list[Path], limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not all(path.exists() for path in paths):
        assert time.monotonic() < end, f"not there: {paths}"
        time.sleep(0.05)


def test_ctrl_c_ends_a_call_that_waits_for_another_rank(tmp_path: Path) -> None:
    """Only the waiting rank is interrupted: it leaves at once, and the other one hears of it."""
    launch = start("blocked_call", tmp_path, str(tmp_path))
    wait_for([tmp_path / "pid0", tmp_path / "pid1"])
    time.sleep(1)
    begin = time.monotonic()
    os.kill(int((tmp_path / "pid1").read_text()), signal.SIGINT)
    wait_for([tmp_path / "blocked_call.1.json"])
    assert time.monotonic() - begin < 30
    found: dict[str, Any] = json.loads((tmp_path / "blocked_call.1.json").read_text())
    assert found["error"] == "KeyboardInterrupt"
    os.killpg(launch.pid, signal.SIGINT)
    output, _ = launch.communicate(timeout=60)
    assert launch.returncode == 128 + signal.SIGINT, output
    other = json.loads((tmp_path / "blocked_call.0.json").read_text())
    assert other["error"] == "KeyboardInterrupt"
    assert other["later"]["error"] == "Aborted" and "rank 1: interrupted" in other["later"]["text"], other


def test_ctrl_c_during_init(tmp_path: Path) -> None:
    program = "import tilewire, sys; print('starts', flush=True); tilewire.init(0, 2, 'localhost:' + sys.argv[1])"
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = str(holder.getsockname()[1])
    for rank in ("0", "1"):
        command = [sys.executable, "-c", program.replace("init(0", f"init({rank}"), port]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "starts\n"
        time.sleep(1)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in errors, errors
        assert time.monotonic() - begin < 30


def test_port_in_use_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        program = f"import tilewire; tilewire.init(0, 2, '127.0.0.1:{port}', connect_deadline_s=20)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "ResourceError" in done.stderr and f"port {port}" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("nothing", 0),
        ("exception", 1),
        ("exception in with", 1),
        ("shown before init", 0),
        ("code", 7),
        ("early", 0),
        ("forked child", 0),
    ],
)
def test_process_ends_soon_with_its_own_exit_code(how: str, code: int, tmp_path: Path) -> None:
    done = run_ranks("exits", tmp_path, "1,1", (how,))
    assert done.code == code and done.seconds < 10 + 3 * (how == "early") + SOON_S, done.output
    assert done.results[0] in (True, None if how == "early" else True), done.output
    assert ("a bug of the user's" in done.output) == how.startswith("exception"), done.output


def test_creating_and_closing_leaves_no_descriptor_or_thread(tmp_path: Path) -> None:
    for found in run_ranks("many_communicators", tmp_path, "1,1").all_results():
        assert found["after"] == found["before"]


def _take_memory() -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("work", "error", "text"),
    [
        (_take_memory, "ResourceError", "64 bytes"),
        (lambda: next(iter(())), "StopIteration", ""),  # C code raises it without making the exception
        (lambda: int("x"), "ValueError", "invalid literal"),
    ],
)
def test_what_is_raised_while_results_are_made_comes_out_of_the_call(
    work: Any, error: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    import tilewire as tw
    from tilewire.operands import Operands

    a = np.ones((4, 4), np.float32)
    with tw.init(), monkeypatch.context() as patch:
        patch.setattr(Operands, "make_results", lambda self, rows: work())
        with pytest.raises(Exception) as raised:  # noqa: B017
            tw.all_gather_matmul(a, a)
        assert type(raised.value).__name__ == error and text in str(raised.value), raised.value
        patch.undo()
        assert (np.asarray(tw.all_gather_matmul(a, a)) == 4).all()


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_that_is_seen_at_the_end_of_a_call_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have its result, and must not meet the same call of this rank again."""
    import numpy as np

    import tilewire as tw

    a = np.ones((4, 4), np.float32)
    with tw.init() as comm, monkeypatch.context() as patch:
        patch.setattr(comm, "_world_size", 2)
        patch.setattr(comm, "_note", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tw.all_gather_matmul(a, a)
        end = time.monotonic() + 60
        with pytest.raises(tw.Aborted, match="interrupted in a call"):
            while time.monotonic() < end:
                comm.check()


def test_ctrl_c_between_a_calls_checks_and_its_making_is_found_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    import tilewire as tw

    a = np.ones((4, 4), np.float32)
    with tw.init() as comm, monkeypatch.context() as patch:
        patch.setattr(comm, "_world_size", 2)
        tw.all_gather_matmul(a, a)
        with pytest.raises(tw.InvalidArgument):
            tw.all_gather_matmul(a, a[:3])
        handle = tw.AllGatherMatmul([4], 4, 4, dtype="fp32", comm=comm)
        handle(a, a)
        with patch.context() as during:
            during.setattr("tilewire.all_gather.partial", interrupted)
            with pytest.raises(KeyboardInterrupt):
                tw.all_gather_matmul(a, a)
        with pytest.raises(tw.Aborted, match="interrupted in all_gather_matmul"):
            tw.all_gather_matmul(a, a)


def test_calls_of_two_threads_take_turns() -> None:
    import numpy as np

    import tilewire as tw

    with tw.init() as comm:
        errors: list[str] = []

        def work(salt: int) -> None:
            a = np.full((64, 64), salt, np.float32)
            for _ in range(8):
                try:
                    y = tw.all_gather_matmul(a, a.T, comm=comm)
                    if not (np.asarray(y) == 64 * salt * salt).all():
                        errors.append(f"a wrong result in thread {salt}")
                except tw.Error as error:
                    errors.append(str(error))

        threads = [threading.Thread(target=work, args=(salt,)) for salt in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors


# What waits until no call is in flight, by name; each gets the communicator and its trace.
BESIDE_A_CALL: dict[str, Any] = {
    "empty": lambda comm, _: comm.empty((4, 4)),
    "a refused call": lambda comm, _: _refused_call(comm),
    "trace.start": lambda _, trace: trace.start(),
    "trace.stop": lambda _, trace: trace.stop(),
    "trace.events": lambda _, trace: trace.events,
    "trace.dropped": lambda _, trace: trace.dropped,
}


def _refused_call(comm: Any) -> None:
    import tilewire as tw

    with pytest.raises(tw.InvalidArgument, match="a is a list"):
        tw.all_gather_matmul([1.0], [2.0], comm=comm)


@pytest.mark.parametrize("is_main_thread", [True, False])
@pytest.mark.parametrize("name", BESIDE_A_CALL)
def test_what_waits_for_a_call_lets_that_call_run_python(
    name: str, is_main_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    import tilewire as tw
    from tilewire.operands import Operands

    is_inside = threading.Event()
    make_results = Operands.make_results

    def make_slowly(self: Operands, rows: int) -> Any:
        is_inside.set()
        time.sleep(0.3)  # gives the interpreter away and needs it again
        return make_results(self, rows)

    failures: list[BaseException] = []

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    monkeypatch.setattr(Operands, "make_results", make_slowly)
    a = np.ones((4, 4), np.float32)
    with tw.init(deadline_s=30) as comm:
        trace = comm.trace()
        call = threading.Thread(target=run, args=(lambda: tw.all_gather_matmul(a, a, comm=comm),))
        call.start()
        assert is_inside.wait(40)
        begin = time.monotonic()
        beside = threading.Thread(target=run, args=(lambda: BESIDE_A_CALL[name](comm, trace),))
        if is_main_thread:
            beside.run()
        else:
            beside.start()
            beside.join()
        assert time.monotonic() - begin < 15, "the interpreter stood still"
        call.join()
    assert not failures


def test_a_trace_counts_what_it_has_no_room_for(tmp_path: Path) -> None:
    import numpy as np

    import tilewire as tw
    from tilewire.trace_files import read_perfetto

    a = np.ones((4, 4), np.float32)
    with tw.init(trace_events=3) as comm:
        counts = []
        for calls in (1, 3):
            with comm.trace() as trace:
                for _ in range(calls):
                    tw.all_gather_matmul(a, a)
            counts.append(len(trace.events) + trace.dropped)
            assert len(trace.events) == 3 and trace.dropped > 0
        trace.write(str(tmp_path / "trace.json"))
    assert counts[1] == 3 * counts[0]
    assert read_perfetto(tmp_path / "trace.json").dropped == counts[1] - 3


def test_two_threads_may_close_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import tilewire as tw
    from tilewire import communicator

    both_have_looked = threading.Barrier(2, timeout=40)

    class Open(list):  # type: ignore[type-arg]
        def __contains__(self, one: object) -> bool:
            is_there = super().__contains__(one)
            both_have_looked.wait()
            return is_there

    monkeypatch.setattr(communicator, "_open", Open())
    comm = tw.init()
    errors: list[BaseException] = []

    def close() -> None:
        try:
            comm.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and not communicator._open
