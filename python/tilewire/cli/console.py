"""Where tables go."""

from __future__ import annotations

from rich.console import Console

_WIDTH = 132  # where the output goes to no terminal


def make_console() -> Console:
    """The terminal, or a wide page when the output is read later."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)
