"""Ranks as threads of this process, with Tilewire's operations in plain numpy: a method each, of the same signature.

For tests of what stands above the operation. `tamper` lets a test damage what a rank gathers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewire.demo_cases import CallStats
from tilewire.linear import Array, local_matmul
from tilewire.moe_dispatch import Dispatched, DispatchHandle

DEADLINE_S = 60.0
Tamper = Callable[[int, list[Array]], list[Array]]


class FakeComm:
    """One rank: what the demo asks of a machine."""

    on_gpu = False

    def __init__(self, cluster: FakeCluster, rank: int) -> None:
        self.cluster = cluster
        self.rank = rank
        self.world_size = cluster.world_size

    def call(self, op: str, *arguments: Any, **options: Any) -> Any:
        return getattr(self, op)(*arguments, **options)

    def barrier(self) -> None:
        self.cluster.meeting.wait(DEADLINE_S)

    def last_call(self) -> CallStats:
        return self.cluster.stats[self.rank]

    def all_gather_matmul(
        self,
        a: Array,
        b: Array | list[Array],
        *,
        rows: list[int] | None = None,
        bias: Any = None,
        return_gathered: bool = False,
    ) -> Any:
        shards = self.cluster.exchange(self.rank, a)
        counts = [shard.shape[0] for shard in shards]
        assert list(rows or []) == counts or (rows is None and len(set(counts)) == 1), f"rows={rows}, brought {counts}"
        if self.cluster.tamper:
            shards = self.cluster.tamper(self.rank, [shard.copy() for shard in shards])
        gathered = np.concatenate(shards)
        self.cluster.stats[self.rank] = CallStats(
            bytes_by_link={"copy": a.nbytes, "node": a.nbytes * (self.world_size - 1), "network": 0}, events=[]
        )
        weights = b if isinstance(b, list) else [b]
        biases = bias if isinstance(bias, list) else [bias] * len(weights)
        assert len(biases) == len(weights)
        products = [local_matmul(gathered, w, one) for w, one in zip(weights, biases, strict=True)]
        result: Any = products if isinstance(b, list) else products[0]
        return (result, gathered) if return_gathered else result

    def matmul_reduce_scatter(
        self,
        a: Array,
        b: Array,
        *,
        rows: list[int] | None = None,
        bias: Array | None = None,
        residual: Array | None = None,
        out_dtype: Any = None,
        wire_dtype: Any = None,
    ) -> Array:
        counts = rows or [len(a) // self.world_size + (r < len(a) % self.world_size) for r in range(self.world_size)]
        assert sum(counts) == len(a), f"rows={rows}, brought {len(a)}"
        first = sum(counts[: self.rank])
        own = slice(first, first + counts[self.rank])
        total = self._sum(a, b, wire_dtype)[own]
        return self._finished(total, (bias, residual), out_dtype or a.dtype)

    def matmul_all_reduce(
        self,
        a: Array,
        b: Array,
        *,
        plan: Any = None,
        bias: Array | None = None,
        residual: Array | None = None,
        out_dtype: Any = None,
        wire_dtype: Any = None,
    ) -> Array:
        return self._finished(self._sum(a, b, wire_dtype), (bias, residual), out_dtype or a.dtype)

    def ring_attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        causal: bool = False,
        positions: Any = "contiguous",
        cu_seqlens: list[int] | None = None,
        rows: list[int] | None = None,
        kv_rows: list[int] | None = None,
        plan: Any = None,
    ) -> tuple[Array, Array]:
        pieces = []
        for own, counts in ((k, kv_rows), (v, kv_rows)):
            shards = self.cluster.exchange(self.rank, own)
            assert [shard.shape[1] for shard in shards] == counts
            if self.cluster.tamper:
                shards = self.cluster.tamper(self.rank, [shard.copy() for shard in shards])
            pieces.append(np.concatenate(shards, axis=1).astype(np.float32))
        places = [self._places(positions, own, counts or []) for own, counts in ((0, rows), (1, kv_rows))]
        self.cluster.stats[self.rank] = CallStats(
            bytes_by_link={"copy": k.nbytes + v.nbytes, "node": 0, "network": 0}, events=[]
        )
        offset = len(places[1][1]) - len(places[0][1])
        p, j = places[0][1][places[0][0]][:, None], places[1][1][None, :]
        if cu_seqlens is None:
            seen = j <= p + offset if causal else np.ones((p.shape[0], j.shape[1]), bool)
        else:
            number = [np.searchsorted(cu_seqlens, x, side="right") for x in (p, j)]
            seen = (number[0] == number[1]) & (number[0] < len(cu_seqlens)) & ((j <= p) | (not causal))
        shared = q.shape[2] // max(k.shape[2], 1)
        keys, values = (np.repeat(x, shared, axis=2) for x in pieces)
        scores = np.einsum("bshd,bthd->bhst", q.astype(np.float32), keys) * q.shape[-1] ** -0.5
        scores = np.where(seen, scores, -np.inf)
        peak = np.nan_to_num(scores.max(axis=3, keepdims=True, initial=-np.inf), neginf=0.0)
        weights = np.exp(scores - peak)
        total = weights.sum(axis=3, keepdims=True)
        o = np.einsum("bhst,bthd->bshd", weights / np.maximum(total, 1e-30), values)
        with np.errstate(divide="ignore"):
            lse = (peak + np.log(total))[..., 0]
        return o.astype(q.dtype), lse.astype(np.float32)

    def _places(self, positions: Any, which: int, counts: list[int]) -> tuple[Any, Array]:
        """Of this rank's rows among those of all, and the position of each of all."""
        if isinstance(positions, str) and positions == "zigzag":
            length = -(-sum(counts) // (2 * self.world_size))
            blocks = [np.arange(sum(counts))[n * length : (n + 1) * length] for n in range(2 * self.world_size)]
            all_of = [np.concatenate([blocks[r], blocks[-1 - r]]) for r in range(self.world_size)]
        elif isinstance(positions, str):
            edges = np.cumsum([0, *counts])
            all_of = [np.arange(edges[r], edges[r + 1]) for r in range(self.world_size)]
        else:
            all_of = self.cluster.exchange(self.rank, np.asarray(positions[which]))
        begin = sum(counts[: self.rank])
        return slice(begin, begin + counts[self.rank]), np.concatenate(all_of)

    def moe_dispatch_matmul(
        self,
        x: Array,
        topk_ids: Array,
        w1: Array,
        *,
        experts: list[int],
        max_tokens: int | None = None,
        max_source_tokens: int | None = None,
        out_dtype: Any = None,
        plan: Any = None,
    ) -> Dispatched:
        tokens, ids = self.cluster.exchange(self.rank, x), self.cluster.exchange(self.rank, topk_ids)
        if self.cluster.tamper:
            tokens = self.cluster.tamper(self.rank, [one.copy() for one in tokens])
        rows, origins, offsets = [], [], [0]
        for expert, weight in zip([e for e, owner in enumerate(experts) if owner == self.rank], w1, strict=True):
            for source, (shard, chosen) in enumerate(zip(tokens, ids, strict=True)):
                for token, slot in np.argwhere(chosen == expert):
                    rows.append(shard[token : token + 1].astype(np.float32) @ weight.astype(np.float32))
                    origins.append([source, token, slot])
            offsets.append(len(rows))
        behind = 0 if max_tokens is None else max_tokens - len(rows)
        y = np.concatenate([*rows, np.zeros((behind, w1.shape[2]))]).astype(out_dtype or x.dtype)
        places = np.array(origins + [[-1, -1, -1]] * behind, np.int32).reshape(-1, 3)
        self.cluster.stats[self.rank] = CallStats(bytes_by_link={"copy": 0, "node": y.nbytes, "network": 0}, events=[])
        return Dispatched(y, np.array(offsets), DispatchHandle(places))

    def _sum(self, a: Array, b: Array, wire_dtype: Any) -> Array:
        """Of all ranks' products, as fp32."""
        product = a.astype(np.float32) @ b.astype(np.float32)
        parts = self.cluster.exchange(self.rank, product.astype(wire_dtype or a.dtype))
        if self.cluster.tamper:
            parts = self.cluster.tamper(self.rank, [part.copy() for part in parts])
        self.cluster.stats[self.rank] = CallStats(
            bytes_by_link={"copy": 0, "node": product.nbytes, "network": 0}, events=[]
        )
        total: Array = np.add.reduce([part.astype(np.float32) for part in parts])
        return total

    @staticmethod
    def _finished(total: Array, added: tuple[Array | None, ...], dtype: Any) -> Array:
        for one in added:
            total = total if one is None else total + one.astype(np.float32)
        result: Array = total.astype(dtype)
        return result


class FakeCluster:
    def __init__(self, world_size: int, tamper: Tamper | None = None) -> None:
        self.world_size = world_size
        self.tamper = tamper
        self.meeting = threading.Barrier(world_size)
        self.stats = [CallStats(bytes_by_link={}, events=[]) for _ in range(world_size)]
        self._slots: list[Array | None] = [None] * world_size

    def exchange(self, rank: int, value: Array) -> list[Array]:
        self._slots[rank] = np.array(value, copy=True)
        self.meeting.wait(DEADLINE_S)
        values = [slot for slot in self._slots if slot is not None]
        self.meeting.wait(DEADLINE_S)
        return values

    def run(self, body: Callable[[FakeComm], Any]) -> list[Any]:
        """Calls `body` on every rank, each in its own thread; the first error of any rank is raised here."""
        results: list[Any] = [None] * self.world_size
        errors: list[BaseException] = []

        def work(rank: int) -> None:
            try:
                results[rank] = body(FakeComm(self, rank))
            except BaseException as error:
                errors.append(error)
                self.meeting.abort()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(self.world_size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
        return results
