"""What the ranks of the tests of `matmul_all_reduce` run; see `rank_run`."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewire as tw
from rank_programs import outcome, same
from reduce_scatter_programs import BF16, ROWS, N, Parts
from tilewire.all_reduce_cases import plan_of
from tilewire.encoder import split_evenly


def options() -> dict[str, bool]:
    """bias, residual, out, dtypes, inputs in any order, plans, handles and refusals."""
    checks: dict[str, bool] = {}
    with tw.init(deadline_s=40, connect_deadline_s=40) as comm:
        p = Parts(comm)
        rows, k = p.a.shape
        want = p.whole.astype(BF16)
        checks["as it is"] = same(tw.matmul_all_reduce(p.a, p.b), want)
        checks["two shots"] = same(tw.matmul_all_reduce(p.a, p.b, plan=plan_of(is_one_shot=False)), want)
        moved = comm.last_call.bytes_by_link
        # Rank 1 owns no chunk of another node's rail partner, but what it has finished goes there all the same.
        checks["bytes are reported"] = moved["network"] > 0 and (moved["node"] > 0) == (comm.rank < 2)
        checks["one shot"] = same(tw.matmul_all_reduce(p.a, p.b, plan=plan_of(is_one_shot=True)), want)

        bias, residual = np.arange(N).astype(np.float16), np.ones((2 * rows, N), np.float32)[::2]
        added = p.whole + bias.astype(np.float32) + residual
        for is_one_shot in (False, True):
            plan = plan_of(is_one_shot=is_one_shot)
            got = tw.matmul_all_reduce(p.a, p.b, bias=bias, residual=residual, plan=plan)
            checks[f"bias and strided residual, one shot {is_one_shot}"] = same(got, added.astype(BF16))

        out = np.full((rows + 2, N + 2), 7, np.float32)
        view = out[1:-1, 1:-1]
        checks["out is given back"] = tw.matmul_all_reduce(p.a, p.b, out=view) is view
        checks["out's dtype counts"] = same(view.copy(), p.whole)
        view[:] = 7
        checks["nothing around out is touched"] = bool((out == 7).all())
        for wire in ("bf16", "fp16", "fp32"):
            got = tw.matmul_all_reduce(p.a, p.b, out_dtype="fp16", wire_dtype=wire)
            checks[f"over {wire}"] = same(got, p.whole.astype(np.float16))
        got = tw.matmul_all_reduce(np.asfortranarray(p.a), np.ascontiguousarray(p.b.T).T)
        checks["columns behind each other"] = same(got, want)

        plan = tw.plan_matmul_all_reduce(rows, k, N, nodes=[2, 1], rank=comm.rank)
        window = {**plan.as_dict(), "is_one_shot": False, "chunk_rows": 2, "chunk_cols": 8, "window": 1}
        checks["a given plan"] = same(tw.matmul_all_reduce(p.a, p.b, plan=window), want)
        handle = tw.MatmulAllReduce(rows, k, N, out_dtype="fp32", wire_dtype="fp32")
        checks["handle"] = all(same(handle(p.a, p.b), p.whole) for _ in range(3))
        fitted = tw.MatmulAllReduce(rows, k, N, out_dtype="fp32", has_bias=True, has_residual=True)
        checks["handle with both"] = same(fitted(p.a, p.b, bias=bias, residual=residual), added)
        checks["a handle that has no bias refuses one"] = (
            outcome(lambda: handle(p.a, p.b, bias=bias))["error"] == "InvalidArgument"
        )
        checks["handle explains"] = "chunks of" in handle.explain() and "is_one_shot" in handle.plan
        mine = tw.matmul_reduce_scatter(p.a, p.b)
        checks["the same bits as a reduce-scatter"] = same(mine, want[p.own]) and mine.shape == (ROWS, N)

        for name, call in {
            "a list of weights is refused": lambda: tw.matmul_all_reduce(p.a, [p.b]),
            "a residual of another shape is refused": lambda: tw.matmul_all_reduce(p.a, p.b, residual=p.a),
            "a wire that there is not is refused": lambda: tw.matmul_all_reduce(p.a, p.b, wire_dtype="int8"),
        }.items():
            checks[name] = outcome(call)["error"] == "InvalidArgument"
        checks["and does no harm"] = same(tw.matmul_all_reduce(p.a, p.b), want)
    return checks


def bits() -> dict[str, Any]:
    """Of sums that are not exact in fp32: by both forms, and whether a reduce-scatter gives the same."""
    found: dict[str, str] = {}
    with tw.init(deadline_s=40, connect_deadline_s=40) as comm:
        generator = np.random.default_rng(7 + comm.rank)
        a = generator.standard_normal((37, 50 + comm.rank), np.float32).astype(BF16)
        b = generator.standard_normal((50 + comm.rank, 61), np.float32).astype(BF16)
        for is_one_shot in (False, True):
            y = tw.matmul_all_reduce(a, b, plan=plan_of(is_one_shot=is_one_shot))
            found[f"one shot {is_one_shot}"] = y.tobytes().hex()
        counts = split_evenly(37, comm.world_size)
        first = sum(counts[: comm.rank])
        scattered = tw.matmul_reduce_scatter(a, b)
        return {"bits": found, "is_scatter": same(scattered, y[first : first + counts[comm.rank]])}
