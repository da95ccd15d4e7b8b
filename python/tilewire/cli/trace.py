"""`tilewire trace trace.json`: sums recorded timelines up, and makes one file and a picture of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tilewire.cli.console import make_console
from tilewire.cli.failure import fail, text_of
from tilewire.cli.numbers import working
from tilewire.errors import Error
from tilewire.rank_failures import ranks_text
from tilewire.trace_events import (
    FLIGHT_ROLE,
    LINK_NOTE,
    NO_OVERLAP_NOTE,
    Recording,
    absent_ranks,
    as_events,
    bytes_by_link,
    flights,
    incomplete_note,
    ranks_of_unknown_flights,
    telling_overlap,
)
from tilewire.trace_files import read_run, write_perfetto


def register(app: typer.Typer) -> None:
    app.command("trace", short_help="Sum up recorded timelines, draw them, make one file of them.")(trace)


def trace(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACES...",
            help="What TILEWIRE_TRACE_FILE, timeline.write() or tilewire demo wrote, in .json: one file or one a rank.",
        ),
    ],
    picture: Annotated[Path | None, typer.Option("--picture", help="Draw the timeline to this .svg or .png.")] = None,
    perfetto: Annotated[
        Path | None, typer.Option("--perfetto", help="Write all of it to this one .json, for ui.perfetto.dev.")
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Title of the picture and of the file.")] = "",
) -> None:
    """Sum up recorded timelines, and turn those of several ranks into one picture and one file for Perfetto."""
    try:
        if perfetto and perfetto.suffix != ".json":
            raise ValueError(f"--perfetto {perfetto} must end in .json")
        if picture:
            from tilewire.timeline import check_picture, write_picture

            check_picture(picture)
        all_of_it = with_flights(read_run(files))
        events, dropped = all_of_it.events, all_of_it.dropped
        if perfetto:
            write_perfetto(events, perfetto, title, dropped, all_of_it.run)
        if picture:
            with working(f"drawing {len(events)} events"):
                write_picture(events, picture, title, dropped, all_of_it.run)
    except (Error, ValueError, OSError) as error:
        fail(text_of(error))
    console = make_console()
    for path in filter(None, (perfetto, picture)):
        console.print(f"wrote {path}", highlight=False, markup=False)
    console.print(summary(all_of_it))
    for warning in filter(None, (incomplete_note(dropped), absent_note(all_of_it))):
        console.print(warning, style="bold red", highlight=False)
    notes = ["time: from a rank's first wait to its last work.", LINK_NOTE]
    told = {*telling_overlap(events, all_of_it.run), *ranks_of_unknown_flights(events, all_of_it.run)}
    if len(told) < len(all_of_it.ranks):
        notes.append(NO_OVERLAP_NOTE)
    console.print(" ".join(notes), markup=False, highlight=False)


def with_flights(recording: Recording) -> Recording:
    """And with the flights that only both ends together show."""
    events = recording.events
    if any(event.role == FLIGHT_ROLE for event in events):
        return recording
    return replace(recording, events=as_events([*events, *flights(events)]))


def absent_note(recording: Recording) -> str:
    """A warning where ranks of the run are not there; "" when all are."""
    absent = absent_ranks(recording.events, recording.run)
    if not absent:
        return ""
    note = f"INCOMPLETE: nothing here is of {ranks_text(absent)} of the run's {recording.run.world_size}"
    unknown = ranks_of_unknown_flights(recording.events, recording.run)
    if unknown:
        note += (
            f"; without their files the network time of {ranks_text(unknown)} is not known, and so no overlap: a "
            "chunk's time on the network is seen from both ends"
        )
    return note


def summary(recording: Recording) -> Table:
    """A row a rank: events, time, bytes over each kind of link, overlap."""
    from tilewire.timeline import readable_bytes, readable_time

    table = Table()
    for name in ("rank", "events", "time", "copy", "node", "network", "overlap"):
        table.add_column(name, justify="right", overflow="fold")
    events = recording.events
    shares = telling_overlap(events, recording.run)
    for rank in sorted({event.rank for event in events}):
        own = [event for event in events if event.rank == rank]
        time_ns = max(event.t_end_ns for event in own) - min(event.wait_begin_ns for event in own)
        moved = [readable_bytes(count) for count in bytes_by_link(own).values()]
        share = f"{shares[rank]:.0%}" if rank in shares else "-"
        table.add_row(str(rank), str(len(own)), readable_time(time_ns / 1e9), *moved, share)
    return table
