"""Events, overlap, Perfetto files and pictures."""

from __future__ import annotations

import errno
import json
import math
import os
import resource
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthetic_trace import make_trace
from tilewire.errors import InvalidArgument
from tilewire.timeline import draw, readable_bytes, readable_time, source_colour, write_picture
from tilewire.trace_events import (
    LEAST_OVERLAP_BYTES,
    Event,
    Recording,
    Run,
    as_events,
    as_run,
    bytes_by_link,
    flights,
    intersection,
    lanes_of,
    overlap,
    ranks_of_unknown_flights,
    telling_overlap,
    union,
)
from tilewire.trace_files import perfetto, read_perfetto, write_perfetto, write_recording

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), max_size=8)


def event(begin: int, end: int, role: str = "compute", link: str = "none", rank: int = 0, wait: int = 0) -> Event:
    return Event(rank, role, 0, "chunk", 0, 0, begin, wait, end, 100, link)


def many_ranks() -> list[Event]:
    return [replace(e, rank=e.rank + 4 * i, source=e.source + 4 * i) for e in make_trace(1) for i in range(5)]


def test_overlap_is_the_hidden_share_of_communication() -> None:
    events = [event(0, 10), event(5, 15, "push", "node"), event(12, 20, "send", "network")]
    # Communication 5..20, compute 0..10: 5 of 15.
    assert overlap(events) == {0: 5 / 15}


def test_parallel_compute_and_parallel_communication_count_once() -> None:
    events = [event(0, 10), event(0, 10), event(5, 15, "push", "node"), event(5, 15, "send", "network")]
    assert overlap(events) == {0: 0.5}


def test_waiting_is_no_communication_and_hides_nothing() -> None:
    events = [event(10, 20, wait=10), event(5, 8, "push", "node"), event(30, 31, "push", "node", wait=20)]
    assert overlap(events) == {0: 0.0}


def test_compute_of_another_rank_hides_nothing() -> None:
    assert overlap([event(0, 10, rank=1), event(0, 10, "push", "node")]) == {0: 0.0}


def test_copies_count_only_when_asked_for() -> None:
    events = [event(0, 10), event(0, 10, "push", "copy")]
    assert overlap(events) == {} and overlap(events, ("copy",)) == {0: 1.0}


def test_no_events_have_no_overlap() -> None:
    assert overlap([]) == {} and bytes_by_link([]) == {"copy": 0, "node": 0, "network": 0}


