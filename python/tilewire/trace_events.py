"""What roles did and when: the events of calls, and what can be computed from them.

An event is one piece of work of one role: it waited, then it worked.

    |<---- t_wait_ns ---->|<------------ work ------------>|
                     t_begin_ns                        t_end_ns
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tilewire.op_list import OPS

# What tables say below their columns.
LINK_NOTE = (
    "copy, node, network: bytes moved within a rank, between the ranks of a node, between nodes. overlap: the share of "
    "the time of communication (node, network) that is hidden under compute."
)
LINKS = ("none", "copy", "node", "network")
# Below this an overlap is the accident of when threads were scheduled.
LEAST_OVERLAP_BYTES = 1 << 20
NO_OVERLAP_NOTE = "overlap -: less than 1 MiB went between ranks, too little for a share that means something."
COMPUTE_ROLE = "compute"
FLIGHT_ROLE = "in flight"  # what `flights` adds
CALL_ROLE = "call"  # what belongs to the call as a whole: its begin record, its end
_CALL_STEPS = ("begin", "done", "await")  # a role each where a call is simulated

Interval = tuple[int, int]


@dataclass(frozen=True)
class Event:
    """One piece of work of one role."""

    rank: int
    role: str  # compute, push, send, relay, forward, ...
    worker: int  # which of the role's workers, from 0
    name: str  # what was done: "tile", "chunk", ...
    work: int  # number of the tile or chunk
    source: int  # the rank whose data it is
    t_begin_ns: int  # the work begins (the wait ends)
    t_wait_ns: int  # how long it waited before
    t_end_ns: int
    bytes: int  # payload moved, 0 for compute
    link: str  # what it moved over: none | copy | node | network

    def __post_init__(self) -> None:
        if self.link not in LINKS:
            raise ValueError(f"link is {self.link!r}, must be one of {', '.join(LINKS)}")
        if self.t_end_ns < self.t_begin_ns or self.t_wait_ns < 0:
            raise ValueError(
                f"{self.role} {self.name} {self.work} of rank {self.rank} ends {self.t_begin_ns - self.t_end_ns} ns "
                f"before it begins, or waited {self.t_wait_ns} ns"
            )

    @property
    def wait_begin_ns(self) -> int:
        return self.t_begin_ns - self.t_wait_ns


@dataclass(frozen=True)
class Run:
    """Whose calls were recorded."""

    id: str = ""  # of the communicator; "" where it is not known
    world_size: int = 0  # of it; 0 where it is not known


NO_RUN = Run()


@dataclass(frozen=True)
class Recording:
    """What was recorded, and how much was not."""

    events: list[Event]
    dropped: int = 0  # events that had no room
    run: Run = NO_RUN

    @property
    def ranks(self) -> list[int]:
        """Of which there are events."""
        return ranks_of(self.events)


def ranks_of(events: Iterable[Event]) -> list[int]:
    return sorted({event.rank for event in events})


def absent_ranks(events: Iterable[Event], run: Run) -> list[int]:
    """The ranks of the run of which there are no events."""
    return sorted(set(range(run.world_size)).difference(ranks_of(events)))


def incomplete_note(dropped: int) -> str:
    """A warning for whoever looks at events of which some are lacking; "" when none are."""
    return f"INCOMPLETE: {dropped} events had no room (option trace_events)" if dropped else ""


def as_events(rows: Any) -> list[Event]:
    """Events from dicts, from a numpy record array with the fields of `Event`, or from events; sorted by time."""
    names = [field.name for field in fields(Event)]
    if hasattr(rows, "dtype") and getattr(rows.dtype, "names", None):
        rows = [dict(zip(rows.dtype.names, row.tolist(), strict=True)) for row in rows]
    events = [row if isinstance(row, Event) else _from_mapping(row, names) for row in rows]
    return sorted(events, key=lambda event: (event.wait_begin_ns, event.rank, event.role, event.worker))


def _from_mapping(row: Mapping[str, Any], names: Sequence[str]) -> Event:
    wrong = set(row) ^ set(names)
    if wrong:
        raise ValueError(f"an event has or lacks the fields {sorted(wrong)}, must have {names}")
    values: dict[str, Any] = {
        name: str(row[name]) if name in ("role", "name", "link") else int(row[name]) for name in names
    }
    return Event(**values)


# Roles in the order of the data's way; others follow by name.
_ROLE_ORDER = {
    role: place for place, role in enumerate((COMPUTE_ROLE, "push", "send", FLIGHT_ROLE, "relay", "forward", CALL_ROLE))
}


def lanes_of(events: Iterable[Event]) -> list[tuple[int, str, int]]:
    """All (rank, role, worker), by rank, then compute first."""
    lanes = {(event.rank, event.role, event.worker) for event in events}
    return sorted(lanes, key=lambda lane: (lane[0], _ROLE_ORDER.get(lane[1], len(_ROLE_ORDER)), lane[1], lane[2]))


def as_run(simulated: Iterable[Event]) -> list[Event]:
    """A simulated call's events with the roles that a run has: one role does all the steps of the call as a whole."""
    return [replace(event, role=CALL_ROLE) if event.role in _CALL_STEPS else event for event in simulated]


