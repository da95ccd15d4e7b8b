"""`tilewire run -n 4 --nodes 2 script.py [arguments]`: the embedded launcher; `--virtual 2x2` for ranks on one GPU."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from tilewire.cli.failure import fail, text_of
from tilewire.cli.numbers import finite
from tilewire.cli.ranks import Nodes, Ranks
from tilewire.errors import Error
from tilewire.launcher import Launch, launch, make_layout, rank_command
from tilewire.rank_processes import ShownTracebacks
from tilewire.virtual_cluster import virtual_layout


def register(app: typer.Typer) -> None:
    # What follows the script belongs to the script.
    app.command(
        "run",
        short_help="Start the ranks of this machine and end them together.",
        context_settings={"allow_interspersed_args": False},
    )(run)


def run(
    program: Annotated[str, typer.Argument(help="A Python script (.py), a module (-m) or any program.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Handed to it as they are.")] = None,
    ranks: Ranks = None,
    nodes: Nodes = None,
    module: Annotated[bool, typer.Option("-m", "--module", help="Run a Python module, as python -m does.")] = False,
    virtual: Annotated[
        str | None,
        typer.Option(
            "--virtual",
            show_default=False,
            metavar="NODESxRANKS",
            help="The ranks share one GPU, as so many nodes with so many ranks each: 2x2, or 3,1. Needs MPS. In place "
            "of --ranks and --nodes.",
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option("--grace", callback=finite, help="Seconds that ranks get to end by themselves.")
    ] = 3.0,
    prefix: Annotated[bool, typer.Option(help="Put the rank's number before each line of output.")] = True,
    all_tracebacks: Annotated[
        bool, typer.Option("--all-tracebacks", help="Show the tracebacks of all ranks, not one of those alike.")
    ] = False,
) -> None:
    """Start the ranks of this machine as processes, several nodes' worth if you like, and end them together."""
    try:
        command = rank_command(program, arguments or [], module)
        layout = _layout(ranks, nodes, virtual)
        tracebacks = ShownTracebacks(all=all_tracebacks)
        plan = Launch(command, layout, grace_s=grace, prefix=prefix, virtual=bool(virtual), tracebacks=tracebacks)
        code = launch(plan)
    except (Error, ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # Whoever read the output has left: nothing more can be said there, not even while Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None
        fail(text_of(error))
    raise typer.Exit(code)


def _layout(ranks: int | None, nodes: str | None, virtual: str | None) -> list[int]:
    if virtual is None:
        return make_layout(ranks, nodes)
    if ranks is not None or nodes is not None:
        raise ValueError("--virtual says how many nodes and ranks there are; leave out --ranks and --nodes")
    return virtual_layout(virtual)