@given(INTERVALS, INTERVALS)
def test_interval_sets_against_points(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    def points(intervals: list[tuple[int, int]]) -> set[int]:
        return {point for begin, end in intervals for point in range(begin, end)}

    merged = union(left)
    assert points(merged) == points(left)
    assert all(a[1] < b[0] for a, b in pairwise(merged))
    assert points(intersection(merged, union(right))) == points(left) & points(right)


def test_bytes_are_summed_by_link() -> None:
    events = [event(0, 1), event(0, 1, "push", "node"), event(0, 1, "push", "node"), event(0, 1, "send", "network")]
    assert bytes_by_link(events) == {"copy": 0, "node": 200, "network": 100}


def test_an_overlap_of_next_to_nothing_is_not_told() -> None:
    def two(count: int) -> list[Event]:
        sends = [replace(event(0, 10, "send", "network", rank), bytes=count) for rank in (0, 1)]
        return [event(0, 10), *sends, replace(event(0, 10, "push", "copy"), bytes=10 * LEAST_OVERLAP_BYTES)]

    assert telling_overlap(two(LEAST_OVERLAP_BYTES // 2)) == {0: 1.0, 1: 0.0}
    assert telling_overlap(two(LEAST_OVERLAP_BYTES // 2 - 1)) == {}


def test_a_simulated_call_has_the_roles_of_a_run() -> None:
    roles = ("begin", "push", "done", "await", "compute")
    found = as_run([event(0, 1, role) for role in roles])
    assert [one.role for one in found] == ["call", "push", "call", "call", "compute"]


def test_dicts_record_arrays_and_files_give_the_same_events(tmp_path: Path) -> None:
    start = 27_121_680_985_817  # ns since the machine was started: more than a float32 holds
    events = as_events(
        [replace(one, t_begin_ns=one.t_begin_ns + start, t_end_ns=one.t_end_ns + start) for one in make_trace()]
    )
    events = as_events([*events, Event(0, "call", 0, "", -1, -1, start, 50, start + 7, 0, "none")])
    events = as_events([*events, Event(3, "in flight", 1, "a chunk", 12, 3, start, 0, start, 9, "network")])
    rows = [asdict(e) for e in events]
    texts = {"role": "U16", "name": "U16", "link": "U8"}
    types = [(name, texts.get(name, "i8")) for name in rows[0]]
    records = np.array([tuple(row.values()) for row in rows], dtype=types)
    write_perfetto(events, tmp_path / "e.json", dropped=7)
    assert as_events(rows) == as_events(records) == read_perfetto(tmp_path / "e.json").events == events
    assert read_perfetto(tmp_path / "e.json").dropped == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [({"link": "wifi"}, "link is 'wifi'"), ({"t_end_ns": -5}, "before it begins"), ({"t_wait_ns": -1}, "waited -1 ns")],
)
def test_impossible_events_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(event(0, 1), **change)


def test_unknown_and_missing_fields_are_named() -> None:
    row = asdict(event(0, 1))
    row["colour"] = row.pop("work")
    with pytest.raises(ValueError, match=r"\['colour', 'work'\]"):
        as_events([row])


OTHER = {"otherData": {"start_ns": 0, "dropped": 0}}
THREAD = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "push 0"}}
SLICE = {"ph": "X", "name": "chunk 0", "cat": "push", "pid": 0, "tid": 0, "ts": 1, "dur": 2}
LOAD = {"source rank": 0, "bytes": 1, "link": "node"}
ARGUMENTS = {"args": LOAD}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "Expecting value"),
        ("\x00", "Expecting value"),
        ("{}", "it lacks 'otherData'"),
        ("[]", "indices"),
        ('{"traceEvents": []}', "it lacks 'otherData'"),
        (json.dumps({**OTHER, "traceEvents": [1]}), "subscriptable"),
        (json.dumps({**OTHER, "traceEvents": [SLICE]}), r"it lacks \(0, 0\)"),
        (json.dumps({**OTHER, "traceEvents": [THREAD, SLICE]}), "it lacks 'args'"),
        (json.dumps({**OTHER, "traceEvents": [THREAD, {**SLICE, **ARGUMENTS, "ts": math.inf}]}), "infinity"),
        (
            json.dumps({**OTHER, "traceEvents": [THREAD, {**SLICE, "cat": "wait"}, {**SLICE, **ARGUMENTS}]}),
            "chunk 0 of push 0 begins -2000 ns after its wait ends",
        ),
        ("[" * 200_000, "recursion"),
        (json.dumps({"otherData": {"start_ns": "0", "dropped": 0}, "traceEvents": []}), "start_ns is '0', must be"),
        (json.dumps({"otherData": {"start_ns": 0, "dropped": -1}, "traceEvents": []}), "dropped is -1, must be"),
        (json.dumps({**OTHER, "traceEvents": [THREAD, {**SLICE, "args": {**LOAD, "bytes": -1}}]}), "bytes is -1"),
        (json.dumps({**OTHER, "traceEvents": [THREAD, {**SLICE, "args": {**LOAD, "bytes": 10**400}}]}), "bytes is 10"),
        (json.dumps({**OTHER, "traceEvents": [THREAD, {**SLICE, **ARGUMENTS, "dur": 10**400}]}), "dur is 10"),
        (json.dumps({**OTHER, "traceEvents": [THREAD, {**SLICE, **ARGUMENTS, "pid": 0.5}]}), r"it lacks \(0.5, 0\)"),
    ],
)
def test_file_that_is_no_trace_is_named_and_why(content: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"broken\.json is not a trace of Tilewire: .*{why}.*TILEWIRE_TRACE_FILE"):
        read_perfetto(path)


