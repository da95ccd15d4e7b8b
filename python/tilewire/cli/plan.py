"""`tilewire plan all_gather_matmul --m ... --nodes ...`: the plan, the predicted time, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewire.cli.failure import fail

OPS = ("all_gather_matmul",)


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    op: Annotated[str, typer.Argument(help=f"The operation: {', '.join(OPS)}.")],
    m: Annotated[str, typer.Option("--m", help="Rows of all ranks together, or of each rank as in 512,0,37.")],
    k: Annotated[int, typer.Option("--k", help="Columns of a.")],
    n: Annotated[str, typer.Option("--n", help="Columns of a rank's weight, or of each of its weights as in 64,64.")],
    nodes: Annotated[str, typer.Option("--nodes", help="Ranks of each node, as in 8,8.")] = "1",
    rank: Annotated[int, typer.Option("--rank", help="The rank whose plan is shown.")] = 0,
    dtype: Annotated[str, typer.Option("--dtype", help="bf16, fp16 or fp32.")] = "bf16",
    workers: Annotated[int, typer.Option("--workers", help="Compute workers of a rank.")] = 1,
    tflops: Annotated[float, typer.Option("--tflops", help="TFLOP/s of a worker. 0: the cost model's default.")] = 0,
    node_gb: Annotated[float, typer.Option("--node-gb", help="GB/s out of a rank to local peers.")] = 0,
    network_gbit: Annotated[float, typer.Option("--network-gbit", help="Gbit/s out of a rank to other nodes.")] = 0,
    latency_us: Annotated[float, typer.Option("--latency-us", help="Latency between nodes in us.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON, as plan= takes it.")] = False,
    picture: Annotated[Path | None, typer.Option("--picture", help="Draw the simulated call to this .svg.")] = None,
) -> None:
    """Say how a call would be done on some cluster, how long it should take, and why not otherwise."""
    if op not in OPS:
        fail(f"there is no operation {op}; there are: {', '.join(OPS)}")
    from tilewire.errors import Error
    from tilewire.plans import plan_all_gather_matmul

    try:
        found = plan_all_gather_matmul(
            _number_or_list("--m", m),
            k,
            _number_or_list("--n", n),
            nodes=_numbers("--nodes", nodes),
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
            from tilewire.timeline import write_picture

            write_picture(found.timeline, picture, f"{op}   simulated   {m} x {k} x {n} {dtype}   nodes {nodes}")
    except (Error, ValueError, OSError, ImportError) as error:
        fail(str(error))
    if as_json:
        typer.echo(found.json)
        return
    typer.echo(found.explanation.rstrip())
    typer.echo(f"simulated, all ranks: {found.simulated_s * 1e6:.1f} us")


def _numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.replace("+", ",").split(",")]
    except ValueError:
        fail(f"{name} is {text!r}, must be a number or numbers as in 8,8")


def _number_or_list(name: str, text: str) -> int | list[int]:
    numbers = _numbers(name, text)
    return numbers if len(numbers) > 1 else numbers[0]
