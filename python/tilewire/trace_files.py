"""Timelines in files: JSON that ui.perfetto.dev shows and `tilewire trace` reads back, or a picture.

There is one JSON form, Chrome's trace events: a process a rank, a thread a worker of a role, a slice a piece of work
and one before it for its wait. The option trace_file, `Trace.write`, `tilewire demo` and `tilewire trace` write it.
"""

from __future__ import annotations

import errno
import json
import os
import reprlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewire.argument_checks import INT64_MOST
from tilewire.errors import InvalidArgument
from tilewire.trace_events import NO_RUN, Event, Recording, Run, as_events, lanes_of

PICTURES = ("svg", "png")
_WAIT = "wait"  # category of slices that are no work


def perfetto(events: Iterable[Event], title: str = "", dropped: int = 0, run: Run = NO_RUN) -> dict[str, Any]:
    """The events as they stand in a file. Slices count from `start_ns`, so that files of several ranks go together."""
    ordered = as_events(list(events))
    start = min((event.wait_begin_ns for event in ordered), default=0)
    lanes = {lane: index for index, lane in enumerate(lanes_of(ordered))}
    out: list[dict[str, Any]] = []
    for rank in sorted({event.rank for event in ordered}):
        out.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        out.append({"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}})
    for (rank, role, worker), index in lanes.items():
        thread = {"ph": "M", "pid": rank, "tid": index}
        out.append({**thread, "name": "thread_name", "args": {"name": f"{role} {worker}"}})
        out.append({**thread, "name": "thread_sort_index", "args": {"sort_index": index}})
    for event in ordered:
        place = {"ph": "X", "pid": event.rank, "tid": lanes[event.rank, event.role, event.worker]}
        out += _slices(event, place, start)
    about = {"title": title, "start_ns": start, "dropped": dropped, "run": run.id, "world_size": run.world_size}
    return {"traceEvents": out, "displayTimeUnit": "ns", "otherData": about}


def _slices(event: Event, place: Mapping[str, Any], start: int) -> Iterator[dict[str, Any]]:
    """The wait, if there was one, and directly behind it the work."""
    name = event.name if event.work < 0 else f"{event.name} {event.work}"
    if event.t_wait_ns:
        wait = {"ts": (event.wait_begin_ns - start) / 1000, "dur": event.t_wait_ns / 1000}
        yield {**place, **wait, "name": _WAIT, "cat": _WAIT, "args": {"for": name}}
    work = {"ts": (event.t_begin_ns - start) / 1000, "dur": (event.t_end_ns - event.t_begin_ns) / 1000}
    args = {"source rank": event.source, "bytes": event.bytes, "link": event.link}
    yield {**place, **work, "name": name, "cat": event.role, "args": args}


def write_perfetto(events: Iterable[Event], path: Path, title: str = "", dropped: int = 0, run: Run = NO_RUN) -> None:
    """`dropped`: how many events are lacking. `run`: whose they are, so that those of others are not taken for them."""
    write_file(path, json.dumps(perfetto(events, title, dropped, run)).encode())


def read_perfetto(path: Path) -> Recording:
    """Reads a file of this form. ValueError names a file that is none and says why, OSError one that cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, f"cannot read {path}: {error.strerror}{_of_ranks(path)}") from error
    except ValueError as error:
        raise _no_trace(path, str(error)) from error
    try:
        content = json.loads(text)
        about = content["otherData"]
        events = _events_of(content["traceEvents"], _count("start_ns", about["start_ns"]))
        run = Run(str(about.get("run", "")), int(about.get("world_size", 0)))
        return Recording(as_events(events), _count("dropped", about["dropped"]), run)
    except KeyError as error:
        raise _no_trace(path, f"it lacks {error}") from error
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise _no_trace(path, str(error)) from error


def read_run(paths: Sequence[Path]) -> Recording:
    """The recordings of several ranks as one. ValueError names two files that do not belong together: a rank is in
    both, or they are of different runs. Raises what `read_perfetto` raises."""
    found = {path: read_perfetto(path) for path in dict.fromkeys(paths)}
    if len(found) < len(paths):
        twice = next(path for at, path in enumerate(paths) if path in paths[:at])
        raise ValueError(f"{twice} is named twice")
    first_path, first = next(iter(found.items()))
    at: dict[int, Path] = {}
    for path, one in found.items():
        if one.run != first.run:
            raise ValueError(
                f"{path} ({_about(one)}) is of another run than {first_path} ({_about(first)}); name the files of one "
                "run (an earlier run with more ranks may have left some behind)"
            )
        for rank in one.ranks:
            if rank in at:
                raise ValueError(f"rank {rank} is there twice, in {at[rank]} and in {path}; name one of them")
            at[rank] = path
    events = [event for one in found.values() for event in one.events]
    return Recording(as_events(events), sum(one.dropped for one in found.values()), first.run)


def _about(one: Recording) -> str:
    ranks = ", ".join(map(str, one.ranks)) or "none"
    of = f" of {one.run.world_size}" if one.run.world_size else ""
    return f"rank{'s' * (len(one.ranks) > 1)} {ranks}{of}, run {one.run.id[:8] or 'unknown'}"


def _no_trace(path: Path, why: str) -> ValueError:
    return ValueError(
        f"{path} is not a trace of Tilewire: {why}; traces are what TILEWIRE_TRACE_FILE, timeline.write() and "
        "tilewire demo write, in .json"
    )


def _of_ranks(path: Path) -> str:
    """A file that is not there may be a file a rank: TILEWIRE_TRACE_FILE=t.json makes t.0.json, t.1.json, ..."""
    found = sorted(other.name for other in path.parent.glob(f"{path.stem}.*{path.suffix}")) if path.stem else []
    return f"; there are {', '.join(found[:8])}: name those" if found else ""


def _events_of(rows: Sequence[Mapping[str, Any]], start: int) -> Iterator[Event]:
    threads = {(row["pid"], row["tid"]): row["args"]["name"] for row in rows if row["name"] == "thread_name"}
    waits: dict[tuple[int, int], tuple[int, int]] = {}  # of each thread: the wait whose work comes next
    for row in rows:
        if row["ph"] != "X":
            continue
        lane = (row["pid"], row["tid"])
        begin = start + round(row["ts"] * 1000)
        length = round(row["dur"] * 1000)
        if row["cat"] == _WAIT:
            waits[lane] = (length, begin + length)
            continue
        waited, ready = waits.pop(lane, (0, begin))
        if ready != begin:
            raise ValueError(f"{row['name']} of {threads[lane]} begins {begin - ready} ns after its wait ends")
        yield _event(row, int(threads[lane].rpartition(" ")[2]), (begin, waited, begin + length))


def _event(row: Mapping[str, Any], worker: int, times: tuple[int, int, int]) -> Event:
    name, _, number = row["name"].rpartition(" ")
    is_numbered = number.isascii() and number.isdigit()
    args = row["args"]
    return Event(
        rank=_count("pid", row["pid"]),
        role=str(row["cat"]),
        worker=_count("the worker", worker),
        name=name if is_numbered else row["name"],
        work=_count("the number of a piece of work", int(number)) if is_numbered else -1,
        source=_count("source rank", args["source rank"], least=-1),
        t_begin_ns=_count("ts", times[0]),
        t_wait_ns=_count("dur", times[1]),
        t_end_ns=_count("dur", times[2]),
        bytes=_count("bytes", args["bytes"]),
        link=str(args["link"]),
    )


def _count(name: str, value: Any, least: int = 0) -> int:
    """The whole number that stands in a file; ValueError where it is none, or one that nothing can have counted."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= INT64_MOST:
        raise ValueError(f"{name} is {reprlib.repr(value)}, must be a whole number from {least} to {INT64_MOST}")
    return value


def write_recording(recording: Recording, path: str | os.PathLike[str], title: str = "") -> None:
    """By the path's suffix: .json for ui.perfetto.dev and `tilewire trace`, .svg and .png a picture.

    `InvalidArgument` names another suffix, `Unavailable` says what pictures need, OSError names a path that cannot be
    written.
    """
    target = Path(path)
    kind = target.suffix.lower().lstrip(".")
    if kind == "json":
        write_perfetto(recording.events, target, title, recording.dropped, recording.run)
    elif kind in PICTURES:
        from tilewire.timeline import write_picture

        write_picture(recording.events, target, title, recording.dropped, recording.run)
    else:
        raise InvalidArgument(
            "a timeline has no such form",
            values=f"path = {target}",
            limit="must end in .json (for ui.perfetto.dev and tilewire trace), .svg or .png",
        )


_NO_NEW_FILE = (errno.EACCES, errno.EPERM, errno.EROFS)


def write_file(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all: OSError names the path and the reason, and what was there stays. One that may
    be written in a folder that takes no new file is written where it is."""
    target = Path(os.path.realpath(path))
    part = target.with_name(f".tilewire-{os.getpid()}-{threading.get_ident()}.part")
    try:
        if target.exists() and not target.is_file():  # a device, a pipe, a folder
            target.write_bytes(content)
            return
        try:
            part.touch()
        except OSError as error:
            if error.errno not in _NO_NEW_FILE or not (target.exists() and os.access(target, os.W_OK)):
                raise
            target.write_bytes(content)
            return
        try:
            part.write_bytes(content)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, f"cannot write {path}: {error.strerror}; name another file or folder") from error
