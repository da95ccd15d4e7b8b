"""The demo's cases of `moe_dispatch_matmul`: a real layer and odd routings, all of which are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tilewire.arrays import dtype_name
from tilewire.checker import Report, compare
from tilewire.coded_data import coded_shard, coded_weight
from tilewire.demo_cases import Machine, of_each_rank
from tilewire.linear import Array

# The first product of a layer of experts of 2048 columns, of which a token takes 6 of 64 (DeepSeek-V2-Lite).
REAL_HIDDEN, REAL_INTERMEDIATE, REAL_EXPERTS, REAL_TOP_K = 2048, 1408, 64, 6


@dataclass(frozen=True)
class MoeDispatchCase:
    """One or several calls, with other tokens and another routing each."""

    op: ClassVar[str] = "moe_dispatch_matmul"
    name: str
    tokens: list[int]  # of each rank
    experts: list[int]  # the rank of each
    top_k: int
    h: int
    i: int
    skew: str = "uniform"  # or: zipf, one (all tokens to expert 0), none (no token to any), gaps (-1 and duplicates)
    has_limit: bool = False  # max_tokens is given, with room for some more rows than come
    dtype: Any = ml_dtypes.bfloat16
    out_dtype: Any = None
    ids_dtype: Any = np.int32
    plan: Any = None
    calls: int = 2

    @property
    def shape(self) -> str:
        dtype = dtype_name(np.dtype(self.dtype))
        return f"{of_each_rank(self.tokens)} to {self.top_k} of {len(self.experts)} x {self.h} x {self.i} {dtype}"

    @property
    def on_gpu(self) -> bool:
        return self.out_dtype is None

    def prepare(self, rank: int, seed: int) -> MoeDispatchCaseCall:
        """One rank's inputs of one call."""
        return MoeDispatchCaseCall(self, rank, seed)


