"""Numbers on the command line, and work that takes a while."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tilewire.cli.failure import fail

MOST_SIZE = 2**62  # of a dimension of a matrix
_TICK_S, _FIRST_WORD_S = 1.0, 30.0  # on a terminal, and elsewhere


def finite(value: float | None) -> float | None:
    """A typer callback: a time that a machine can have, if one is given; the option is named by typer."""
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise typer.BadParameter(f"{value} must be a finite number, 0 or more")
    return value


def above_zero(value: float | None) -> float | None:
    """A typer callback: a rate that a machine can have, if one is given."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise typer.BadParameter(f"{value} must be a finite number above 0")
    return value


def numbers(name: str, text: str) -> list[int]:
    """ "8,8" as a list."""
    try:
        found = [int(part) for part in text.replace("+", ",").split(",")]
    except ValueError:
        fail(f"{name} is {text!r}, must be a number or numbers as in 8,8")
    if max(map(abs, found)) > MOST_SIZE:
        fail(f"{name} is {text!r}, a number must be at most {MOST_SIZE}")
    return found


@contextmanager
def working(what: str) -> Iterator[None]:
    """Around work in the compiled core: says what is going on, and for how long, and lets Ctrl-C end the command at
    once. Where nobody watches it says so of long work alone, ever more seldom."""
    shown = sys.stderr.isatty()
    if shown:
        sys.stderr.write(f"{what} ...")
        sys.stderr.flush()
    ends = threading.Event()
    teller = threading.Thread(target=_tell_time, args=(what, shown, ends), daemon=True)
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    teller.start()
    try:
        yield
    finally:
        ends.set()
        teller.join()
        signal.signal(signal.SIGINT, before)
        if shown:
            sys.stderr.write("\r\033[K")


def _tell_time(what: str, is_watched: bool, ends: threading.Event) -> None:
    begin, pause_s = time.monotonic(), _FIRST_WORD_S
    while not ends.wait(_TICK_S if is_watched else pause_s):
        text = f"{what} ... {time.monotonic() - begin:.0f} s"
        sys.stderr.write(f"\r{text}" if is_watched else f"tilewire: {text}\n")
        sys.stderr.flush()
        pause_s *= 2
