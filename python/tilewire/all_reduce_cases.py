"""The demo's cases of `matmul_all_reduce`: a real layer, decode steps and odd shapes, all of which are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tilewire.encoder import split_evenly
from tilewire.reduction_cases import REAL_HIDDEN, REAL_INTERMEDIATE, REAL_SEQUENCE, ReductionCase


@dataclass(frozen=True)
class AllReduceCase(ReductionCase):
    """`rows` has one number."""

    op: ClassVar[str] = "matmul_all_reduce"
    plan: Any = None  # a form that the planner may not choose here

    def own(self, rank: int) -> slice:
        return slice(0, self.rows[0])

    def more_options(self) -> dict[str, Any]:
        return {} if self.plan is None else {"plan": self.plan}


def real_cases(world_size: int) -> list[AllReduceCase]:
    k = split_evenly(REAL_INTERMEDIATE, world_size)
    return [
        AllReduceCase("MLP down-projection, whole numbers", [REAL_SEQUENCE], k, REAL_HIDDEN, calls=1),
        AllReduceCase("MLP down-projection, one token", [1], k, REAL_HIDDEN),
        AllReduceCase(
            "MLP down-projection, 8 tokens, random data",
            [8],
            k,
            REAL_HIDDEN,
            random=True,
            residual=True,
            transposed=True,
            calls=1,
        ),
    ]


def plan_of(*, is_one_shot: bool, window: int = 0) -> dict[str, Any]:
    """Chunks so small that small matrices have several."""
    return {
        "op": "matmul_all_reduce",
        "is_one_shot": is_one_shot,
        "chunk_rows": 8,
        "chunk_cols": 16,
        "window": window,
        "is_fused": True,
        "workers": 1,
        "reduce_workers": 1,
        "gather_behind": 1,
        "load_ahead": 0,
        "publish_behind": 0,
    }


def odd_cases(world_size: int) -> list[AllReduceCase]:
    """Shapes that break what assumes even ones, by both forms."""
    ranks = range(world_size)
    k, mixed, n = [16] * world_size, [9 + 7 * (rank % 3) for rank in ranks], 24
    single = np.float32
    one_shot, two_shots, window = (
        plan_of(is_one_shot=True),
        plan_of(is_one_shot=False),
        plan_of(is_one_shot=False, window=1),
    )
    return [
        AllReduceCase("two shots", [50], k, 61, plan=two_shots),
        AllReduceCase("two shots, a window of one", [50], mixed, 61, plan=window),
        AllReduceCase("one shot", [50], mixed, 61, plan=one_shot),
        AllReduceCase("one row in two shots", [1], k, 61, plan=two_shots),
        AllReduceCase("one row in one shot", [1], k, 61, plan=one_shot),
        AllReduceCase("no rows", [0], k, n),
        AllReduceCase("M not divisible by the ranks", [101], k, n),
        AllReduceCase("K = 0 on rank 0", [9], [0, *k[1:]], n, bias=True),
        AllReduceCase("K = 0 everywhere", [9], [0] * world_size, n, residual=True),
        AllReduceCase("N = 1", [37], k, 1),
        AllReduceCase("N = 0", [8], k, 0),
        AllReduceCase("prime sizes", [127], mixed, 131),
        AllReduceCase("weight stored as [N, K]", [33], mixed, 61, transposed=True),
        AllReduceCase("bias and residual", [40], k, 61, bias=True, residual=True, plan=one_shot),
        AllReduceCase("fp32 over bf16", [29], k, n, dtype=single, wire_dtype=ml_dtypes.bfloat16, random=True),
        AllReduceCase("bf16 over fp32 to fp32", [29], k, n, wire_dtype=single, out_dtype=single, random=True),
        AllReduceCase("fp16", [29], mixed, n, dtype=np.float16, random=True, bias=True, plan=two_shots),
        AllReduceCase("fp32", [29], mixed, n, dtype=single, random=True, residual=True, plan=one_shot),
    ]
