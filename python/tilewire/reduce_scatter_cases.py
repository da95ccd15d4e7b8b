"""The demo's cases of `matmul_reduce_scatter`: a real layer and odd shapes, each checked element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tilewire.encoder import split_evenly
from tilewire.reduction_cases import REAL_HIDDEN, REAL_INTERMEDIATE, REAL_SEQUENCE, ReductionCase


@dataclass(frozen=True)
class ReduceScatterCase(ReductionCase):
    """`rows` has those of each rank."""

    op: ClassVar[str] = "matmul_reduce_scatter"
    listed: bool = True  # rows are passed

    def own(self, rank: int) -> slice:
        first = sum(self.rows[:rank])
        return slice(first, first + self.rows[rank])

    def more_options(self) -> dict[str, Any]:
        return {"rows": self.rows} if self.listed else {}


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
