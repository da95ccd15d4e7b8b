"""`tilewire plan all_gather_matmul --m ... --nodes ...`: the plan, the predicted time, and why."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tilewire.cli.failure import fail, text_of
from tilewire.cli.numbers import finite, numbers, working
from tilewire.cli.ranks import Nodes, RanksBesideN
from tilewire.launcher import MOST_RANKS, make_layout
from tilewire.op_list import OPS, Op

if TYPE_CHECKING:
    from tilewire.plans import Plan


class _Operations(TyperGroup):
    """A subcommand for each operation of the list. The operation's module is imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [op.name for op in OPS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        for op in OPS:
            if op.name == cmd_name:
                return _command_of(op)
        fail(f"there is no operation {cmd_name}; there are: {', '.join(self.list_commands(ctx))}")


def register(app: typer.Typer) -> None:
    plans = typer.Typer(cls=_Operations, no_args_is_help=True)
    plans.callback()(plan)
    app.add_typer(plans, name="plan", short_help="Say how a call would be done, how long it should take, and why.")


def plan() -> None:
    """Say how a call would be done on some cluster, how long it should take, and why not otherwise."""


@dataclass(frozen=True)
class Question:
    """An operation's plan function, and its shape in the words of the command line."""

    op: str
    plan: Callable[..., Plan]
    shape: dict[str, str]


def _command_of(op: Op) -> Any:
    """The options are one for each number of the operation's shape, and those of `_answer`."""
    module = importlib.import_module(op.module)

    def command(**options: Any) -> None:
        shape = {name: options.pop(name) for name in module.PLAN_SHAPE}
        _answer(Question(op.name, getattr(module, op.plan_name), shape), **options)

    shape = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, _number(name, what)])
        for name, what in module.PLAN_SHAPE.items()
    ]
    machine = list(inspect.signature(_answer, eval_str=True).parameters.values())[1:]
    command.__signature__ = inspect.Signature([*shape, *machine])  # type: ignore[attr-defined]
    one = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    one.command(op.name, help=f"Plan {op.name}.")(command)
    return typer.main.get_command(one)


def _number(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", help=what)


def _rate(name: str, what: str) -> Any:
    """A number of the machine. Its default, 0, stands for the cost model's own."""
    return typer.Option(name, callback=finite, show_default=False, help=f"{what} Default: as on a small CPU machine.")


def _answer(
    question: Question,
    *,
    ranks: RanksBesideN = None,
    nodes: Nodes = None,
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
    from tilewire.errors import Error
    from tilewire.timeline import check_picture, readable_time, write_picture

    try:
        counts = make_layout(ranks, nodes)
        if picture is not None:
            check_picture(picture)
        with working(f"planning and simulating {sum(counts)} ranks"):
            found = question.plan(
                **{name: _number_or_list(f"--{name}", text) for name, text in question.shape.items()},
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
            sizes = " x ".join(f"{name.upper()} {text}" for name, text in question.shape.items())
            widths = "+".join(map(str, counts))
            write_picture(found.timeline, picture, f"{question.op}   simulated   {sizes} {dtype}   nodes {widths}")
    except (Error, ValueError, OSError) as error:
        fail(text_of(error))
    if as_json:
        typer.echo(found.json)
        return
    typer.echo(found.explanation.rstrip())
    typer.echo(f"simulated, from the first rank's start to the last one's end: {readable_time(found.simulated_s)}")


def _number_or_list(name: str, text: str) -> int | list[int]:
    found = numbers(name, text)
    return found if len(found) > 1 else found[0]
