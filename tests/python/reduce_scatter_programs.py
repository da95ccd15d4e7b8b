"""What the ranks of the tests of `matmul_reduce_scatter` run; see `rank_run`."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np

import tilewire as tw
from rank_programs import outcome, same
from tilewire.linear import Array

BF16 = ml_dtypes.bfloat16
ROWS, N = 9, 12  # rows of the result on each rank


class Parts:
    """Small whole numbers of all ranks, the same on each, whose sums lose nothing over any wire."""

    def __init__(self, comm: Any, rows: list[int] | None = None, dtype: Any = BF16) -> None:
        self.rows = rows or [ROWS] * comm.world_size
        generator = np.random.default_rng(4)
        depth = [4 + rank for rank in range(comm.world_size)]
        a = [generator.integers(-1, 2, (sum(self.rows), k)).astype(dtype) for k in depth]
        b = [generator.integers(-1, 2, (k, N)).astype(dtype) for k in depth]
        self.a, self.b = a[comm.rank], b[comm.rank]
        ends = list(accumulate(self.rows))
        self.own = slice(ends[comm.rank] - self.rows[comm.rank], ends[comm.rank])
        products = [x.astype(np.float32) @ w.astype(np.float32) for x, w in zip(a, b, strict=True)]
        self.whole: Array = np.add.reduce(products)
        self.sum: Array = self.whole[self.own]


def options() -> dict[str, bool]:
    """rows, bias, residual, out, dtypes, inputs in any order, plans and handles."""
    checks: dict[str, bool] = {}
    with tw.init(deadline_s=40, connect_deadline_s=40) as comm:
        p = Parts(comm)
        want = p.sum.astype(BF16)
        checks["as it is"] = same(tw.matmul_reduce_scatter(p.a, p.b), want)
        moved = comm.last_call.bytes_by_link
        checks["bytes are reported"] = (moved["network"] > 0, moved["node"] > 0) == (comm.rank != 1, comm.rank < 2)
        uneven = Parts(comm, [3 + 5 * rank for rank in range(comm.world_size)])
        got = tw.matmul_reduce_scatter(uneven.a, uneven.b, rows=np.array(uneven.rows))
        checks["rows as a list"] = same(got, uneven.sum.astype(BF16))
        rest = Parts(comm, [5] + [4] * (comm.world_size - 1))
        checks["rows dealt out"] = same(tw.matmul_reduce_scatter(rest.a, rest.b), rest.sum.astype(BF16))

        bias, residual = np.arange(N).astype(np.float16), np.ones((2 * ROWS, N), np.float32)[::2]
        got = tw.matmul_reduce_scatter(p.a, p.b, bias=bias, residual=residual)
        checks["bias and strided residual"] = same(got, (p.sum + bias.astype(np.float32) + residual).astype(BF16))

        out = np.full((ROWS + 2, N + 2), 7, np.float32)
        view = out[1:-1, 1:-1]
        checks["out is given back"] = tw.matmul_reduce_scatter(p.a, p.b, out=view) is view
        checks["out's dtype counts"] = same(view.copy(), p.sum)
        view[:] = 7
        checks["nothing around out is touched"] = bool((out == 7).all())
        for wire in ("bf16", "fp16", "fp32"):
            got = tw.matmul_reduce_scatter(p.a, p.b, out_dtype="fp16", wire_dtype=wire)
            checks[f"over {wire}"] = same(got, p.sum.astype(np.float16))
        got = tw.matmul_reduce_scatter(np.asfortranarray(p.a), np.ascontiguousarray(p.b.T).T)
        checks["columns behind each other"] = same(got, want)

        plan = tw.plan_matmul_reduce_scatter(p.a.shape[0], p.a.shape[1], N, nodes=[2, 1], rank=comm.rank)
        window = {**plan.as_dict(), "chunk_rows": 2, "chunk_cols": 8, "window": 1}
        checks["a given plan"] = same(tw.matmul_reduce_scatter(p.a, p.b, plan=window), want)
        handle = tw.MatmulReduceScatter(p.rows, p.a.shape[1], N, out_dtype="fp32", wire_dtype="fp32")
        checks["handle"] = all(same(handle(p.a, p.b), p.sum) for _ in range(3))
        checks["handle with residual"] = same(handle(p.a, p.b, residual=residual), p.sum + residual)
        checks["handle explains"] = "chunks of" in handle.explain() and "chunk_rows" in handle.plan
        gathered = tw.all_gather_matmul(p.a[:2, :4], p.b[:4])
        checks["another operation between"] = gathered.shape == (2 * comm.world_size, N)

        for name, call in {
            "a list of weights is refused": lambda: tw.matmul_reduce_scatter(p.a, [p.b]),
            "an exchange of rows is refused": lambda: tw.matmul_reduce_scatter(p.a, p.b, rows="exchange"),
            "a residual of another shape is refused": lambda: tw.matmul_reduce_scatter(p.a, p.b, residual=p.a),
            "a wire that there is not is refused": lambda: tw.matmul_reduce_scatter(p.a, p.b, wire_dtype="int8"),
        }.items():
            checks[name] = outcome(call)["error"] == "InvalidArgument"
        checks["and does no harm"] = same(tw.matmul_reduce_scatter(p.a, p.b), want)
    return checks