def flights(events: Iterable[Event], ends: Iterable[tuple[str, str]] | None = None) -> list[Event]:
    """The chunks' time on the network, seen from both ends: an event of role "in flight" for each chunk that a rank
    gave to its proxy (an event of a sending role ends) and a rank of another node took (one of the role at the other
    end, of that chunk, begins).

    ends: pairs of such roles; None takes those that the list of operations says.
    Needs the events of all ranks, on one clock. The events belong to the sender's band and count no bytes again. Chunks
    that no rank takes (as forwards in a node of one rank) have none.
    """
    pairs = _network_ends() if ends is None else set(ends)
    senders = {sender for sender, _ in pairs}
    taken: dict[tuple[str, int, int], list[Event]] = {}
    found: list[Event] = []
    ordered = list(events)
    for event in ordered:
        for sender, taker in pairs:
            if event.role == taker:
                taken.setdefault((sender, event.source, event.work), []).append(event)
    for times in taken.values():
        times.sort(key=lambda event: event.t_begin_ns, reverse=True)
    for sent in sorted((e for e in ordered if e.role in senders and e.link == "network"), key=lambda e: e.t_end_ns):
        candidates = taken.get((sent.role, sent.source, sent.work), [])
        while candidates:
            at = candidates.pop().t_begin_ns
            if at >= sent.t_end_ns:
                found.append(
                    replace(sent, role=FLIGHT_ROLE, t_wait_ns=0, t_begin_ns=sent.t_end_ns, t_end_ns=at, bytes=0)
                )
                break
    return found


def ranks_of_unknown_flights(events: Iterable[Event], run: Run) -> list[int]:
    """The ranks whose network time is not known, as some of their chunks went to ranks of which there is nothing: one
    end of a flight says nothing of its length."""
    ordered = list(events)
    if not absent_ranks(ordered, run):
        return []
    senders = {sender for sender, _ in _network_ends()}
    sent = Counter(event.rank for event in ordered if event.role in senders and event.link == "network")
    seen = Counter(event.rank for event in ordered if event.role == FLIGHT_ROLE)
    return sorted(rank for rank, count in sent.items() if seen[rank] < count)


def _network_ends() -> set[tuple[str, str]]:
    return {op.network_ends for op in OPS if op.network_ends}


def overlap(events: Iterable[Event], links: Sequence[str] = ("node", "network")) -> dict[int, float]:
    """The share of each rank's communication time that is hidden under its compute, from 0 to 1.

    *Communication time* of a rank is the length of the union of the work (not the wait) intervals of its events whose
    link is in `links`: time in which at least one of them was under way, counted once. *Hidden* is the part of that
    time in which at least one event of the compute role of the same rank was at work. The share is hidden divided by
    communication time. A rank without communication time has no share and no entry. Copies within a rank (link
    "copy") are no communication unless `links` says so.
    """
    ordered = list(events)
    shares: dict[int, float] = {}
    for rank in sorted({event.rank for event in ordered}):
        own = [event for event in ordered if event.rank == rank]
        communication = union([(event.t_begin_ns, event.t_end_ns) for event in own if event.link in links])
        compute = union([(event.t_begin_ns, event.t_end_ns) for event in own if event.role == COMPUTE_ROLE])
        total = sum(end - begin for begin, end in communication)
        if total:
            shares[rank] = sum(end - begin for begin, end in intersection(communication, compute)) / total
    return shares


def telling_overlap(events: Iterable[Event], run: Run = NO_RUN) -> dict[int, float]:
    """What tables show: `overlap` of the ranks whose network time is known, or nothing where all ranks together sent
    less than LEAST_OVERLAP_BYTES to others."""
    ordered = list(events)
    moved = bytes_by_link(ordered)
    if moved["node"] + moved["network"] < LEAST_OVERLAP_BYTES:
        return {}
    unknown = ranks_of_unknown_flights(ordered, run)
    return {rank: share for rank, share in overlap(ordered).items() if rank not in unknown}


def bytes_by_link(events: Iterable[Event]) -> dict[str, int]:
    """Payload bytes over each kind of link, all ranks together."""
    totals = dict.fromkeys(LINKS[1:], 0)
    for event in events:
        if event.link != "none":
            totals[event.link] += event.bytes
    return totals


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points in time as disjoint intervals in order; empty ones vanish."""
    merged: list[Interval] = []
    for begin, end in sorted(interval for interval in intervals if interval[0] < interval[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def intersection(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """What two lists as `union` gives them have in common."""
    common: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        begin, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if begin < end:
            common.append((begin, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return common
