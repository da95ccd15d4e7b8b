"""How a command says that it cannot do what was asked."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(message: str, code: int = 2) -> NoReturn:
    """Ends the command with one line on standard error."""
    typer.echo(f"tilewire: {message}", err=True)
    raise typer.Exit(code)
