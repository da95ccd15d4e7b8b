"""What the demo's cases have in common of the operations that sum the products of all ranks."""

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
from tilewire.linear import Array

# The down-projection of a 1B-class language model (Llama 3.2 1B: intermediate 8192, hidden 2048), sequence 512.
REAL_SEQUENCE, REAL_INTERMEDIATE, REAL_HIDDEN = 512, 8192, 2048


@dataclass(frozen=True)
class ReductionCase:
    """Rows are those of the result on each rank, or one number where every rank gets all; columns of a, each rank's."""

    op: ClassVar[str]
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
    calls: int = 2

    @property
    def shape(self) -> str:
        dtype = dtype_name(np.dtype(self.dtype))
        rows = of_each_rank(self.rows) if len(self.rows) > 1 else str(self.rows[0])
        return f"{rows} x {of_each_rank(self.k)} x {self.n} {dtype}"

    @property
    def on_gpu(self) -> bool:
        return bool(np.dtype(self.dtype) != np.float32)

    def own(self, rank: int) -> slice:
        """The rows of the sum that a rank gets."""
        raise NotImplementedError

    def more_options(self) -> dict[str, Any]:
        """What the call takes beside what all such calls take."""
        return {}

    def prepare(self, rank: int, seed: int) -> ReductionCaseCall:
        """One rank's inputs of one call."""
        return ReductionCaseCall(self, rank, seed)


class ReductionCaseCall:
    """One rank's inputs of one call, and what the call has to give."""

    def __init__(self, case: ReductionCase, rank: int, seed: int) -> None:
        self._case = case
        self._own = case.own(rank)
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
        self._options = case.more_options()
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