def test_a_trace_that_is_not_there_is_named_with_those_of_the_ranks(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot read .*t\.json: No such file or directory$"):
        read_perfetto(tmp_path / "t.json")
    for rank in range(2):
        write_perfetto(make_trace(), tmp_path / f"t.{rank}.json")
    with pytest.raises(
        OSError, match=r"t\.json: No such file or directory; there are t\.0\.json, t\.1\.json: name those"
    ):
        read_perfetto(tmp_path / "t.json")


def test_a_recording_is_written_by_its_suffix(tmp_path: Path) -> None:
    recording = Recording(as_events(make_trace()), 3)
    for kind, first in (("json", b'{"traceEvents'), ("svg", b"<?xml"), ("png", b"\x89PNG"), ("SVG", b"<?xml")):
        write_recording(recording, str(tmp_path / f"t.{kind}"), "a title")
        assert (tmp_path / f"t.{kind}").read_bytes().startswith(first)
    assert read_perfetto(tmp_path / "t.json") == recording and "INCOMPLETE: 3" in (tmp_path / "t.svg").read_text()
    for name in ("t.gif", "t", "json"):
        with pytest.raises(InvalidArgument, match=rf"path = .*{name}, must end in \.json .*, \.svg or \.png"):
            write_recording(recording, tmp_path / name)
        assert not (tmp_path / name).exists()


def test_perfetto_has_every_event_once_at_its_time() -> None:
    events = make_trace()
    content = json.loads(json.dumps(perfetto(events, "title")))["traceEvents"]
    work = [row for row in content if row["ph"] == "X" and row["name"] != "wait"]
    waits = [row for row in content if row["ph"] == "X" and row["name"] == "wait"]
    assert len(work) == len(events) and len(waits) == sum(e.t_wait_ns > 0 for e in events)
    start = min(e.wait_begin_ns for e in events)
    assert sorted(row["ts"] for row in work) == sorted((e.t_begin_ns - start) / 1000 for e in events)
    assert min(row["ts"] for row in [*work, *waits]) == 0
    names = {(row["pid"], row["tid"]): row["args"]["name"] for row in content if row["name"] == "thread_name"}
    assert sorted(names.values()) == sorted(f"{role} {worker}" for _, role, worker in lanes_of(events))
    assert {row["args"]["name"] for row in content if row["name"] == "process_name"} == {f"rank {r}" for r in range(4)}


def test_lanes_of_one_rank_start_with_compute() -> None:
    events = [event(0, 1, role) for role in ("zebra", "send", "compute", "push")]
    assert [role for _, role, _ in lanes_of(events)] == ["compute", "push", "send", "zebra"]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_picture_is_written_and_the_same_each_time(suffix: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.{suffix}" for number in range(2)]
    for path in paths:
        write_picture(make_trace(), path, "a title")
    first, second = (path.read_bytes() for path in paths)
    assert first == second and len(first) > 10_000


def test_picture_says_title_time_bytes_ranks_and_roles(tmp_path: Path) -> None:
    write_picture(make_trace(), tmp_path / "t.svg", "[512, 2048] x [2048, 8192]")
    text = (tmp_path / "t.svg").read_text()
    for part in ("[512, 2048] x [2048, 8192]", "in all", "MiB by network", "hidden under compute", "rank 3", "forward"):
        assert part in text
    for part in ("data of rank 0", "waiting", "over the network", "compute 1"):
        assert part in text


@pytest.mark.parametrize("events", [[], [event(5, 5)], many_ranks()])
def test_empty_tiny_and_large_traces_can_be_drawn(events: list[Event], tmp_path: Path) -> None:
    write_picture(events, tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 1000


def test_an_incomplete_trace_says_so_in_its_files_and_in_its_picture(tmp_path: Path) -> None:
    assert perfetto([], dropped=17)["otherData"]["dropped"] == 17
    write_picture(make_trace(), tmp_path / "t.svg", dropped=17)
    assert "INCOMPLETE: 17 events had no room" in (tmp_path / "t.svg").read_text()
    write_picture(make_trace(), tmp_path / "t.svg")
    assert "INCOMPLETE" not in (tmp_path / "t.svg").read_text()


def test_every_bar_lies_in_its_lane() -> None:
    figure = draw(as_events(make_trace()))
    bars = figure.axes[0].collections
    assert sum(len(b.get_paths()) for b in bars if b.get_zorder() == 3) == len(make_trace())


def test_colours_of_sources_differ() -> None:
    assert len({source_colour(source) for source in range(-1, 40)}) == 41


@pytest.mark.parametrize("name", ["no/such/folder/t.svg", "taken.svg"])
def test_path_that_cannot_be_written_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "taken.svg").mkdir()
    path = tmp_path / name
    for write in (write_picture, write_perfetto):
        with pytest.raises(OSError, match=f"cannot write {path}"):
            write([event(0, 1)], path)


def test_a_file_that_finds_no_room_is_not_there_and_leaves_what_was(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "t.json"
    for before in (None, "of an earlier run"):
        if before is not None:
            path.write_text(before)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(OSError, match=r"cannot write .*t\.json"):
                write_perfetto(make_trace(1), path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [one.read_text() for one in tmp_path.iterdir()] == ([] if before is None else [before])


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_file_is_written_in_a_folder_that_takes_no_new_one(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(self: Path) -> None:  # whoever is root may write everywhere
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "touch", touch)
    (tmp_path / "t.json").write_text("of an earlier run")
    write_perfetto(make_trace(1), tmp_path / "t.json")
    assert read_perfetto(tmp_path / "t.json").events
    with pytest.raises(OSError, match=r"cannot write .*new\.json"):
        write_perfetto(make_trace(1), tmp_path / "new.json")
    assert [one.name for one in tmp_path.iterdir()] == ["t.json"]


def test_other_picture_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.svg or \.png"):
        write_picture([], tmp_path / "t.gif")


def test_sizes_are_readable() -> None:
    assert [readable_bytes(n) for n in (0, 1023, 1536, 3 << 20, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3 MiB",
        "5120 GiB",
    ]


def test_flight_lasts_from_the_command_to_the_forward_of_the_same_chunk() -> None:
    def event(rank: int, role: str, work: int, begin: int, end: int, link: str) -> Event:
        return Event(rank, role, 0, "chunk", work, 0, begin, 5, end, 64, link)

    sends = [event(0, "send", work, 10 + work, 12 + work, "network") for work in (0, 1, 2)]
    # Chunk 1 arrives first, chunk 2 is forwarded by nobody; a forward before the command is of an earlier call.
    forwards = [event(2, "forward", 0, 90, 95, "node"), event(2, "forward", 1, 40, 45, "node")]
    forwards.append(event(2, "forward", 0, 3, 4, "node"))
    found = flights([*sends, *forwards])
    assert [(e.work, e.t_begin_ns, e.t_end_ns) for e in found] == [(0, 12, 90), (1, 13, 40)]
    assert all((e.rank, e.role, e.link, e.bytes, e.t_wait_ns) == (0, "in flight", "network", 0, 0) for e in found)


def test_flights_to_absent_ranks_are_unknown_though_others_are_seen() -> None:
    def event(rank: int, role: str, begin: int, link: str) -> Event:
        return Event(rank, role, 0, "chunk", 0, 0, begin, 0, begin + 2, 64, link)

    # Rank 0 sends a chunk to two nodes, of which rank 1 is one.
    events = [event(0, "send", 10, "network"), event(0, "send", 12, "network"), event(1, "forward", 40, "node")]
    events += flights(events)
    assert ranks_of_unknown_flights(events, Run("a", 3)) == [0]
    assert ranks_of_unknown_flights(events, Run("a", 2)) == ranks_of_unknown_flights(events, Run()) == []


def test_flights_are_between_the_roles_that_operations_say() -> None:
    def event(rank: int, role: str, begin: int, end: int, link: str) -> Event:
        return Event(rank, role, 0, "chunk", 7, 0, begin, 0, end, 64, link)

    events = [
        event(0, "scatter", 1, 2, "network"),
        event(2, "reduce", 30, 35, "none"),
        event(2, "forward", 20, 25, "node"),
    ]
    assert not flights(events)
    found = flights(events, [("send", "forward"), ("scatter", "reduce")])
    assert [(e.rank, e.t_begin_ns, e.t_end_ns) for e in found] == [(0, 2, 30)]


def test_lanes_and_colours_that_are_there_are_explained_in_the_picture() -> None:
    call = Event(0, "call", 0, "", -1, -1, 0, 0, 1, 0, "none")
    with_call, without = draw([call, *make_trace()]), draw(make_trace())
    for figure, is_there in ((with_call, True), (without, False)):
        below = figure.texts[-1].get_text()
        legend = [text.get_text() for text in figure.legends[0].get_texts()]
        labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert "forward: rows of other nodes" in below and "relay" not in below
        assert ("call: ranks agree on it" in below) == is_there
        assert ("signals, no data" in legend) == is_there == ("call" in labels)
    # Nothing is cut off at the right.
    edge = with_call.texts[-1].get_window_extent().x1
    assert edge < with_call.bbox.x1


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 ns"), (3.2e-8, "32 ns"), (0.1532391, "153.2 ms"), (1.2e-4, "120 µs"), (75, "75 s")]
)
def test_times_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert readable_time(seconds) == text
