"""Which ranks of a launch failed by themselves, and what they said last."""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewire.limits import address_space
from tilewire.rank_tracebacks import is_reaction, named_rank

# The last lines of a rank are out of sight when so much came after them.
_LAST_LINES, _NEAR_LINES = 5, 10
_MOST_GROUPS = 8  # of ranks that failed in the same way


class History:
    """The last lines of each rank's outputs, and how many lines of all ranks were shown behind them."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[tuple[int, bool], deque[str]] = {}
        self._count_at: dict[tuple[int, bool], int] = {}

    def note(self, rank: int, is_error: bool, lines: Sequence[str]) -> None:
        self._last.setdefault((rank, is_error), deque(maxlen=_LAST_LINES)).extend(lines)

    def note_shown(self, rank: int, is_error: bool, count: int) -> None:
        self._count += count
        self._count_at[rank, is_error] = self._count

    def last_lines(self, rank: int) -> list[str]:
        """Of its standard error, if the rank wrote there."""
        return list(self._last.get((rank, True)) or self._last.get((rank, False)) or [])

    def last_line(self, rank: int) -> str:
        return next(reversed(self.last_lines(rank)), "")

    def is_covered(self, rank: int) -> bool:
        """Whether so much came behind the last lines that they are no longer in sight."""
        at = self._count_at.get((rank, True), self._count_at.get((rank, False), self._count))
        return self._count - at > _NEAR_LINES


@dataclass(frozen=True)
class Failure:
    """How a rank failed."""

    rank: int
    code: int  # minus the signal that killed it

    @property
    def exit_code(self) -> int:
        return self.code if self.code > 0 else 128 - self.code

    def __str__(self) -> str:
        return _how_it_ended(self.code)


@dataclass(frozen=True)
class Report:
    """What became of the ranks that failed: lines to show, the ranks to which the last of them belongs, and the failure
    that counts for the launch."""

    lines: list[str]
    cause_ranks: list[int]
    cause: Failure


def report(failures: Sequence[Failure], last_line: Callable[[int], str]) -> Report:
    """Puts ranks that say the same into one line, and the line of the cause last. That is the rank that the others name
    in what they heard of it (the library finds out who was first), or the only ones that failed by themselves. Where
    ranks fail by themselves in different ways, and none of them is named, none of them is called the cause."""
    groups: dict[tuple[str, int], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((without_rank(last_line(failure.rank)), failure.code), []).append(failure)
    heard = [group for (line, _), group in groups.items() if is_reaction(line)]
    own = [group for (line, _), group in groups.items() if not is_reaction(line)]
    named = {named_rank(line) for line, _ in groups}
    blamed = [group for group in own if named & {failure.rank for failure in group}]
    causes = blamed or own or heard
    others = [group for group in [*heard, *own] if group not in causes]
    is_sole = len(causes) == 1
    lines = [_line_of(group, "heard of it" if group in heard else "failed", last_line) for group in others]
    verb = "failed first" if is_sole and others else "failed"
    lines += [_line_of(group, verb, last_line) for group in ([causes[0]] if is_sole else causes[:_MOST_GROUPS])]
    if len(causes) > _MOST_GROUPS:
        rest = sorted(failure.rank for group in causes[_MOST_GROUPS:] for failure in group)
        lines.append(f"{ranks_text(rest)} failed in other ways")
    return Report(lines, sorted(failure.rank for failure in causes[0]), causes[0][0])


def _line_of(group: Sequence[Failure], verb: str, last_line: Callable[[int], str]) -> str:
    line = last_line(group[0].rank)
    said = f": {without_rank(line) if len(group) > 1 else line}" if line else ""
    return f"{ranks_text([failure.rank for failure in group])} {verb} ({group[0]}){said}"


def ends_text(codes: Mapping[int, int]) -> str:
    """How each rank ended, those alike together: "ranks 0-2 killed by SIGINT, rank 3 exit code 0"."""
    alike: dict[int, list[int]] = {}
    for rank, code in codes.items():
        alike.setdefault(code, []).append(rank)
    return ", ".join(f"{ranks_text(ranks)} {_how_it_ended(code)}" for code, ranks in alike.items())


def ranks_text(ranks: Iterable[int]) -> str:
    """[0] as "rank 0", [3, 2, 5, 6, 4, 0] as "ranks 0, 2-6", many shortened."""
    ordered = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    parts = [
        text
        for first, last in runs
        for text in ([f"{first}-{last}"] if last > first + 1 else map(str, range(first, last + 1)))
    ]
    return f"rank{'s' * (len(ordered) > 1)} {', '.join(parts[:8])}{', ...' * (len(parts) > 8)}"


def without_rank(line: str) -> str:
    """A line without where it was said: an error that all ranks get names each of them, as in [rank 0, init]."""
    return re.sub(r" ?\[rank \d+[^]]*\]", "", line.rstrip())


def _how_it_ended(code: int) -> str:
    if code >= 0:
        # A program that finds too little address space often cannot say so.
        space = address_space() if code else "unlimited"
        return f"exit code {code}" + (f", ulimit -v is {space}" if space != "unlimited" else "")
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-code}"
