"""Numbers on the command line, and work that takes a while."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tilewire.cli.failure import fail

MOST_SIZE = 2**62  # of a dimension of a matrix


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
    """Around work in the compiled core: says what is going on, and lets Ctrl-C end the command at once."""
    shown = sys.stderr.isatty()
    if shown:
        sys.stderr.write(f"{what} ...")
        sys.stderr.flush()
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if shown:
            sys.stderr.write("\r\033[K")
