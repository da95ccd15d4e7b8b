"""The demo's cases of `ring_attention`: heads of a real model, and sequences that break what assumes even ones."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tilewire.arrays import dtype_name
from tilewire.attention_checker import check_attention
from tilewire.checker import Report
from tilewire.demo_cases import Machine, of_each_rank
from tilewire.linear import Array
from tilewire.sequence import shard_rows

# The heads of a language model of the 8B class (Llama 3.1 8B), sequence 512, or 4096 on a GPU.
REAL_SEQUENCE, GPU_SEQUENCE, REAL_HEADS, REAL_HEAD_DIM = 512, 4096, (32, 8), 128


@dataclass(frozen=True)
class AttentionCase:
    """Rows are those of q on each rank; `kv_rows` None: as many of k and v."""

    op: ClassVar[str] = "ring_attention"
    name: str
    rows: list[int]
    heads: tuple[int, int]
    d: int = 64
    kv_rows: list[int] | None = None
    batch: int = 1
    causal: bool = True
    positions: str = "contiguous"  # or zigzag, or "given": a shuffle
    cu_seqlens: list[int] | None = None
    dtype: Any = ml_dtypes.bfloat16
    bhsd: bool = False  # memory laid out as [B, H, S, D]
    far: bool = False  # keys of one rank so large that sums of ranks lie far apart
    plan: Any = None  # an order that the planner may not choose here
    calls: int = 2

    @property
    def shape(self) -> str:
        dtype, mask = dtype_name(np.dtype(self.dtype)), "causal" if self.causal else "full"
        return f"{of_each_rank(self.rows)} x {self.heads[0]}/{self.heads[1]} x {self.d} {dtype} {mask}"

    @property
    def on_gpu(self) -> bool:
        return self.plan is None or not self.plan["is_step_major"]

    def prepare(self, rank: int, seed: int) -> AttentionCaseCall:
        """One rank's inputs of one call."""
        return AttentionCaseCall(self, rank, seed)


class AttentionCaseCall:
    """One rank's inputs of one call, and what the call has to give."""

    def __init__(self, case: AttentionCase, rank: int, seed: int) -> None:
        self._case = case
        self._rounds_weights = False  # as CPU ranks do
        generator = np.random.default_rng(seed)  # all ranks draw the same numbers, so each knows the whole
        kv_rows = case.rows if case.kv_rows is None else case.kv_rows
        places, kv_places = (_places(case.positions, rows, generator) for rows in (case.rows, kv_rows))
        if case.kv_rows is None:
            kv_places = places
        self._q = self._draw(generator, sum(case.rows), case.heads[0])[:, places[rank]]
        self._k = self._draw(generator, sum(kv_rows), case.heads[1])
        self._v = self._draw(generator, sum(kv_rows), case.heads[1])
        if case.far:
            self._k[:, kv_places[-1]] = self._k[:, kv_places[-1]].astype(np.float32) * 40
        self._sees = _sees(case, places[rank], sum(case.rows), sum(kv_rows))
        self._own = [self._laid_out(x) for x in (self._q, self._k[:, kv_places[rank]], self._v[:, kv_places[rank]])]
        self._options: dict[str, Any] = {"causal": case.causal, "rows": case.rows, "kv_rows": kv_rows}
        if case.positions != "contiguous":
            given = (places[rank], kv_places[rank])
            self._options["positions"] = given if case.positions == "given" else case.positions
        for name in ("cu_seqlens", "plan"):
            if getattr(case, name) is not None:
                self._options[name] = getattr(case, name)

    def _draw(self, generator: np.random.Generator, rows: int, heads: int) -> Array:
        case = self._case
        drawn: Array = generator.standard_normal((case.batch, rows, heads, case.d), np.float32).astype(case.dtype)
        return drawn

    def _laid_out(self, x: Array) -> Array:
        laid_out: Array = np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)
        return laid_out if self._case.bhsd else np.ascontiguousarray(x)

    def run(self, machine: Machine) -> Any:
        self._rounds_weights = machine.on_gpu
        return machine.call(self._case.op, *self._own, **self._options)

    def check(self, result: Any) -> Report:
        o, lse = (np.asarray(one) for one in result)
        if o.dtype != np.dtype(self._case.dtype):
            return Report(f"dtype {o.dtype}, expected {np.dtype(self._case.dtype)}", 0)
        return check_attention(o, lse, self._q, self._k, self._v, self._sees, rounds_weights=self._rounds_weights)


