"""The demo's cases of `all_gather_matmul`: a real layer and odd shapes, each checked element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tilewire.arrays import dtype_name
from tilewire.checker import Report, check_gathered, check_matmul
from tilewire.coded_data import coded_bias, coded_rows, coded_shard, coded_weight
from tilewire.demo_cases import Machine, of_each_rank
from tilewire.encoder import split_evenly
from tilewire.linear import Array

# The up-projection of a 1B-class language model (Llama 3.2 1B: hidden 2048, intermediate 8192), sequence 512.
REAL_SEQUENCE, REAL_HIDDEN, REAL_INTERMEDIATE = 512, 2048, 8192


@dataclass(frozen=True)
class AllGatherCase:
    """Row and column counts are those of each rank."""

    op: ClassVar[str] = "all_gather_matmul"
    name: str
    rows: list[int]
    k: int
    columns: list[list[int]]  # of each weight: the columns of each rank
    dtype: Any = ml_dtypes.bfloat16
    bias: bool = False
    transposed: bool = False  # weights lie in memory as [N, K] and are passed as their [K, N] view
    gathered: bool = False  # return_gathered=True
    as_list: bool = False  # weights are passed as a list
    random: bool = False  # normal numbers, judged by the tolerance, in place of exact ones
    calls: int = 2

    @property
    def shape(self) -> str:
        columns = ", ".join(map(of_each_rank, self.columns))
        dtype = dtype_name(np.dtype(self.dtype))
        return f"{of_each_rank(self.rows)} x {self.k} x {columns} {dtype}"

    @property
    def on_gpu(self) -> bool:
        return bool(np.dtype(self.dtype) != np.float32)

    def prepare(self, rank: int, seed: int) -> _Call:
        """One rank's inputs of one call."""
        return _Call(self, rank, seed)


def real_cases(world_size: int) -> list[AllGatherCase]:
    rows = split_evenly(REAL_SEQUENCE, world_size)
    columns = [split_evenly(REAL_INTERMEDIATE, world_size)]
    return [
        AllGatherCase("MLP up-projection, exact data", rows, REAL_HIDDEN, columns, calls=3),
        AllGatherCase(
            "MLP up-projection, random data", rows, REAL_HIDDEN, columns, random=True, transposed=True, calls=1
        ),
    ]


def odd_cases(world_size: int) -> list[AllGatherCase]:
    """Shapes that break what assumes even ones."""
    ranks = range(world_size)
    even, uneven = [8] * world_size, [5 + 17 * rank for rank in ranks]
    n = [[24] * world_size]
    primes = [split_evenly(211, world_size)]
    return [
        AllGatherCase("uneven rows", uneven, 64, n),
        AllGatherCase("no rows on the last rank", [*even[:-1], 0], 64, n),
        AllGatherCase("rows on one rank only", [0] * (world_size - 1) + [37], 64, n),
        AllGatherCase("no rows anywhere", [0] * world_size, 64, n),
        AllGatherCase("K = 1", even, 1, n),
        AllGatherCase("K = 0", even, 0, n),
        AllGatherCase("N = 1 on each rank", uneven, 64, [[1] * world_size]),
        AllGatherCase("N = 0 on rank 0", even, 64, [[0] + [9] * (world_size - 1)]),
        AllGatherCase("M not divisible by the ranks", split_evenly(101, world_size), 96, n),
        AllGatherCase("prime sizes", split_evenly(127, world_size), 131, primes),
        AllGatherCase("one row in all", split_evenly(1, world_size), 256, n),
        AllGatherCase("weight stored as [N, K]", even, 80, primes, transposed=True),
        AllGatherCase("list of weights, one gather", uneven, 64, [n[0], primes[0], [1] * world_size], as_list=True),
        AllGatherCase("bias", uneven, 64, primes, bias=True),
        AllGatherCase(
            "list of weights, biases, gathered rows",
            even,
            64,
            [n[0], primes[0]],
            as_list=True,
            bias=True,
            gathered=True,
        ),
        AllGatherCase("gathered rows", uneven, 64, n, gathered=True),
        AllGatherCase("fp16", uneven, 100, n, dtype=np.float16, bias=True),
        AllGatherCase("fp32", uneven, 100, n, dtype=np.float32, random=True),
    ]


class _Call:
    """One rank's inputs of one call, and what the call has to give."""

    def __init__(self, case: AllGatherCase, rank: int, seed: int) -> None:
        self._case = case
        first_row = sum(case.rows[:rank])
        if case.random:
            # All ranks draw the same numbers, so each knows the whole.
            generator = np.random.default_rng(seed)
            shape = (sum(case.rows), case.k)
            self._whole = generator.standard_normal(shape, np.float32).astype(case.dtype)
            self._a = self._whole[first_row : first_row + case.rows[rank]].copy()
        else:
            self._whole = coded_rows(case.rows, case.k, case.dtype, seed)
            self._a = coded_shard(rank, case.rows, case.k, case.dtype, seed)
        self._weights = [self._weight(counts, rank, 7 * seed + i) for i, counts in enumerate(case.columns)]
        self._b = self._argument()
        self._biases = [
            coded_bias(counts[rank], sum(counts[:rank]), seed + i) if case.bias else None
            for i, counts in enumerate(case.columns)
        ]
        self._options: dict[str, Any] = {}
        if len(set(case.rows)) > 1:
            self._options["rows"] = case.rows
        if case.bias:
            self._options["bias"] = self._biases if case.as_list else self._biases[0]
        if case.gathered:
            self._options["return_gathered"] = True

    def _argument(self) -> Any:
        # [N, K] in memory is what a linear layer of most frameworks holds; the view's strides tell.
        weights = [np.ascontiguousarray(w.T).T if self._case.transposed else w for w in self._weights]
        return weights if self._case.as_list else weights[0]

    def _weight(self, counts: Sequence[int], rank: int, seed: int) -> Array:
        if self._case.random:
            generator = np.random.default_rng((seed, rank))
            return generator.standard_normal((self._case.k, counts[rank]), np.float32).astype(self._case.dtype)
        return coded_weight(self._case.k, counts[rank], sum(counts[:rank]), self._case.dtype, seed)

    def run(self, machine: Machine) -> Any:
        return machine.call(self._case.op, self._a, self._b, **self._options)

    def check(self, result: Any) -> Report:
        case = self._case
        products, gathered = result if case.gathered else (result, None)
        products = list(products) if case.as_list else [products]
        if len(products) != len(self._weights):
            return Report(f"{len(products)} results for {len(self._weights)} weights", 0)
        reports = [self._check_product(np.asarray(p), i) for i, p in enumerate(products)]
        if case.gathered:
            empty = self._whole.size == 0
            reports.append(check_gathered(np.asarray(gathered), self._whole, case.rows, allow_empty=empty))
        failed = [report for report in reports if not report.ok]
        return failed[0] if failed else Report("", sum(report.compared for report in reports))

    def _check_product(self, product: Array, index: int) -> Report:
        if product.dtype != np.dtype(self._case.dtype):
            return Report(f"dtype {product.dtype}, expected {np.dtype(self._case.dtype)}", 0)
        weight, bias = self._weights[index], self._biases[index]
        empty = self._whole.shape[0] == 0 or weight.shape[1] == 0
        return check_matmul(product, self._whole, weight, bias=bias, rows=self._case.rows, allow_empty=empty)
