"""What a launch says of ranks that fail: each traceback once, alike ranks in one line, the cause last."""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tilewire import rank_tracebacks
from tilewire.launcher import Launch, launch, rank_command
from tilewire.rank_failures import Failure, ends_text, ranks_text, report
from tilewire.rank_processes import ShownTracebacks
from tilewire.rank_tracebacks import Tracebacks, is_unheard

HEADER = "Traceback (most recent call last):"
OWN = ['  File "/home/user/train.py", line 3, in <module>', "    step()"]
INSIDE = [f'  File "{Path(rank_tracebacks.__file__).parent}/op_calls.py", line {{}}, in run', "    run()"]
ABORTED = "tilewire.errors.Aborted: rank 2: left by an exception [rank 0] <aborted>"


def traceback(error: str, line_inside: int = 7) -> list[str]:
    return [HEADER, *OWN, *(line.format(line_inside) for line in INSIDE), error]


class Screen:
    def __init__(self, shows_all: bool = False) -> None:
        self.shown: list[tuple[int, str]] = []
        self.tracebacks = Tracebacks(self._show, shows_all)

    def _show(self, rank: int, lines: Sequence[str]) -> None:
        self.shown += [(rank, line) for line in lines]

    def ranks_with(self, line: str) -> list[int]:
        return [rank for rank, shown in self.shown if shown == line]


def test_equal_tracebacks_are_shown_once_wherever_ranks_were_inside_of_the_package() -> None:
    screen = Screen()
    for rank in range(4):
        screen.tracebacks.take(rank, ["a line before", *traceback(f"ValueError: no [rank {rank}]", rank)], 0)
        screen.tracebacks.settle(rank, has_failed=True, is_asked_to_end=False)
    assert screen.ranks_with(HEADER) == [0] and screen.ranks_with("a line before") == [0, 1, 2, 3]
    assert screen.tracebacks.hidden() == [1, 2, 3]


@pytest.mark.parametrize(
    "other", [[HEADER, *OWN, "TypeError: no"], [HEADER, OWN[0].replace("3", "4"), "ValueError: no"]]
)
def test_another_error_or_another_line_of_the_program_is_shown_too(other: list[str]) -> None:
    screen = Screen()
    for rank, lines in enumerate([[HEADER, *OWN, "ValueError: no"], other]):
        screen.tracebacks.take(rank, lines, 0)
        screen.tracebacks.settle(rank, has_failed=True, is_asked_to_end=False)
    assert screen.ranks_with(HEADER) == [0, 1]


def test_traceback_of_a_rank_that_runs_on_is_shown_though_another_has_shown_the_same() -> None:
    screen = Screen()
    for rank in range(2):
        screen.tracebacks.take(rank, traceback("ValueError: logged"), 10)
        screen.tracebacks.take(rank, ["a line behind"], 10)
    screen.tracebacks.show_held_since(9)
    assert screen.shown == []
    screen.tracebacks.show_held_since(10)
    assert screen.ranks_with(HEADER) == [0, 1] == screen.ranks_with("a line behind")
    screen.tracebacks.take(0, ["and on"], 12)
    assert screen.ranks_with("and on") == [0]


def test_traceback_of_a_rank_that_ends_well_is_shown() -> None:
    screen = Screen()
    for rank in range(2):
        screen.tracebacks.take(rank, traceback("ValueError: logged"), 0)
        screen.tracebacks.settle(rank, has_failed=False, is_asked_to_end=False)
    assert screen.ranks_with(HEADER) == [0, 1]


def test_last_traceback_of_a_rank_counts_not_one_that_it_logged_before() -> None:
    screen = Screen()
    screen.tracebacks.take(0, traceback("ValueError: logged"), 0)
    screen.tracebacks.show_held_since(1)
    screen.tracebacks.take(0, ["a line", *traceback("TypeError: the end")], 2)
    screen.tracebacks.settle(0, has_failed=True, is_asked_to_end=False)
    assert screen.tracebacks.error_of(0) == "TypeError: the end" and len(screen.ranks_with(HEADER)) == 2


def test_error_is_found_before_notes_and_behind_an_error_that_it_followed() -> None:
    lines = [*traceback("KeyError: 1"), "", "During handling of the above exception, another exception occurred:", ""]
    screen = Screen()
    screen.tracebacks.take(0, lines, 0)
    screen.tracebacks.take(0, [*traceback("ValueError: no"), "a note", "Exception ignored in: x"], 0)
    screen.tracebacks.settle(0, has_failed=True, is_asked_to_end=False)
    assert screen.tracebacks.error_of(0) == "ValueError: no"


def test_what_ranks_heard_of_another_is_not_shown_unless_there_is_nothing_else() -> None:
    screen = Screen()
    for rank in range(2):
        screen.tracebacks.take(rank, traceback(ABORTED), 0)
        screen.tracebacks.settle(rank, has_failed=True, is_asked_to_end=False)
    assert screen.shown == [] and screen.tracebacks.hidden() == [0, 1]
    screen.tracebacks.show_one_of([0, 1])
    assert screen.ranks_with(HEADER) == [0]