class MoeDispatchCaseCall:
    """One rank's inputs of one call, and what the call has to give."""

    def __init__(self, case: MoeDispatchCase, rank: int, seed: int) -> None:
        self._case = case
        # All ranks draw the same numbers, so each knows what comes to it.
        ids = [draw_routes(case, one, seed) for one in range(len(case.tokens))]
        own = [expert for expert, owner in enumerate(case.experts) if owner == rank]
        weights = [coded_weight(case.h, case.i, expert * case.i, case.dtype, seed) for expert in own]
        self._x = coded_shard(rank, case.tokens, case.h, case.dtype, seed)
        self._ids = ids[rank].astype(case.ids_dtype)
        self._w1 = np.stack(weights) if weights else np.zeros((0, case.h, case.i), case.dtype)
        self._origins = [np.argwhere(of_rank == expert) for expert in own for of_rank in ids]
        sources = [source for _ in own for source in range(len(ids))]
        counts = [len(one) for one in self._origins]
        self._offsets = np.cumsum([0, *np.add.reduceat(counts, np.arange(0, len(counts), len(ids)))] if own else [0])
        self._rows = [
            np.column_stack([np.full(len(one), source), one])
            for source, one in zip(sources, self._origins, strict=True)
        ]
        self._products = [
            coded_shard(source, case.tokens, case.h, case.dtype, seed)[one[:, 0]].astype(np.float32)
            @ weights[at // len(ids)].astype(np.float32)
            for at, (source, one) in enumerate(zip(sources, self._origins, strict=True))
        ]
        self._limit = max(self._counts_of_ranks(ids)) + 5
        self._options: dict[str, Any] = {"experts": case.experts}
        if case.has_limit:
            self._options |= {"max_tokens": self._limit, "max_source_tokens": max(case.tokens)}
        for name in ("out_dtype", "plan"):
            if getattr(case, name) is not None:
                self._options[name] = getattr(case, name)

    def _counts_of_ranks(self, ids: list[Array]) -> list[int]:
        owners = np.array(self._case.experts)
        chosen = [owners[of_rank[of_rank >= 0]] for of_rank in ids]
        return [sum(int((one == rank).sum()) for one in chosen) for rank in range(len(ids))]

    def run(self, machine: Machine) -> Any:
        return machine.call(self._case.op, self._x, self._ids, self._w1, **self._options)

    def check(self, result: Any) -> Report:
        case = self._case
        y, offsets, origins = np.asarray(result.y), result.offsets, result.handle.origins
        if not np.array_equal(offsets, self._offsets):
            return Report(f"offsets {list(offsets)}, expected {list(self._offsets)}", 0)
        dtype = np.dtype(case.out_dtype or case.dtype)
        if y.dtype != dtype:
            return Report(f"dtype {y.dtype}, expected {dtype}", 0)
        behind = self._limit - int(offsets[-1]) if case.has_limit else 0  # rows behind the last one that came
        wanted = np.concatenate([*self._rows, np.full((behind, 3), -1)])
        if not np.array_equal(origins, wanted):
            return Report("a row does not come from where it should", 0)
        expected = np.concatenate([np.zeros((0, case.i), np.float32), *self._products])
        expected = np.concatenate([expected, np.zeros((behind, case.i), np.float32)]).astype(dtype)
        return compare(y, expected, 0.0, allow_empty=expected.size == 0)


def draw_routes(case: MoeDispatchCase, rank: int, seed: int) -> Array:
    """[tokens, k]: the experts of a rank's tokens."""
    generator = np.random.default_rng([seed, rank])
    count, shape = len(case.experts), (case.tokens[rank], case.top_k)
    weights = 1.0 / np.arange(1, count + 1) if case.skew == "zipf" else np.ones(count)
    ids: Array = generator.choice(count, size=shape, p=weights / weights.sum())
    if case.skew == "one":
        ids[:] = 0
    elif case.skew == "none":
        ids[:] = -1
    elif case.skew == "gaps":
        ids[generator.random(shape) < 0.3] = -1
        ids[:, 1:] = np.where(generator.random(ids[:, 1:].shape) < 0.3, ids[:, :-1], ids[:, 1:])
    return ids


def spread(experts: int, world_size: int) -> list[int]:
    """So many experts, dealt out to the ranks in turn."""
    return [expert % world_size for expert in range(experts)]


def plan_of(block_tokens: int, *, window: int = 1, local_first: bool = True) -> dict[str, Any]:
    """Rounds so small that few tokens take several."""
    return {
        "op": "moe_dispatch_matmul",
        "block_tokens": block_tokens,
        "window": window,
        "chunk_tokens": 3,
        "pieces": 2,
        "local_first": local_first,
        "is_fused": True,
        "tile_rows": 16,
        "tile_cols": 16,
        "raster_rows": 2,
        "workers": 1,
        "load_ahead": 0,
        "publish_behind": 0,
    }


def real_cases(world_size: int) -> list[MoeDispatchCase]:
    experts = [expert * world_size // REAL_EXPERTS for expert in range(REAL_EXPERTS)]
    sizes = (experts, REAL_TOP_K, REAL_HIDDEN, REAL_INTERMEDIATE)
    return [
        MoeDispatchCase("experts' up-projection", [64] * world_size, *sizes, calls=1),
        MoeDispatchCase("the same, few experts wanted", [64] * world_size, *sizes, skew="zipf", calls=1),
        MoeDispatchCase("decode, one token a rank", [1] * world_size, *sizes, has_limit=True, calls=1),
    ]


def odd_cases(world_size: int) -> list[MoeDispatchCase]:
    """Routings that break what assumes even ones."""
    ranks = range(world_size)
    mixed, even = [(7 * rank + 9) % 23 for rank in ranks], [12] * world_size
    first = [20, *[0] * (world_size - 1)]
    eight = spread(8, world_size)
    last = [world_size - 1] * 4
    small = (2, 24, 10)
    return [
        MoeDispatchCase("every rank the same", even, eight, *small),
        MoeDispatchCase("odd counts", mixed, spread(7, world_size), 3, 33, 13),
        MoeDispatchCase("with max_tokens", mixed, eight, *small, has_limit=True),
        MoeDispatchCase("tokens on rank 0 alone", first, eight, *small),
        MoeDispatchCase("no tokens", [0] * world_size, eight, *small),
        MoeDispatchCase("no tokens, with max_tokens", [0] * world_size, eight, *small, has_limit=True),
        MoeDispatchCase("no token for any expert", even, eight, *small, skew="none"),
        MoeDispatchCase("all tokens to one expert", mixed, eight, *small, skew="one"),
        MoeDispatchCase("all experts on the last rank", even, last, *small),
        MoeDispatchCase("one expert", mixed, [0], 1, 24, 10),
        MoeDispatchCase("60 experts, 6 a token", mixed, spread(60, world_size), 6, 16, 5, skew="zipf"),
        MoeDispatchCase("-1 and the same expert twice", even, eight, 4, 16, 5, skew="gaps", ids_dtype=np.int64),
        MoeDispatchCase("H = 0", even, eight, 2, 0, 5),
        MoeDispatchCase("I = 0", even, eight, 2, 16, 0),
        MoeDispatchCase("rounds of 2 tokens", mixed, eight, *small, plan=plan_of(2), has_limit=True),
        MoeDispatchCase("rounds of 5 tokens, two at a time", mixed, eight, *small, plan=plan_of(5, window=2)),
        MoeDispatchCase("all nodes' rows together", mixed, eight, *small, plan=plan_of(4, local_first=False)),
        MoeDispatchCase("fp16 to fp32", mixed, eight, *small, dtype=np.float16, out_dtype=np.float32),
    ]
