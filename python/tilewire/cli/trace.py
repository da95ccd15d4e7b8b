"""`tilewire trace events.json`: makes a Perfetto file and a picture of recorded events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tilewire.cli.console import make_console
from tilewire.cli.failure import fail
from tilewire.cli.numbers import working
from tilewire.errors import Error
from tilewire.trace_events import LINK_NOTE, Event, bytes_by_link, incomplete_note, overlap, read_events, write_perfetto


def register(app: typer.Typer) -> None:
    app.command("trace")(trace)


def trace(
    events_files: Annotated[
        list[Path], typer.Argument(metavar="EVENTS...", help="Recorded events, one file or one a rank.")
    ],
    picture: Annotated[Path | None, typer.Option("--picture", help="Draw the timeline to this .svg or .png.")] = None,
    perfetto: Annotated[Path | None, typer.Option("--perfetto", help="Write JSON for ui.perfetto.dev here.")] = None,
    title: Annotated[str, typer.Option("--title", help="Title of the picture.")] = "",
) -> None:
    """Turn recorded events into a timeline picture and a file for Perfetto, and sum them up."""
    try:
        if picture:
            from tilewire.timeline import check_picture, write_picture

            check_picture(picture)
        recordings = [read_events(path) for path in events_files]
        events = [event for recording in recordings for event in recording.events]
        dropped = sum(recording.dropped for recording in recordings)
        if perfetto:
            write_perfetto(events, perfetto, title, dropped)
        if picture:
            with working(f"drawing {len(events)} events"):
                write_picture(events, picture, title, dropped)
    except (Error, ValueError, OSError) as error:
        fail(str(error))
    console = make_console()
    console.print(summary(events))
    if dropped:
        console.print(incomplete_note(dropped), style="bold red", highlight=False)
    console.print(f"time: from a rank's first wait to its last work. {LINK_NOTE}", highlight=False)


def summary(events: list[Event]) -> Table:
    """A row a rank: events, time, bytes over each kind of link, overlap."""
    from tilewire.timeline import readable_bytes

    table = Table("rank", "events", "time", "copy", "node", "network", "overlap")
    shares = overlap(events)
    for rank in sorted({event.rank for event in events}):
        own = [event for event in events if event.rank == rank]
        time_ns = max(event.t_end_ns for event in own) - min(event.wait_begin_ns for event in own)
        moved = [readable_bytes(count) for count in bytes_by_link(own).values()]
        share = f"{shares[rank]:.0%}" if rank in shares else "-"
        table.add_row(str(rank), str(len(own)), f"{time_ns / 1e6:.3f} ms", *moved, share)
    return table
