"""The command line: `tilewire demo | run | doctor | plan | trace`. One small file a command."""

from __future__ import annotations

import typer

from tilewire.cli import demo, doctor, plan, run, trace

app = typer.Typer(
    help="Fused compute-and-communication operations over several ranks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (demo, run, doctor, plan, trace):
    command.register(app)


def main() -> None:
    app(prog_name="tilewire")
