"""Plans: how a call will be done, why, and how long it should take. Pure prediction: needs no communicator.

What all operations share; each has its own `plan_...` function beside the call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from tilewire.argument_checks import INT32_MOST, count, counts, is_single, number, switch, utf8
from tilewire.errors import InvalidArgument
from tilewire.trace_events import Event, as_events, as_run

if TYPE_CHECKING:
    from tilewire import _core


@dataclass(frozen=True)
class Plan:
    """A plan and what is expected of it. Pass it as `plan=`; `str()` gives the explanation.

    What may stand in a plan's JSON, with the meaning and range of each key, is said by the operation's `plan_...`
    function. All have "op", the name of the operation; numbers of the schedule that must be equal on all ranks
    (chunk_rows); and numbers that are a rank's own (tiles, workers). A plan names every key: change one by
    `{**plan.as_dict(), "chunk_rows": 64}`.
    """

    json: str  # the plan itself, as passed to a call
    explanation: str  # the plan, its predicted time, why the other candidates lost, and the machine taken
    predicted_s: float  # by the cost model
    compute_s: float  # compute alone
    communication_s: float  # communication alone
    simulated_s: float  # by the discrete-event simulation of the same roles
    timeline: list[Event] = field(repr=False)  # of all ranks, from the simulation; empty unless asked for

    def as_dict(self) -> dict[str, Any]:
        """The plan's numbers by name."""
        numbers: dict[str, Any] = json.loads(self.json)
        return numbers

    def __str__(self) -> str:
        return self.explanation


AnyPlan: TypeAlias = "Plan | Mapping[str, Any] | str | None"


class Machine(TypedDict, total=False):
    """The machine that a plan is asked for. A number that is absent is that of the named machine; `Plan.explanation`
    says which were taken. Rates are from 1e-9 to 1e9, times from 0 to 1e9."""

    nodes: Sequence[int]  # ranks of each node, [4, 4]; one rank unless given
    rank: int  # whose plan it is
    machine: str  # name of one of `machines()`; "cpu" unless given
    workers: int  # compute workers of a rank, 1 or more
    worker_tflops: float  # TFLOP/s of a worker
    copy_gb_per_s: float  # GB/s of a copy within a rank
    node_gb_per_s: float  # GB/s out of a rank to its local peers
    node_latency_us: float  # of a signal between ranks of a node
    network_gbit_per_s: float  # Gbit/s out of a rank to other nodes
    network_latency_us: float  # from one node to another
    step_us: float  # of a role, for each piece of its work: its wait, its signal
    command_us: float  # of a rank's proxy, for each command and each arrival
    timeline: bool  # simulate all ranks' roles for `Plan.timeline`, too


@dataclass(frozen=True)
class NamedMachine:
    """A machine that plans can be asked for by name."""

    name: str
    purpose: str
    numbers: Mapping[str, float]  # by their names in `Machine`; workers are one of them


_MOST_RANKS = 2**20


def machines() -> list[NamedMachine]:
    """All that have a name; the first one is taken unless another is asked for."""
    from tilewire import _core

    return [
        NamedMachine(name, purpose, {"workers": workers, **numbers})
        for name, purpose, workers, numbers in _core.machines()
    ]


def plan_text(plan: AnyPlan) -> str:
    """The JSON text of whatever `plan=` takes; "" for None."""
    if plan is None:
        return ""
    if isinstance(plan, Plan):
        return utf8("plan", plan.json)
    if isinstance(plan, str):
        return utf8("plan", plan)
    if isinstance(plan, Mapping):
        try:
            return json.dumps({key: _plain(value) for key, value in plan.items()})
        except (TypeError, ValueError) as error:
            raise InvalidArgument("plan cannot be written as JSON", values=str(error)) from error
    raise InvalidArgument(
        "plan is no plan", values=f"plan is a {type(plan).__name__}", limit="a Plan, a dict, JSON text or None"
    )


def describe_machine(query: _core.MachineQuery, machine: Machine) -> int:
    """Fills in the machine; gives its number of ranks."""
    given: dict[str, Any] = {**machine}
    nodes = counts("nodes", given.pop("nodes", (1,)), most=INT32_MOST)
    if sum(nodes) > _MOST_RANKS:
        raise InvalidArgument(
            "there are too many ranks", values=f"nodes are {sum(nodes)} ranks", limit=f"at most {_MOST_RANKS}"
        )
    query.ranks_per_node = nodes
    for name in ("rank", "workers"):
        if name in given:
            setattr(query, name, count(name, given.pop(name), most=INT32_MOST))
    query.machine = str(given.pop("machine", query.machine))
    for name in machines()[0].numbers:
        if name in given:
            setattr(query, name, number(name, given.pop(name)))
    query.wants_timeline = switch("timeline", given.pop("timeline", False))
    if given:
        raise InvalidArgument(
            "a machine has no such number",
            values=", ".join(given),
            limit=f"there are: {', '.join(Machine.__annotations__)}",
        )
    return sum(nodes)


def shared_rows(name: str, rows: int | Sequence[int], ranks: int) -> list[int]:
    """Rows of each rank: those of a list, or one number shared out over the ranks as evenly as it goes."""
    if is_single(rows):
        total = count(name, rows)
        if total < 0:
            raise InvalidArgument(f"{name} is negative", values=f"{name} = {total}", limit="must be 0 or more")
        return [total // ranks + (rank < total % ranks) for rank in range(ranks)] if ranks > 0 else []
    each = counts(name, rows)
    if len(each) != ranks:
        raise InvalidArgument(
            f"{name} has the wrong length",
            values=f"{name} has {len(each)} counts",
            limit=f"must have {ranks}, one for each rank",
        )
    return each


def answered(answer: _core.PlanAnswer) -> Plan:
    """The core's answer as users get it."""
    return Plan(
        answer.plan_json,
        answer.explanation,
        answer.predicted_s,
        answer.compute_s,
        answer.communication_s,
        answer.simulated_s,
        as_run(as_events(answer.timeline)),
    )


def _plain(value: Any) -> Any:
    """A number of numpy as one that JSON has."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value