def test_all_tracebacks_come_at_once_where_they_are_asked_for() -> None:
    screen = Screen(shows_all=True)
    for rank in range(2):
        screen.tracebacks.take(rank, traceback(ABORTED), 0)
    assert screen.ranks_with(HEADER) == [0, 1]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "KeyboardInterrupt: while it loaded"])
def test_interruption_that_the_user_asked_for_is_not_shown_and_any_other_end_is(error: str) -> None:
    screen = Screen()
    screen.tracebacks.take(0, traceback(error), 0)
    screen.tracebacks.settle(0, has_failed=True, is_asked_to_end=True)
    assert screen.shown == []
    for rank, (line, is_asked) in enumerate([(error, False), ("RuntimeError: cannot save", True)], start=1):
        screen.tracebacks.take(rank, traceback(line), 0)
        screen.tracebacks.settle(rank, has_failed=True, is_asked_to_end=is_asked)
    assert screen.ranks_with(HEADER) == [1, 2]


def test_syntax_error_that_has_no_header_is_shown_once() -> None:
    screen = Screen()
    for rank in range(3):
        screen.tracebacks.take(
            rank, ['  File "/home/user/train.py", line 1', "    x y", "SyntaxError: invalid syntax"], 0
        )
        screen.tracebacks.settle(rank, has_failed=True, is_asked_to_end=False)
    assert screen.ranks_with("SyntaxError: invalid syntax") == [0]


def report_of(last_lines: Sequence[str], order: Sequence[int] | None = None, codes: Sequence[int] = ()) -> list[str]:
    ranks = order if order is not None else range(len(last_lines))
    found = report([Failure(rank, codes[rank] if codes else 1) for rank in ranks], lambda rank: last_lines[rank])
    return [*found.lines, f"cause {found.cause.rank} of {found.cause_ranks}"]


def test_ranks_that_make_the_same_mistake_are_one_line_and_none_of_them_is_blamed() -> None:
    said = report_of([f"ValueError: no [rank {rank}]" for rank in range(4)], [3, 0, 1, 2])
    assert said == ["ranks 0-3 failed (exit code 1): ValueError: no", "cause 3 of [0, 1, 2, 3]"]


def test_rank_that_the_others_name_is_the_cause_though_another_failed_before() -> None:
    said = report_of([ABORTED, "RuntimeError: later", "ValueError: no"], [1, 0, 2])
    assert said[-2:] == ["rank 2 failed first (exit code 1): ValueError: no", "cause 2 of [2]"]
    assert said[0].startswith("rank 0 heard of it") and said[1] == "rank 1 failed (exit code 1): RuntimeError: later"


def test_ranks_that_fail_in_different_ways_are_told_side_by_side() -> None:
    said = report_of(["ValueError: no", "TypeError: no", "ValueError: no"])
    assert said[:2] == ["ranks 0, 2 failed (exit code 1): ValueError: no", "rank 1 failed (exit code 1): TypeError: no"]


def test_killed_rank_that_others_name_is_the_cause() -> None:
    lost = "tilewire.errors.PeerLost: rank 1 is lost: its connection closed [rank 0] <peer lost>"
    said = report_of([lost, "", lost.replace("[rank 0]", "[rank 2]")], [0, 1, 2], [1, -signal.SIGKILL, 1])
    assert said[0].startswith("ranks 0, 2 heard of it (exit code 1): tilewire.errors.PeerLost: rank 1 is lost")
    assert said[1:] == ["rank 1 failed first (killed by SIGKILL)", "cause 1 of [1]"]


def test_many_kinds_of_failures_are_not_all_listed() -> None:
    said = report_of([f"ValueError: {rank}" for rank in range(40)])
    assert len(said) == 10 and said[8] == "ranks 8-39 failed in other ways"


def test_ranks_and_ends_in_words() -> None:
    assert ranks_text([0]) == "rank 0" and ranks_text([3, 2, 5, 6, 4, 0]) == "ranks 0, 2-6"
    assert ranks_text([0, 1, 3]) == "ranks 0, 1, 3" and ranks_text(range(0, 40, 2)).endswith("12, 14, ...")
    assert ends_text({0: -signal.SIGINT, 1: 0, 2: -signal.SIGINT}) == "ranks 0, 2 killed by SIGINT, rank 1 exit code 0"


@pytest.fixture
def run_ranks(tmp_path: Path) -> Callable[[str], tuple[int, str]]:
    def run(body: str, all_tracebacks: bool = False, grace_s: float = 20) -> tuple[int, str]:
        path = tmp_path / "script.py"
        path.write_text(f"import os, sys, time\nrank = int(os.environ['TILEWIRE_RANK'])\n{body}")
        err = io.StringIO()
        plan = Launch(
            rank_command(str(path), []), [2, 2], grace_s=grace_s, tracebacks=ShownTracebacks(all_tracebacks, hold_s=60)
        )
        return launch(plan, io.StringIO(), err), err.getvalue()

    return run


