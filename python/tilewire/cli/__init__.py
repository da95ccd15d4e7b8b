"""The command line: `tilewire demo | run | doctor | plan | trace`. One small file a command."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewire import __version__
from tilewire.cli import demo, doctor, plan, run, trace

app = typer.Typer(
    help="Fused compute-and-communication operations over several ranks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"tilewire {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before a command."""


for command in (demo, run, doctor, plan, trace):
    command.register(app)


def main() -> None:
    app(prog_name="tilewire")
