"""`tilewire doctor`: what is there, what is missing, what each costs you."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from tilewire.cli.console import make_console
from tilewire.cli.numbers import working
from tilewire.doctor import MISSING, OFF, OK, Check, is_healthy, run_checks
from tilewire.self_test import LIMIT_S

_MARKS = {OK: "[green]ok[/green]", MISSING: "[bold red]missing[/bold red]", OFF: "[yellow]off[/yellow]"}


def register(app: typer.Typer) -> None:
    app.command("doctor", short_help="Say what is here, what is missing and what each lack costs.")(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say what this machine has, what it lacks, what each lack costs you and what to do. Ends with 1 if something
    needed is missing."""
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
