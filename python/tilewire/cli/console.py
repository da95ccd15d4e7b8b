"""Where tables go."""

from __future__ import annotations

import shutil

from rich.console import Console

_WIDTH = 132  # where the output goes to no terminal and COLUMNS says nothing


def make_console() -> Console:
    """The terminal, or a page when the output is read later."""
    console = Console()
    return console if console.is_terminal else Console(width=shutil.get_terminal_size((_WIDTH, 24)).columns)