WRONG_CALL = """
import numpy as np, tilewire as tw
with tw.init() as comm:
    tw.all_gather_matmul(np.ones((4, 8), np.float32), np.ones((8 + ({wrong}), 4), np.float32))
"""


def test_mistake_of_all_ranks_in_one_call_is_one_traceback_and_one_line(
    run_ranks: Callable[..., tuple[int, str]],
) -> None:
    code, err = run_ranks(WRONG_CALL.format(wrong="1"))
    assert code == 1 and err.count(HEADER) == 1, err
    assert "tilewire run: ranks 0-3 failed (exit code 1): tilewire.errors.InvalidArgument: b " in err.splitlines()[-1]


def test_mistake_of_one_rank_in_one_call_is_its_traceback_and_named_as_the_cause(
    run_ranks: Callable[..., tuple[int, str]],
) -> None:
    code, err = run_ranks(WRONG_CALL.format(wrong="rank == 2"))
    assert code == 1 and [line for line in err.splitlines() if HEADER in line] == [f"[2] {HEADER}"], err
    assert err.splitlines()[-1].startswith(
        "tilewire run: rank 2 failed first (exit code 1): tilewire.errors.InvalidArg"
    )


def test_every_rank_may_be_asked_for_its_own(run_ranks: Callable[..., tuple[int, str]]) -> None:
    _, err = run_ranks("raise ValueError('no')", all_tracebacks=True)
    assert all(f"[{rank}] {HEADER}" in err for rank in range(4)), err


class Witness:
    """A screen that makes a file when a text comes to it."""

    def __init__(self, path: Path, text: str) -> None:
        self.shown = ""
        self._path, self._text = path, text

    def write(self, text: str) -> None:
        self.shown += text
        if self._text in self.shown:
            self._path.touch()

    def flush(self) -> None:
        pass


LOGS_AND_RUNS_ON = """
def until(name):
    end = time.monotonic() + 30
    while not os.path.exists({folder!r} + "/" + name):
        if time.monotonic() > end:
            os._exit(9)
        time.sleep(0.01)

sys.stderr.write("Traceback (most recent call last):\\nValueError: logged\\n")
print("first", flush=True)
{then}
"""


def test_traceback_of_a_rank_that_only_logged_it_comes_while_the_rank_runs_on(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import os, sys, time\n" + LOGS_AND_RUNS_ON.format(folder=str(tmp_path), then='until("seen")'))
    err = Witness(tmp_path / "seen", "ValueError: logged")
    assert launch(Launch(rank_command(str(path), []), [1]), io.StringIO(), err) == 0, "it was held until the end"


def test_traceback_is_held_as_long_as_is_asked_for_while_the_rank_runs_on(tmp_path: Path) -> None:
    """All that the rank has written before `first` is read with it, at the latest."""
    path = tmp_path / "script.py"
    then = 'until("seen first")\nprint("second", flush=True)\nuntil("seen second")'
    path.write_text("import os, sys, time\n" + LOGS_AND_RUNS_ON.format(folder=str(tmp_path), then=then))
    err = io.StringIO()
    shown_by_then = []

    class Order(Witness):
        def write(self, text: str) -> None:
            super().write(text)
            if "second" in text:
                shown_by_then.append(err.getvalue())
                (tmp_path / "seen second").touch()

    plan = Launch(rank_command(str(path), []), [1], tracebacks=ShownTracebacks(hold_s=60))
    assert launch(plan, Order(tmp_path / "seen first", "first"), err) == 0
    assert shown_by_then == [""] and err.getvalue().count("ValueError: logged") == 1


PORT_IN_USE = """
import socket, tilewire as tw
with socket.socket() as holder:
    if rank == 0:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        open({path!r} + ".tmp", "w").write(str(holder.getsockname()[1]))
        os.rename({path!r} + ".tmp", {path!r})
    while not os.path.exists({path!r}):
        time.sleep(0.01)
    tw.init(rendezvous="127.0.0.1:" + open({path!r}).read())
"""


def test_ranks_that_wait_for_a_rank_0_without_a_port_are_ended_at_once(
    run_ranks: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    begin = time.monotonic()
    code, err = run_ranks(PORT_IN_USE.format(path=str(tmp_path / "port")), grace_s=100)
    assert time.monotonic() - begin < 50, (
        "they waited for their connect deadline, or until their time of grace was over"
    )
    assert code == 1 and err.count(HEADER) == 1 and "ranks 1-3 killed by SIGTERM" in err, err
    last = err.splitlines()[-1]
    assert last.startswith("tilewire run: rank 0 failed (exit code 1): tilewire.errors.ResourceError: port "), err
    assert "is in use" in last


def test_error_that_the_others_hear_of_ends_nobody_at_once() -> None:
    unheard = "tilewire.errors.ResourceError: port 1 of this host is in use [rank 0, rendezvous at h:1] <resource>"
    assert is_unheard(unheard) and not is_unheard(unheard.replace("rank 0", "rank 1"))
    assert not is_unheard("tilewire.errors.DeadlineError: rank 1 did not come [rank 0, rendezvous] <deadline>")
