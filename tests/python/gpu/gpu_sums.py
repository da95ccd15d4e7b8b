"""Inputs of GPU ranks whose products are summed over ranks, and what calls have to give."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import torch
from gpu_coded import BF16, GPU, to_gpu, to_numpy

import tilewire as tw
from tilewire.checker import check_matmul_sum
from tilewire.encoder import split_evenly

N = 320


class Sum:
    """One rank's inputs of a call of an operation: -1, 0 and 1, whose sums lose nothing on their way over any wire."""

    def __init__(
        self,
        comm: Any,
        op: str,
        m: int = 300,
        k: int | list[int] = 136,
        n: int = N,
        dtype: Any = BF16,
        seed: int = 0,
        rows: list[int] | None = None,
    ) -> None:
        self.op, self.m, self.n, self.dtype, self.rank = op, m, n, dtype, comm.rank
        self.is_scattered = op == "matmul_reduce_scatter"
        self.k = [k] * comm.world_size if isinstance(k, int) else k
        self.rows = rows or split_evenly(m, comm.world_size)
        ends = list(accumulate(self.rows, initial=0))
        self.own = slice(ends[self.rank], ends[self.rank + 1]) if self.is_scattered else slice(0, m)
        self.has_rows = rows is not None and self.is_scattered
        self.set_seed(seed)
        self.a, self.b = to_gpu(self.parts[self.rank][0]), to_gpu(self.parts[self.rank][1])

    @property
    def own_rows(self) -> int:
        return self.own.stop - self.own.start

    def set_seed(self, seed: int) -> None:
        numbers = np.random.default_rng(seed)  # the same on all ranks
        self.parts = [
            (
                numbers.integers(-1, 2, (self.m, k)).astype(self.dtype),
                numbers.integers(-1, 2, (k, self.n)).astype(self.dtype),
            )
            for k in self.k
        ]

    def change(self, seed: int) -> None:
        """Other values in the same memory, in stream order."""
        self.set_seed(seed)
        self.a.copy_(to_gpu(self.parts[self.rank][0]))
        self.b.copy_(to_gpu(self.parts[self.rank][1]))

    def call(self, a: Any = None, b: Any = None, **options: Any) -> Any:
        if self.has_rows:
            options["rows"] = self.rows
        return getattr(tw, self.op)(self.a if a is None else a, self.b if b is None else b, **options)

    def handle(self, **options: Any) -> Any:
        own_k = self.k[self.rank]
        if self.is_scattered:
            return tw.MatmulReduceScatter(self.rows, own_k, self.n, **options)
        return tw.MatmulAllReduce(self.m, own_k, self.n, **options)

    def bias(self) -> Any:
        """fp32 [N], the same on all ranks, of whole numbers."""
        return (np.arange(self.n) % 7 - 3).astype(np.float32)

    def residual(self) -> Any:
        """fp32 [own rows, N], likewise for a row of the sum."""
        rows = np.arange(self.own.start, self.own.stop)[:, None]
        return ((rows * 5 + np.arange(self.n)[None, :]) % 9 - 4).astype(np.float32)

    def wrong(self, y: Any, dtype: Any = None, wire: Any = None, bias: Any = None, residual: Any = None) -> str:
        """ "" or the worst element of what a call gave; `dtype` is that of torch, None: as that of the inputs."""
        if not isinstance(y, torch.Tensor) or y.device != GPU or y.dtype != (dtype or self.a.dtype):
            return f"a {type(y).__name__} on {getattr(y, 'device', None)} of {getattr(y, 'dtype', None)}"
        report = check_matmul_sum(
            to_numpy(y),
            [(a[self.own], b) for a, b in self.parts],
            wire_dtype=np.dtype(wire or self.dtype),
            bias=bias,
            residual=residual,
            allow_empty=self.own_rows == 0 or self.n == 0,
        )
        return "" if report.ok else str(report)
