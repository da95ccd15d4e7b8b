"""Tracebacks of the ranks of a launch: equal ones are shown once. See `tilewire.rank_processes`.

From its first line on, a rank's traceback is held back until the rank has ended. Then it is shown, unless another rank
has shown the same, it tells of another rank's failure, or it is the user's own Ctrl-C. A rank that writes a traceback
and runs on has only logged it: that is shown after a moment (`ShownTracebacks.hold_s`), whatever others have shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_MOST_LINES = 1000
_PACKAGE = str(Path(__file__).resolve().parent)
_FRAME = re.compile(r'[\s|]*File "(.+)", line \d+')
_HEADER = re.compile(r"[\s|+]*(Exception Group )?Traceback \(most recent call last\):")
_REACTIONS = ("tilewire.errors.Aborted:", "tilewire.errors.PeerLost:", "tilewire.errors.Refused:")


@dataclass
class _Traceback:
    """The last words of a rank, from its traceback on."""

    since: float
    lines: list[str] = field(default_factory=list)
    is_shown: bool = False

    @property
    def error(self) -> str:
        """The line that names the exception, without notes and what else was said behind it."""
        headers = [at for at, line in enumerate(self.lines) if _HEADER.match(line)]
        behind = self.lines[headers[-1] + 1 :] if headers else self.lines
        return next((line for line in behind if line and not line[0].isspace()), self.lines[-1])

    @property
    def place(self) -> tuple[str, ...]:
        """What equal tracebacks have in common: the kind of error, and the lines of the user's program. Below those,
        inside of the package, ranks may have been at different places."""
        frames = (line for line in self.lines if (frame := _FRAME.match(line)) and not frame[1].startswith(_PACKAGE))
        return (self.error.partition(":")[0], *frames)


class Tracebacks:
    """Between what ranks write to their standard error and the screen."""

    def __init__(self, show: Callable[[int, Sequence[str]], None], shows_all: bool = False) -> None:
        self._show_lines = show
        self._shows_all = shows_all
        self._of: dict[int, _Traceback] = {}
        self._settled: dict[int, _Traceback] = {}

    def take(self, rank: int, lines: Sequence[str], now: float) -> None:
        """Lines that have come from a rank."""
        held = self._of.get(rank)
        if self._shows_all:
            self._show_lines(rank, lines)
            held = self._of.setdefault(rank, _Traceback(now, is_shown=True))
            held.lines = [*held.lines, *lines][-_MOST_LINES:]
            return
        if held is None or held.is_shown:
            begin = next((at for at, line in enumerate(lines) if is_traceback(line)), len(lines))
            self._show_lines(rank, lines[:begin])
            self._of.pop(rank, None)  # it was not its last words
            if begin == len(lines):
                return
            held = self._of[rank] = _Traceback(now)
            lines = lines[begin:]
        held.lines += lines
        if len(held.lines) > _MOST_LINES:
            self._show(rank, held)

    def show_held_since(self, time: float) -> None:
        """Shows what was held at that time already: whose rank has not ended runs on."""
        for rank, held in self._of.items():
            if held.since <= time and rank not in self._settled and not held.is_shown:
                self._show(rank, held)

    def settle(self, rank: int, has_failed: bool, is_asked_to_end: bool) -> None:
        """Once, for a rank that has ended and will say no more: shows its traceback if it tells anything new."""
        held = self._of.get(rank)
        if held is None:
            return
        self._settled[rank] = held
        is_told = has_failed and (is_reaction(held.error) or self._is_known(held))
        is_asked_for = is_asked_to_end and held.error.partition(":")[0] == "KeyboardInterrupt"
        if not held.is_shown and not is_told and not is_asked_for:
            self._show(rank, held)

    def show_one_of(self, ranks: Collection[int]) -> None:
        """One of theirs, unless one was shown."""
        theirs = [(rank, self._settled[rank]) for rank in ranks if rank in self._settled]
        if theirs and not any(held.is_shown for _, held in theirs):
            self._show(*theirs[0])

    def lines_of(self, rank: int) -> list[str]:
        return list(self._settled[rank].lines) if rank in self._settled else []

    def error_of(self, rank: int) -> str:
        """The error that ended a rank; "" when no traceback tells it."""
        return self._settled[rank].error if rank in self._settled else ""

    def hidden(self) -> list[int]:
        """The ranks whose tracebacks were not shown."""
        return sorted(rank for rank, held in self._settled.items() if not held.is_shown)

    def _is_known(self, held: _Traceback) -> bool:
        return any(other.is_shown and other.place == held.place for other in self._settled.values())

    def _show(self, rank: int, held: _Traceback) -> None:
        held.is_shown = True
        self._show_lines(rank, held.lines)


def is_traceback(line: str) -> bool:
    """Whether one begins with this line; that of a SyntaxError has no header."""
    return _HEADER.match(line) is not None or line.startswith('  File "')


def is_reaction(line: str) -> bool:
    """Whether an error says that another rank failed."""
    return line.startswith(_REACTIONS)


def is_unheard(line: str) -> bool:
    """Whether the error is that of a rank 0 which could not listen: the others wait for it, and have nobody from whom
    they could hear that it will not come."""
    return re.search(r"\[rank 0, rendezvous at .*<(resource|invalid argument|unavailable)>", line) is not None


def named_rank(line: str) -> int | None:
    """The rank that a reaction names as the cause."""
    found = re.match(r"tilewire\.errors\.\w+: rank (\d+)\b", line)
    return int(found[1]) if found and is_reaction(line) else None
