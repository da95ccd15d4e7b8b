"""`tilewire plan all_gather_matmul --m ... --nodes ...`: the plan, the predicted time, and why."""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tilewire.cli.console import make_console
from tilewire.cli.failure import fail, text_of
from tilewire.cli.numbers import above_zero, finite, numbers, working
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
    """An operation's plan function, its shape in the words of the command line, and what is given of the machine."""

    op: str
    plan: Callable[..., Plan]
    shape: dict[str, str]
    words: dict[str, Any]  # what else of a call there is to say
    machine: dict[str, Any]


# The numbers of a machine, by their names in `tilewire.plans.Machine`: option, meaning, what it may be.
_MACHINE = {
    "worker_tflops": ("--tflops", "TFLOP/s of one worker.", above_zero),
    "copy_gb_per_s": ("--copy-gb", "GB/s of a copy within a rank.", above_zero),
    "node_gb_per_s": ("--node-gb", "GB/s out of a rank to the other ranks of its node.", above_zero),
    "node_latency_us": ("--node-latency-us", "Microseconds of a signal within a node.", finite),
    "network_gbit_per_s": ("--network-gbit", "Gbit/s out of a rank to other nodes.", above_zero),
    "network_latency_us": ("--latency-us", "Microseconds from one node to another.", finite),
    "step_us": ("--step-us", "Microseconds of each step of a role, beside its work.", finite),
    "command_us": ("--command-us", "Microseconds of a proxy for each command and arrival.", finite),
}


def _command_of(op: Op) -> Any:
    """The options are one for each number of the operation's shape and for what else it may be told (PLAN_WORDS, where
    there are any: by name the default and what it is), those of `_answer`, and one for each number of a machine."""
    module = importlib.import_module(op.module)

    def command(**options: Any) -> None:
        shape = {name: options.pop(name) for name in module.PLAN_SHAPE}
        words = {name: options.pop(name) for name in more}
        given = {name: options.pop(name) for name in ("machine", "workers", *_MACHINE)}
        machine = {name: value for name, value in given.items() if value is not None}
        _answer(Question(op.name, getattr(module, op.plan_name), shape, words, machine), **options)

    more: dict[str, tuple[Any, str]] = getattr(module, "PLAN_WORDS", {})
    shape = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, _number(name, what)])
        for name, what in module.PLAN_SHAPE.items()
    ]
    shape += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[type(default), typer.Option(f"--{name}", help=what)],
        )
        for name, (default, what) in more.items()
    ]
    others = list(inspect.signature(_answer, eval_str=True).parameters.values())[1:]
    command.__signature__ = inspect.Signature([*shape, *_machine_parameters(), *others])  # type: ignore[attr-defined]
    one = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    one.command(op.name, help=f"Plan {op.name}.")(command)
    return typer.main.get_command(one)


def _number(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", help=what)


def _machine_parameters() -> list[inspect.Parameter]:
    """The machine by its name, and an option for each of its numbers, whose help has what each named machine takes."""
    from tilewire.plans import machines

    known = machines()
    about = "; ".join(f"{one.name}: {one.purpose}" for one in known)
    one_of = typer.Option("--machine", metavar="|".join(one.name for one in known), help=f"{about}.")

    def option(key: str, name: str, what: str, **more: Any) -> Any:
        defaults = ", ".join(f"{one.numbers[key]:.6g} ({one.name})" for one in known)
        return typer.Option(name, show_default=False, help=f"{what} Default: {defaults}.", **more)

    workers = option("workers", "--workers", "Compute workers of a rank.", min=1, max=4096)
    kinds: dict[str, Any] = {"machine": Annotated[str, one_of], "workers": Annotated[int | None, workers]}
    for key, (name, what, check) in _MACHINE.items():
        kinds[key] = Annotated[float | None, option(key, name, what, callback=check)]
    defaults = {"machine": known[0].name}
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=defaults.get(name))
        for name, kind in kinds.items()
    ]


def _answer(
    question: Question,
    *,
    ranks: RanksBesideN = None,
    nodes: Nodes = None,
    rank: Annotated[int, typer.Option("--rank", max=MOST_RANKS, help="The rank whose plan is shown.")] = 0,
    dtype: Annotated[str, typer.Option("--dtype", help="bf16, fp16 or fp32.")] = "bf16",
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON, as plan= takes it.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say below it what the words of the plan mean.")] = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw the simulated call to this .svg or .png.")
    ] = None,
) -> None:
    from tilewire.errors import Error
    from tilewire.plan_words import explained
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
                **question.words,
                **question.machine,
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
    simulated = f"simulated, from the first rank's start to the last one's end: {readable_time(found.simulated_s)}"
    text = found.explanation.rstrip() + "\n" + simulated
    typer.echo(folded(f"{text}\n{explained(text)}" if explain else text, make_console().width))


def folded(text: str, width: int) -> str:
    """The lines cut where they are longer than the page, and what follows set in below its line."""
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        wrapper = textwrap.TextWrapper(
            width, subsequent_indent=indent + "    ", break_long_words=False, break_on_hyphens=False
        )
        lines += wrapper.wrap(line) or [""]
    return "\n".join(lines)


def _number_or_list(name: str, text: str) -> int | list[int]:
    found = numbers(name, text)
    return found if len(found) > 1 else found[0]
