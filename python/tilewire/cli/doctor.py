"""`tilewire doctor`: what is there, what is missing, what each costs you."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tilewire.cli.console import make_console
from tilewire.cli.failure import fail
from tilewire.cli.numbers import above_zero, working
from tilewire.doctor import MISSING, OFF, OK, Check, is_healthy, run_checks
from tilewire.self_test import LIMIT_S

_MARKS = {OK: "[green]ok[/green]", MISSING: "[bold red]missing[/bold red]", OFF: "[yellow]off[/yellow]"}


def register(app: typer.Typer) -> None:
    app.command("doctor", short_help="Say what is here, what is missing and what each lack costs.")(doctor)


_NET = "Of --net"


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    net: Annotated[
        bool, typer.Option("--net", help="Test the network between hosts instead: run it on each, as a rank of a job.")
    ] = False,
    rank: Annotated[
        int | None, typer.Option(help="This process's number, unless a launcher says it.", rich_help_panel=_NET)
    ] = None,
    world_size: Annotated[int | None, typer.Option(help="How many processes there are.", rich_help_panel=_NET)] = None,
    rendezvous: Annotated[
        str | None, typer.Option(help="host:port of rank 0, where they meet.", rich_help_panel=_NET)
    ] = None,
    seconds: Annotated[
        float, typer.Option(callback=above_zero, help="Length of each measure of bandwidth.", rich_help_panel=_NET)
    ] = 1.0,
    messages: Annotated[
        int, typer.Option(min=1, max=2**40, help="Messages checked from each rank to each other.", rich_help_panel=_NET)
    ] = 1_000_000,
    report: Annotated[
        Path | None, typer.Option(help="File for the whole report as JSON, to be sent on.", rich_help_panel=_NET)
    ] = None,
) -> None:
    """Say what this machine has, what it lacks, what each lack costs you and what to do. Ends with 1 if something
    needed is missing. With --net, measure and check every NIC between every two ranks of a job."""
    if net:
        where = {"rank": rank, "world_size": world_size, "rendezvous": rendezvous}
        settings = {name: str(value) for name, value in where.items() if value is not None}
        raise typer.Exit(test_network(settings, seconds, messages, report, as_json))
    with working(f"looking around, and trying each transport for at most {2 * LIMIT_S} s"):
        checks = run_checks()
    healthy = is_healthy(checks)
    if as_json:
        typer.echo(json.dumps({"healthy": healthy, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        console = make_console()
        console.print(table_of(checks))
        console.print(verdict_of(checks), highlight=False)
    raise typer.Exit(0 if healthy else 1)


def test_network(settings: dict[str, str], seconds: float, messages: int, report: Path | None, as_json: bool) -> int:
    """One rank's part of the link test; rank 0 speaks. 0: all messages were whole."""
    from tilewire import _core, link_report
    from tilewire.errors import Error

    try:
        own_rank, text, unwritten = _core.link_test(settings, seconds, messages, str(report or ""))
    except Error as error:
        fail(str(error))
    content = json.loads(text)
    is_well, verdict = link_report.verdict_of(content)
    if own_rank == 0:
        if as_json or unwritten:
            typer.echo(text)
        else:
            console = make_console()
            console.print(links_table(content))
            console.print(verdict, highlight=False)
    if unwritten:
        fail(f"the report could not be written: {unwritten}")
    return 0 if is_well else 1


def links_table(content: dict[str, Any]) -> Table:
    from tilewire import link_report

    hosts = ", ".join(rank["host"] for rank in content["ranks"])
    table = Table(title=f"{content['transport']}, {content['memory']} memory: {hosts}")
    for name in ("from", "to", "NICs", "latency us (p99)", "Gbit/s, 64 KiB", "1 MiB", "of line", "checked", ""):
        table.add_column(name, overflow="fold")
    for link in link_report.links_of(content):
        table.add_row(
            str(link.sender),
            str(link.receiver),
            link.nics,
            f"{link.latency_us:.1f} ({link.latency_p99_us:.1f})",
            f"{link.gbps_small:.2f}",
            f"{link.gbps_large:.2f}",
            "" if link.of_line is None else f"{100 * link.of_line:.0f} %",
            str(link.messages or ""),
            link.problem,
        )
    return table


def verdict_of(checks: list[Check]) -> str:
    missing = [check.name for check in checks if check.state == MISSING]
    off = sum(check.state == OFF for check in checks)
    found = f"Missing, and needed: {', '.join(missing)}." if missing else "Everything that is needed is here."
    return f"{found} Off, and optional: {off} of {len(checks)}; what that costs is said with each."


def table_of(checks: list[Check]) -> Table:
    from rich.markup import escape

    table = Table()
    for name in ("check", "state", "what was found, what its lack costs, and what to do"):
        table.add_column(name, overflow="fold")
    for check in checks:
        lines = [check.detail]
        if check.state != OK:
            lines += [f"costs: {check.cost}", f"do: {check.advice}"]
        table.add_row(escape(check.name), _MARKS[check.state], escape("\n".join(lines)))
    return table