def _places(positions: str, rows: list[int], generator: np.random.Generator) -> list[Array]:
    """Which row of the whole sequence each row of each rank is."""
    total, ranks = sum(rows), len(rows)
    if positions == "zigzag":
        length = -(-total // (2 * ranks))
        blocks = [np.arange(min(total, n * length), min(total, (n + 1) * length)) for n in range(2 * ranks)]
        return [np.concatenate([blocks[rank], blocks[2 * ranks - 1 - rank]]) for rank in range(ranks)]
    whole = generator.permutation(total) if positions == "given" else np.arange(total)
    return np.split(whole, list(accumulate(rows))[:-1])


def _sees(case: AttentionCase, places: Array, total: int, kv_total: int) -> Array:
    """[own rows, all keys]: whether a row sees a key."""
    p, j = places[:, None], np.arange(kv_total)[None, :]
    begins = case.cu_seqlens
    if begins is None:
        seen = np.ones((len(places), kv_total), bool)
        return seen & (j <= p + kv_total - total) if case.causal else seen
    document, of_key = (np.searchsorted(begins, x, side="right") for x in (p, j))
    seen = (document == of_key) & (document < len(begins)) & (p < begins[-1]) & (j < begins[-1])
    visible: Array = seen & (j <= p) if case.causal else seen
    return visible


def real_cases(world_size: int) -> list[AttentionCase]:
    return [_real_case("causal self-attention, zigzag", REAL_SEQUENCE, world_size)]


def gpu_cases(world_size: int) -> list[AttentionCase]:
    return [_real_case("a long sequence, zigzag", GPU_SEQUENCE, world_size)]


def _real_case(name: str, sequence: int, world_size: int) -> AttentionCase:
    rows = shard_rows(sequence, world_size, positions="zigzag")
    return AttentionCase(name, rows, REAL_HEADS, REAL_HEAD_DIM, positions="zigzag", calls=1)


def plan_of(*, is_step_major: bool, window: int) -> dict[str, Any]:
    """Slots so few that they are used again."""
    return {
        "op": "ring_attention",
        "is_step_major": is_step_major,
        "chunk_rows": 64,
        "window": window,
        "is_fused": True,
        "tile_rows": 32,
        "group_pairs": 2,
        "workers": 1,
        "load_ahead": 0,
        "publish_behind": 0,
    }


def odd_cases(world_size: int) -> list[AttentionCase]:
    """Sequences that break what assumes even ones, by both orders."""
    ranks = range(world_size)
    even, uneven = [40] * world_size, [70 * (rank % 3) for rank in ranks]
    first = [30, *[0] * (world_size - 1)]
    total = sum(even)
    return [
        AttentionCase("full", even, (4, 2), causal=False),
        AttentionCase("two sequences, laid out as [B, H, S, D]", even, (4, 2), batch=2, bhsd=True),
        AttentionCase("uneven, some ranks with nothing", uneven, (2, 2)),
        AttentionCase("rows on one rank alone", first, (2, 1)),
        AttentionCase("no rows", [0] * world_size, (2, 1)),
        AttentionCase("one row", shard_rows(1, world_size), (2, 1), 128),
        AttentionCase("7 rows, zigzag", shard_rows(7, world_size, positions="zigzag"), (2, 1), positions="zigzag"),
        AttentionCase("299 rows, zigzag", shard_rows(299, world_size, positions="zigzag"), (2, 1), positions="zigzag"),
        AttentionCase("rows in any order", even, (2, 1), positions="given"),
        AttentionCase("one head for all", even, (8, 1)),
        AttentionCase("28 heads over 4", [9] * world_size, (28, 4)),
        AttentionCase("more queries than keys", even, (2, 2), kv_rows=[16] * world_size),
        AttentionCase("more keys than queries", [5] * world_size, (2, 2), kv_rows=uneven),
        AttentionCase("no keys", even, (2, 2), kv_rows=[0] * world_size),
        AttentionCase("documents across ranks, pads", even, (2, 1), cu_seqlens=[0, 13, 13, total // 2 + 3, total - 4]),
        AttentionCase("documents, full", even, (2, 1), causal=False, cu_seqlens=[0, total // 3, total]),
        AttentionCase("sums far apart", even, (2, 1), causal=False, far=True),
        AttentionCase("fp16", even, (2, 2), 128, dtype=np.float16),
        AttentionCase("one slot for a head", even, (6, 3), plan=plan_of(is_step_major=False, window=1)),
        AttentionCase("rank after rank", uneven, (4, 2), plan=plan_of(is_step_major=world_size > 1, window=1)),
    ]
