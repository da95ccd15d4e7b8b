"""Plans: how a call will be done, why, and how long it should take. Pure prediction: needs no communicator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilewire import _core
from tilewire.errors import InvalidArgument
from tilewire.trace_events import Event, as_events


@dataclass(frozen=True)
class Plan:
    """A plan and what is expected of it. Pass it as `plan=`; `str()` gives the explanation."""

    json: str  # the plan itself, as passed to a call
    explanation: str  # the plan, its predicted time, and why the other candidates lost
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


def plan_text(plan: AnyPlan) -> str:
    """The JSON text of whatever `plan=` takes; "" for None."""
    if plan is None:
        return ""
    if isinstance(plan, Plan):
        return plan.json
    if isinstance(plan, str):
        return plan
    if isinstance(plan, Mapping):
        try:
            return json.dumps(dict(plan))
        except TypeError as error:
            raise InvalidArgument("plan cannot be written as JSON", values=str(error)) from error
    raise InvalidArgument(
        "plan is no plan", values=f"plan is a {type(plan).__name__}", limit="a Plan, a dict, JSON text or None"
    )


def plan_all_gather_matmul(
    m: int | Sequence[int],
    k: int,
    n: int | Sequence[int],
    *,
    nodes: Sequence[int] = (1,),
    rank: int = 0,
    dtype: Any = "bf16",
    out_dtype: Any = None,
    return_gathered: bool = False,
    plan: AnyPlan = None,
    workers: int = 1,
    worker_tflops: float = 0,
    node_gb_per_s: float = 0,
    network_gbit_per_s: float = 0,
    network_latency_us: float = 0,
    timeline: bool = False,
) -> Plan:
    """What `all_gather_matmul` would do on some cluster, worked out without one.

    m: rows of each rank; one number is shared out over the ranks as evenly as they go. k: columns of a.
    n: columns of this rank's weight, or of each weight of a list. nodes: ranks of each node, [4, 4].
    worker_tflops, node_gb_per_s (GB/s out of a rank to its local peers), network_gbit_per_s (Gbit/s out of a rank to
    other nodes) and network_latency_us describe the machine; 0 takes the cost model's default.
    plan: ask about this plan instead of the planner's choice. timeline: simulate all ranks' roles too.

    Raises `InvalidArgument` naming the number that cannot be, `ResourceError` when no plan fits the arena.
    """
    from tilewire.arrays import dtype_name, numpy_dtype

    query, shape = _core.AllGatherGemmQuery(), _core.AllGatherGemmShape()
    ranks = sum(nodes)
    shape.rows = _share(m, ranks) if isinstance(m, int) else list(m)
    shape.k = k
    shape.cols = [n] if isinstance(n, int) else list(n)
    shape.dtype = dtype_name(numpy_dtype(dtype, "dtype"))
    shape.out_dtype = shape.dtype if out_dtype is None else dtype_name(numpy_dtype(out_dtype, "out_dtype"))
    shape.return_gathered = return_gathered
    shape.plan_json = plan_text(plan)
    if len(shape.rows) != ranks:
        raise InvalidArgument(
            "m has the wrong length", values=f"m has {len(shape.rows)} counts", limit=f"one for each of {ranks} ranks"
        )
    query.shape, query.ranks_per_node, query.rank, query.workers = shape, list(nodes), rank, workers
    query.worker_tflops, query.node_gb_per_s = worker_tflops, node_gb_per_s
    query.network_gbit_per_s, query.network_latency_us = network_gbit_per_s, network_latency_us
    query.wants_timeline = timeline
    answer = _core.plan_all_gather_matmul(query)
    return Plan(
        answer.plan_json,
        answer.explanation,
        answer.predicted_s,
        answer.compute_s,
        answer.communication_s,
        answer.simulated_s,
        as_events(answer.timeline),
    )


def _share(rows: int, ranks: int) -> list[int]:
    return [rows // ranks + (rank < rows % ranks) for rank in range(ranks)] if ranks else []
