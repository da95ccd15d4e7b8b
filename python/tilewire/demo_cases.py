"""The products that the demo runs: what a case of any operation is, and how it is run and judged.

An operation's cases are in a module of its own (`Op.cases_module`), whose `real_cases(world_size)` gives some of sizes
that people use, and `odd_cases(world_size)` small ones that break what assumes even shapes. It may have
`gpu_cases(world_size)`, of sizes that CPU ranks would take too long for.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol

from tilewire.checker import Report
from tilewire.op_list import OPS
from tilewire.trace_events import Event


@dataclass(frozen=True)
class CallStats:
    """What one call moved and did on this rank."""

    bytes_by_link: Mapping[str, int]  # copy, node, network: payload this rank's roles moved
    events: Sequence[Event]
    dropped: int = 0  # events that had no room
    seconds: float | None = None  # where the machine knows better than who waits for it


class Machine(Protocol):
    """One rank of whatever runs the operations."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def on_gpu(self) -> bool: ...
    def barrier(self) -> None: ...
    def last_call(self) -> CallStats: ...
    def call(self, op: str, *arguments: Any, **options: Any) -> Any:
        """What `tilewire.<op>` gives for these arguments, `comm` aside."""
        ...


class CaseCall(Protocol):
    """One rank's part of one call: its inputs, and what the call has to give."""

    def run(self, machine: Machine) -> Any: ...
    def check(self, result: Any) -> Report: ...


def of_each_rank(counts: Sequence[int]) -> str:
    """[8, 8] as "8 each", [8, 5] as "8+5"."""
    return "+".join(map(str, counts)) if len({*counts}) != 1 else f"{counts[0]} each"


class Case(Protocol):
    """One or several calls of one operation, with other data each."""

    @property
    def op(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> str:
        """Rows of each rank x K x N of each rank, as N is in a call: the columns of that rank's weight."""
        ...

    @property
    def calls(self) -> int: ...
    @property
    def on_gpu(self) -> bool:
        """Whether GPU ranks can run it, too."""
        ...

    def prepare(self, rank: int, seed: int) -> CaseCall: ...


@dataclass(frozen=True)
class CaseResult:
    """One rank's result of a case."""

    op: str
    name: str
    shape: str
    ok: bool
    message: str  # what the checker says
    compared: int
    time_s: float  # median over the calls
    bytes_by_link: dict[str, int]
    events: list[Event] = field(default_factory=list)
    dropped: int = 0  # events that had no room


def real_cases(world_size: int) -> list[Case]:
    """Those of all operations, in the order of their list."""
    return [case for op in OPS for case in importlib.import_module(op.cases_module).real_cases(world_size)]


def gpu_cases(world_size: int) -> list[Case]:
    """Of GPU ranks alone."""
    found: list[Case] = []
    for op in OPS:
        module = importlib.import_module(op.cases_module)
        found += module.gpu_cases(world_size) if hasattr(module, "gpu_cases") else []
    return found


def odd_cases(world_size: int) -> list[Case]:
    return [case for op in OPS for case in importlib.import_module(op.cases_module).odd_cases(world_size)]


def run_case(case: Case, machine: Machine) -> CaseResult:
    """Runs a case on this rank; every call has other data and every element of every call is checked. Collective."""
    times: list[float] = []
    report = Report("no call was made", 0)
    for seed in range(case.calls):
        call = case.prepare(machine.rank, seed)
        machine.barrier()
        begin = time.perf_counter()
        result = call.run(machine)
        measured = machine.last_call().seconds
        times.append(time.perf_counter() - begin if measured is None else measured)
        report = call.check(result)
        if not report.ok:
            # The other ranks go on: so must this one, or they would wait for it.
            for later in range(seed + 1, case.calls):
                machine.barrier()
                case.prepare(machine.rank, later).run(machine)
            break
    stats = machine.last_call()
    return CaseResult(
        case.op,
        case.name,
        case.shape,
        report.ok,
        str(report),
        report.compared,
        median(times),
        dict(stats.bytes_by_link),
        list(stats.events),
        stats.dropped,
    )
