"""How many ranks, and on which nodes: the same two options for every command that asks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

_RANKS: dict[str, Any] = {"min": 1, "show_default": False, "help": "Number of ranks. Default: one on each node."}
_NODES: dict[str, Any] = {"show_default": False, "metavar": "COUNT|WIDTHS"}
_WIDTHS = (
    "How many nodes share the ranks out, as in 2 (the first ones get one more where it does not come out even), or the "
    "ranks of each node, as in 3,1 or 3+1."
)

Ranks = Annotated[int | None, typer.Option("-n", "--ranks", **_RANKS)]
RanksBesideN = Annotated[int | None, typer.Option("--ranks", **_RANKS)]  # where --n is something else
Nodes = Annotated[str | None, typer.Option("--nodes", **_NODES, help=f"{_WIDTHS} Default: 1.")]

# The demo's, which has a cluster of its own.
_RANKS_OF_DEMO = {**_RANKS, "help": "Number of ranks. Default: one on each node; without --nodes too: 2 nodes of 2."}
RanksOrTwoByTwo = Annotated[int | None, typer.Option("-n", "--ranks", **_RANKS_OF_DEMO)]
NodesOrTwoByTwo = Annotated[
    str | None, typer.Option("--nodes", **_NODES, help=f"{_WIDTHS} Default: 1. Without -n too: 2 nodes of 2.")
]
