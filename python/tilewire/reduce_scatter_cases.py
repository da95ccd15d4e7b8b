"""The demo's cases of `matmul_reduce_scatter`: a real layer and odd shapes, each checked element by element."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tilewire.arrays import dtype_name
from tilewire.checker import Report, check_matmul_sum
from tilewire.coded_data import coded_bias, coded_rows, coded_weight
from tilewire.demo_cases import Machine, of_each_rank
from tilewire.encoder import split_evenly
from tilewire.linear import Array

# The down-projection of a 1B-class language model (Llama 3.2 1B: intermediate 8192, hidden 2048), sequence 512.
REAL_SEQUENCE, REAL_INTERMEDIATE, REAL_HIDDEN = 512, 8192, 2048


@dataclass(frozen=True)
class ReduceScatterCase:
    """Rows of the result, and columns of a, are those of each rank."""

    op: ClassVar[str] = "matmul_reduce_scatter"
    name: str
    rows: list[int]
    k: list[int]
    n: int
    dtype: Any = ml_dtypes.bfloat16
    out_dtype: Any = None
    wire_dtype: Any = None
    bias: bool = False
    residual: bool = False
    transposed: bool = False  # the weight lies in memory as [N, K] and is passed as its [K, N] view
    random: bool = False  # normal numbers, judged by the tolerance, in place of whole ones
    listed: bool = True  # rows are passed
    calls: int = 2

    @property
    def shape(self) -> str:
        dtype = dtype_name(np.dtype(self.dtype))
        return f"{of_each_rank(self.rows)} x {of_each_rank(self.k)} x {self.n} {dtype}"

    def prepare(self, rank: int, seed: int) -> _Call:
        """One rank's inputs of one call."""
        return _Call(self, rank, seed)


def real_cases(world_size: int) -> list[ReduceScatterCase]:
    rows = split_evenly(REAL_SEQUENCE, world_size)
    k = split_evenly(REAL_INTERMEDIATE, world_size)
    return [
        ReduceScatterCase("MLP down-projection, whole numbers", rows, k, REAL_HIDDEN, listed=False, calls=3),
        ReduceScatterCase(
            "MLP down-projection, random data",
            rows,
            k,
            REAL_HIDDEN,
            random=True,
            residual=True,
            transposed=True,
            calls=1,
        ),
    ]


def odd_cases(world_size: int) -> list[ReduceScatterCase]:
    """Shapes that break what assumes even ones."""
    ranks = range(world_size)
    even, uneven = [8] * world_size, [5 + 17 * rank for rank in ranks]
    k, n = [16] * world_size, 24
    mixed = [9 + 7 * (rank % 3) for rank in ranks]
    single = np.float32
    return [
        ReduceScatterCase("uneven rows", uneven, k, n),
        ReduceScatterCase("no rows for the last rank", [*even[:-1], 0], k, n),
        ReduceScatterCase("rows for one rank only", [0] * (world_size - 1) + [37], k, n),
        ReduceScatterCase("no rows anywhere", [0] * world_size, k, n),
        ReduceScatterCase("one row in all", split_evenly(1, world_size), k, n, listed=False),
        ReduceScatterCase("M not divisible by the ranks", split_evenly(101, world_size), k, n, listed=False),
        ReduceScatterCase("another K on each rank", even, mixed, n),
        ReduceScatterCase("K = 0 on rank 0", even, [0, *k[1:]], n, bias=True),
        ReduceScatterCase("K = 0 everywhere", even, [0] * world_size, n, residual=True),
        ReduceScatterCase("N = 1", uneven, k, 1),
        ReduceScatterCase("N = 0", even, k, 0),
        ReduceScatterCase("prime sizes", split_evenly(127, world_size), mixed, 131),
        ReduceScatterCase("weight stored as [N, K]", even, mixed, 61, transposed=True),
        ReduceScatterCase("bias and residual", uneven, k, 61, bias=True, residual=True),
        ReduceScatterCase("fp32 over bf16", uneven, k, n, dtype=single, wire_dtype=ml_dtypes.bfloat16, random=True),
        ReduceScatterCase("bf16 over fp32 to fp32", uneven, k, n, wire_dtype=single, out_dtype=single, random=True),
        ReduceScatterCase("fp16", uneven, mixed, n, dtype=np.float16, random=True, bias=True),
        ReduceScatterCase("fp32", uneven, mixed, n, dtype=single, random=True, residual=True),
    ]


class _Call:
    """One rank's inputs of one call, and what the call has to give."""

    def __init__(self, case: ReduceScatterCase, rank: int, seed: int) -> None:
        self._case = case
        first = sum(case.rows[:rank])
        self._own = slice(first, first + case.rows[rank])
        # All ranks draw the same numbers, so each knows the whole.
        a, b = self._whole(seed)
        edges = list(accumulate(case.k, initial=0))
        self._parts = [(a[self._own, i:j], b[i:j]) for i, j in zip(edges, edges[1:], strict=False)]
        depth = slice(edges[rank], edges[rank + 1])
        self._a, self._b = np.ascontiguousarray(a[:, depth]), np.ascontiguousarray(b[depth])
        if case.transposed:
            self._b = np.ascontiguousarray(self._b.T).T
        self._bias = coded_bias(case.n, 0, seed) % 8 if case.bias else None
        self._residual = self._residual_rows(seed) if case.residual else None
        self._options: dict[str, Any] = {}
        if case.listed:
            self._options["rows"] = case.rows
        for name in ("out_dtype", "wire_dtype"):
            if getattr(case, name) is not None:
                self._options[name] = getattr(case, name)
        if self._bias is not None:
            self._options["bias"] = self._bias
        if self._residual is not None:
            self._options["residual"] = self._residual

    def _whole(self, seed: int) -> tuple[Array, Array]:
        """a [M, sum of K] and b [sum of K, N] of all ranks together."""
        case, rows, k = self._case, sum(self._case.rows), sum(self._case.k)
        if case.random:
            generator = np.random.default_rng(seed)
            a = generator.standard_normal((rows, k), np.float32)
            b = generator.standard_normal((k, case.n), np.float32)
        else:
            # -1, 0 and 1: sums that 8 bits hold, so that most elements have to be right to the bit.
            a = coded_rows([rows], k, np.float32, seed) % 3 - 1
            b = coded_weight(k, case.n, 0, np.float32, seed) % 3 - 1
        return a.astype(case.dtype), b.astype(case.dtype)

    def _residual_rows(self, seed: int) -> Array:
        rows = self._own.stop - self._own.start
        columns = np.arange(self._own.start, self._own.stop)[:, None] * 5 + np.arange(self._case.n)[None, :]
        return ((columns + seed) % 7 - 3).astype(self._case.dtype).reshape(rows, self._case.n)

    def run(self, machine: Machine) -> Any:
        return machine.call(self._case.op, self._a, self._b, **self._options)

    def check(self, result: Any) -> Report:
        case, got = self._case, np.asarray(result)
        wanted = np.dtype(case.out_dtype or case.dtype)
        if got.dtype != wanted:
            return Report(f"dtype {got.dtype}, expected {wanted}", 0)
        return check_matmul_sum(
            got,
            self._parts,
            wire_dtype=np.dtype(case.wire_dtype or case.dtype),
            bias=self._bias,
            residual=self._residual,
            allow_empty=case.n == 0 or self._own.start == self._own.stop,
        )
