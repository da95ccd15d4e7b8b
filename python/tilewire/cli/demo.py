"""`tilewire demo`: an embedded cluster runs real and odd products and a sentence encoder, checks all, shows a table."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tilewire.cli.console import make_console
from tilewire.cli.failure import fail
from tilewire.launcher import Launch, launch, make_layout

RANK_MODULE = "tilewire.demo_rank"
# A network as slow, beside CPU ranks, as a real one is beside GPUs: what is hidden under compute is worth hiding.
NETWORK = {"TILEWIRE_EMULATED_BANDWIDTH_GBPS": "0.05", "TILEWIRE_EMULATED_LATENCY_US": "500"}


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    layout: Annotated[str, typer.Option("--layout", help="Ranks of each node, as in 2,2.")] = "2,2",
    out: Annotated[Path, typer.Option("--out", help="Folder for the timeline picture and its data.")] = Path(
        "out/demo"
    ),
) -> None:
    """Run the operation on an embedded cluster, check every element, show a table and write a timeline."""
    try:
        counts = make_layout(None, None, layout)
        out.mkdir(parents=True, exist_ok=True)
        # Ranks write here only; an old run's files must not pass for this one's.
        with tempfile.TemporaryDirectory(prefix="tilewire-demo-") as folder:
            code = launch(Launch([sys.executable, "-m", RANK_MODULE, folder], counts, _environment(sum(counts))))
            if code:
                fail("a rank failed; see its output above", code)
            ok = _show(Path(folder), sum(counts), out)
    except (ValueError, OSError) as error:
        fail(str(error))
    raise typer.Exit(0 if ok else 1)


def _environment(ranks: int) -> dict[str, str]:
    """The network, unless the caller has chosen one, and numpy's threads: all ranks together use every core once."""
    count = str(max(1, (os.cpu_count() or 1) // ranks))
    network = {name: value for name, value in NETWORK.items() if not os.environ.get(name)}
    return {"OPENBLAS_NUM_THREADS": count, "OMP_NUM_THREADS": count, **network}


def _show(folder: Path, world_size: int, out: Path) -> bool:
    from tilewire.demo import print_summary, read_results, write_timeline

    console = make_console()
    summary = read_results(folder, world_size)
    print_summary(summary, console)
    for path in write_timeline(summary, out):
        console.print(f"wrote {path}", highlight=False, markup=False)
    return summary.ok
