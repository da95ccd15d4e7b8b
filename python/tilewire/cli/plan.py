"""`tilewire plan all_gather_matmul --m ... --nodes ...`: the plan, the predicted time, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tilewire.cli.failure import fail
from tilewire.cli.numbers import MOST_RANKS, MOST_SIZE, finite, numbers, working

OPS = ("all_gather_matmul",)


def _rate(name: str, what: str) -> Any:
    """A number of the machine. Its default, 0, stands for the cost model's own."""
    return typer.Option(name, callback=finite, show_default=False, help=f"{what} Default: as on a small CPU machine.")


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    op: Annotated[str, typer.Argument(help=f"The operation: {', '.join(OPS)}.")],
    m: Annotated[str, typer.Option("--m", help="Rows of all ranks together, or of each rank as in 512,0,37.")],
    k: Annotated[int, typer.Option("--k", max=MOST_SIZE, help="Columns of a.")],
    n: Annotated[str, typer.Option("--n", help="Columns of a rank's weight, or of each of its weights as in 64,64.")],
    nodes: Annotated[str, typer.Option("--nodes", help="Ranks of each node, as in 8,8.")] = "1",
    rank: Annotated[int, typer.Option("--rank", max=MOST_RANKS, help="The rank whose plan is shown.")] = 0,
    dtype: Annotated[str, typer.Option("--dtype", help="bf16, fp16 or fp32.")] = "bf16",
    workers: Annotated[int, typer.Option("--workers", min=1, max=4096, help="Compute workers of a rank.")] = 1,
    tflops: Annotated[float, _rate("--tflops", "TFLOP/s of one worker.")] = 0,
    node_gb: Annotated[float, _rate("--node-gb", "GB/s out of a rank to the other ranks of its node.")] = 0,
    network_gbit: Annotated[float, _rate("--network-gbit", "Gbit/s out of a rank to other nodes.")] = 0,
    latency_us: Annotated[float, _rate("--latency-us", "Microseconds from one node to another.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON, as plan= takes it.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw the simulated call to this .svg or .png.")
    ] = None,
) -> None:
    """Say how a call would be done on some cluster, how long it should take, and why not otherwise."""
    if op not in OPS:
        fail(f"there is no operation {op}; there are: {', '.join(OPS)}")
    from tilewire.errors import Error
    from tilewire.plans import plan_all_gather_matmul
    from tilewire.timeline import check_picture, readable_time, write_picture

    counts = numbers("--nodes", nodes)
    if sum(counts) > MOST_RANKS:
        fail(f"--nodes {nodes} are {sum(counts)} ranks, must be at most {MOST_RANKS}")
    try:
        if picture is not None:
            check_picture(picture)
        with working(f"planning and simulating {sum(counts)} ranks"):
            found = plan_all_gather_matmul(
                _number_or_list("--m", m),
                k,
                _number_or_list("--n", n),
                nodes=counts,
                rank=rank,
                dtype=dtype,
                workers=workers,
                worker_tflops=tflops,
                node_gb_per_s=node_gb,
                network_gbit_per_s=network_gbit,
                network_latency_us=latency_us,
                timeline=picture is not None,
            )
        if picture is not None:
            write_picture(found.timeline, picture, f"{op}   simulated   {m} x {k} x {n} {dtype}   nodes {nodes}")
    except (Error, ValueError, OSError) as error:
        fail(str(error))
    if as_json:
        typer.echo(found.json)
        return
    typer.echo(found.explanation.rstrip())
    typer.echo(f"simulated, from the first rank's start to the last one's end: {readable_time(found.simulated_s)}")


def _number_or_list(name: str, text: str) -> int | list[int]:
    found = numbers(name, text)
    return found if len(found) > 1 else found[0]
