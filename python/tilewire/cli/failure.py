"""How a command says that it cannot do what was asked."""

from __future__ import annotations

from typing import NoReturn

import typer


def text_of(error: Exception) -> str:
    """What an error says, without the number that the system has for it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename is not None else error.strerror
    return str(error)


def fail(message: str, code: int = 2) -> NoReturn:
    """Ends the command with one line on standard error."""
    typer.echo(f"tilewire: {message}", err=True)
    raise typer.Exit(code)
