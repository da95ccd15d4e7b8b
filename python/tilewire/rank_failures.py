"""Which rank of a launch failed by itself, and what it said last."""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tilewire.limits import address_space

# The last lines of a rank are out of sight when so much came after them.
_LAST_LINES, _NEAR_LINES = 5, 10


class History:
    """The last lines of each rank's outputs, and how many lines of all ranks were shown behind them."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[tuple[int, bool], deque[str]] = {}
        self._count_at: dict[tuple[int, bool], int] = {}

    def note(self, rank: int, is_error: bool, lines: Sequence[str]) -> None:
        self._count += len(lines)
        self._last.setdefault((rank, is_error), deque(maxlen=_LAST_LINES)).extend(lines)
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


def ranks_text(ranks: Sequence[int]) -> str:
    """[0] as "rank 0", [0, 1] as "ranks 0, 1", many shortened."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:8]))}{', ...' * (len(ranks) > 8)}"


def without_rank(line: str) -> str:
    """A line without where it was said: an error that all ranks get names each of them, as in [rank 0, init]."""
    return re.sub(r" ?\[rank \d+[^]]*\]", "", line.rstrip())


def is_reaction(line: str) -> bool:
    """Whether a rank's last line says that another rank failed."""
    return line.startswith(("tilewire.errors.Aborted:", "tilewire.errors.PeerLost:", "tilewire.errors.Refused:"))


def _how_it_ended(code: int) -> str:
    if code > 0:
        # A program that finds too little address space often cannot say so.
        space = address_space()
        return f"exit code {code}" + (f", ulimit -v is {space}" if space != "unlimited" else "")
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-code}"
