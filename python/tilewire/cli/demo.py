"""`tilewire demo`: an embedded cluster runs products of every operation and a sentence encoder, checks all, shows a
table."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewire.cli.console import make_console
from tilewire.cli.failure import fail, text_of
from tilewire.cli.ranks import NodesOrTwoByTwo, RanksOrTwoByTwo
from tilewire.errors import Error, Unavailable
from tilewire.launcher import Launch, launch, make_layout

if TYPE_CHECKING:
    from rich.console import Console

    from tilewire.gpu.driver import Gpu

NAME = "tilewire demo"
RANK_MODULE = "tilewire.demo_rank"
NO_MPS = "There is no nvidia-cuda-mps-control, by which ranks share a GPU"
# A network as slow, beside CPU ranks, as a real one is beside GPUs: what is hidden under compute is worth hiding.
NETWORK = {"TILEWIRE_EMULATED_BANDWIDTH_GBPS": "0.05", "TILEWIRE_EMULATED_LATENCY_US": "500"}


@dataclass(frozen=True)
class Parts:
    """Which optional parts of the demo can be had here, and a line for each that cannot."""

    pictures: bool
    encoder: bool
    gpu: Gpu | None
    left_out: list[str]


def register(app: typer.Typer) -> None:
    app.command("demo", short_help="Run every operation on an embedded cluster and check every element.")(demo)


def demo(
    ranks: RanksOrTwoByTwo = None,
    nodes: NodesOrTwoByTwo = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the timeline picture and its data.")] = Path(
        "out/demo"
    ),
) -> None:
    """Run the operations on an embedded cluster, check every element, show a table and write a timeline. Without -n
    and --nodes the cluster has 2 nodes of 2 ranks. Where there is a GPU that ranks can share, as many nodes and ranks
    run on it what a GPU can; one rank where there is no MPS, by which ranks share it."""
    console = make_console()
    try:
        counts = [2, 2] if ranks is None and nodes is None else make_layout(ranks, nodes)
        parts = find_parts()
        _say(parts.left_out, console)
        out.mkdir(parents=True, exist_ok=True)
        # Ranks write here only; an old run's files must not pass for this one's.
        with tempfile.TemporaryDirectory(prefix="tilewire-demo-") as folder:
            code = _run_ranks(counts, Path(folder), parts, console)
            if code:
                fail(_why_ended(code, "a rank"), code)
            ok = _show(Path(folder), sum(counts), out, parts, console)
        if parts.gpu is not None:
            try:
                ok = _run_on_gpu(counts, parts, console) and ok
            except Unavailable as error:
                parts.left_out.append(f"left out: ranks on the GPU. {error}")
        _say(parts.left_out, console)
    except (Error, ValueError, OSError) as error:
        fail(text_of(error))
    raise typer.Exit(0 if ok else 1)


def find_parts() -> Parts:
    """Looks before any work is done. What is optional is left out; nothing of the table depends on it."""
    from tilewire.encoder_weights import ADVICE, missing_parts
    from tilewire.gpu.demo_machine import find_gpu
    from tilewire.timeline import check_matplotlib

    left_out: list[str] = []
    try:
        check_matplotlib()
    except Unavailable as error:
        left_out.append(f"left out: the timeline pictures. {error}")
    pictures = not left_out
    absent = missing_parts()
    if absent:
        left_out.append(f"left out: the sentence encoder. Not installed: {', '.join(absent)}; {ADVICE}")
    gpu, why_not = find_gpu()
    if why_not:
        left_out.append(f"left out: ranks on the GPU. {why_not}")
    return Parts(pictures, not absent, gpu, left_out)


def _say(lines: list[str], console: Console) -> None:
    for line in lines:
        console.print(line, style="yellow", markup=False, highlight=False)


def _run_ranks(counts: list[int], folder: Path, parts: Parts, console: Console) -> int:
    from tilewire.demo_progress import show_progress

    network = {name: value for name, value in NETWORK.items() if not os.environ.get(name)}
    with show_progress(console, f"starting {_ranks_on(counts)}") as output:
        return launch(Launch(_command(folder, parts), counts, {**_threads(counts), **network}, name=NAME), output)


def _run_on_gpu(counts: list[int], parts: Parts, console: Console) -> bool:
    """What GPU ranks can run, on nodes that share the GPU: a virtual cluster."""
    from tilewire.demo import read_results
    from tilewire.demo_progress import show_progress
    from tilewire.demo_rank import ON_GPU
    from tilewire.demo_report import print_summary, verdict_of
    from tilewire.gpu.mps import find_control

    assert parts.gpu is not None
    name, can_share = parts.gpu.name, find_control() is not None
    if not can_share:
        parts.left_out.append(f"left out: {_ranks_on(counts)} on the GPU. {NO_MPS}; one rank runs alone")
        counts = [1]
    environment = {**_threads(counts), **({} if can_share else {"TILEWIRE_DEVICE": "cuda"})}
    with tempfile.TemporaryDirectory(prefix="tilewire-demo-") as folder:
        plan = Launch([*_command(Path(folder), parts), ON_GPU], counts, environment, virtual=can_share, name=NAME)
        with show_progress(console, f"starting {_ranks_on(counts)} on {name}") as output:
            code = launch(plan, output)
        if code:
            fail(_why_ended(code, "a rank on the GPU"), code)
        summary = read_results(Path(folder), sum(counts))
    console.print(f"on {name}, {_ranks_on(counts)}:", highlight=False, markup=False)
    print_summary(summary, console)
    console.print(verdict_of(summary), highlight=False)
    return summary.ok


def _command(folder: Path, parts: Parts) -> list[str]:
    from tilewire.demo_rank import WITHOUT_ENCODER

    return [sys.executable, "-m", RANK_MODULE, str(folder), *([] if parts.encoder else [WITHOUT_ENCODER])]


def _why_ended(code: int, who: str) -> str:
    if code == 128 + signal.SIGINT:
        return "interrupted"
    return f"{who} failed; see its output above"


def _ranks_on(counts: list[int]) -> str:
    ranks, nodes = sum(counts), len(counts)
    return f"{ranks} rank{'s' * (ranks > 1)} on {nodes} node{'s' * (nodes > 1)}"


def _threads(counts: list[int]) -> dict[str, str]:
    """Numpy's: all ranks together use every core once."""
    count = str(max(1, (os.cpu_count() or 1) // sum(counts)))
    return {"OPENBLAS_NUM_THREADS": count, "OMP_NUM_THREADS": count}


def _show(folder: Path, world_size: int, out: Path, parts: Parts, console: Console) -> bool:
    from tilewire.demo import read_results, write_timeline
    from tilewire.demo_report import print_summary, verdict_of

    summary = read_results(folder, world_size)
    print_summary(summary, console)
    for path in write_timeline(summary, out, parts.pictures):
        console.print(f"wrote {path}", highlight=False, markup=False)
    console.print(verdict_of(summary), highlight=False)
    return summary.ok
