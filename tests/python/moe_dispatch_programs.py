"""What the ranks of the tests of `moe_dispatch_matmul` run; see `rank_run`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tilewire as tw
from rank_programs import outcome, same
from tilewire.demo_cases import Machine
from tilewire.demo_rank import TilewireMachine
from tilewire.encoder import embed
from tilewire.encoder_weights import load_model
from tilewire.moe_dispatch_cases import MoeDispatchCase, plan_of, spread


def passes(case: MoeDispatchCase, comm: Machine) -> bool:
    call = case.prepare(comm.rank, 0)
    return call.check(call.run(comm)).ok


def options() -> dict[str, bool]:
    """Limits, out, ids of both widths, inputs in any order, plans, handles and refusals."""
    checks: dict[str, bool] = {}
    with tw.init(deadline_s=40, connect_deadline_s=40) as comm:
        machine, ranks = TilewireMachine(comm), comm.world_size
        case = MoeDispatchCase("", [9, 4, 13][:ranks], spread(5, ranks), 2, 16, 12)
        checks["as it is"] = passes(case, machine)
        checks["bytes are reported"] = comm.last_call.bytes_by_link["network"] > 0
        checks["with max_tokens"] = passes(replace(case, has_limit=True), machine)
        checks["ids of 64 bits"] = passes(replace(case, ids_dtype=np.int64), machine)
        checks["to fp32"] = passes(replace(case, out_dtype=np.float32), machine)
        checks["a given plan"] = passes(replace(case, plan=plan_of(3), has_limit=True), machine)

        call = case.prepare(comm.rank, 0)
        x, ids, w1 = call._x, call._ids, call._w1
        whole = tw.moe_dispatch_matmul(x, ids, w1, experts=case.experts)
        rows = len(whole.y)
        wide = np.zeros((len(ids) * 2, 4), np.int32)
        wide[::2, ::2] = ids
        mixed = (np.asfortranarray(x), wide[::2, ::2], np.ascontiguousarray(w1.transpose(0, 2, 1)).transpose(0, 2, 1))
        checks["inputs in any order"] = same(tw.moe_dispatch_matmul(*mixed, experts=case.experts).y, whole.y)
        out = np.full((rows + 2, 14), 7, np.float32)
        view = out[1:-1, 1:-1]
        given = tw.moe_dispatch_matmul(x, ids, w1, experts=case.experts, out=view)
        checks["out is given back"] = given.y is view and same(view.astype(whole.y.dtype), whole.y)
        view[:] = 7
        checks["nothing around out is touched"] = bool((out == 7).all())
        handle = whole.handle
        checks["the handle names every row once"] = (
            len({*zip(handle.rank.tolist(), handle.token.tolist(), handle.slot.tolist(), strict=True)}) == rows
        )

        fixed = tw.MoeDispatchMatmul(case.experts, 2, 16, 12, max_tokens=60, max_source_tokens=20)
        for tokens in (len(x), 0, 1):
            got = fixed(x[:tokens], ids[:tokens], w1)
            checks[f"handle, {tokens} tokens"] = len(got.y) == 60 and bool((got.y[got.offsets[-1] :] == 0).all())
        checks["handle explains"] = "rounds of" in fixed.explain() and "block_tokens" in fixed.plan

        tight: dict[str, Any] = {"experts": case.experts, "max_tokens": 3, "max_source_tokens": 20}
        lost = np.ones((3, 12), x.dtype)
        failed = outcome(lambda: tw.moe_dispatch_matmul(x, ids, w1, out=lost, **tight))
        checks["too many rows"] = failed["error"] == "ResourceError" and "max_tokens = 3" in failed["text"]
        checks["too many rows leave NaN"] = bool(np.isnan(lost.astype(np.float32)).all())
        for name, bad in {
            "an expert that is not there": (x, np.full_like(ids, 5), w1),
            "ids of another kind": (x, ids.astype(np.float32), w1),
            "ids of another length": (x, ids[:-1], w1),
            "weights of another depth": (x, ids, w1[:, 1:]),
            "a weight that is a matrix": (x, ids, w1[0]),
        }.items():
            failed = outcome(partial(tw.moe_dispatch_matmul, *bad, experts=case.experts))
            checks[f"{name} is refused"] = failed["error"] == "InvalidArgument"
        checks["and does no harm"] = same(tw.moe_dispatch_matmul(x, ids, w1, experts=case.experts).y, whole.y)
    return checks


def hashed(tokens: Any, x: Any, experts: int) -> Any:
    """A hash layer (Roller et al., 2021): the expert of a token is a hash of its number in the vocabulary."""
    return (tokens * 2654435761 % 2**32 // 2**16 % experts)[:, None].astype(np.int32)


def gated(tokens: Any, x: Any, experts: int) -> Any:
    """The gate of a sparse layer before its training: the two largest products of what stands for a token with a matrix
    of normal numbers."""
    gate = np.random.default_rng(7).standard_normal((x.shape[1], experts), np.float32)
    return np.argsort(-(x.astype(np.float32) @ gate), axis=1)[:, :2].astype(np.int32)


def real_text() -> list[dict[str, float]]:
    """Words of a licence, as a sentence encoder sees them, by each of the routers."""
    model, experts, columns = load_model(), 16, 24
    lines = [line for line in (Path(__file__).parents[2] / "LICENSE").read_text().splitlines() if line.strip()]
    found = []
    with tw.init(deadline_s=40, connect_deadline_s=40) as comm:
        words = [model.tokenize(lines[rank :: comm.world_size]) for rank in range(comm.world_size)]
        x = [embed(model, one).astype(ml_dtypes.bfloat16) for one in words]
        weights = np.random.default_rng(5).standard_normal((experts, x[0].shape[1], columns), np.float32)
        weights = weights.astype(ml_dtypes.bfloat16)
        for router in (hashed, gated):
            ids = [router(np.concatenate(one).astype(np.int64), of, experts) for one, of in zip(words, x, strict=True)]
            found.append(compared(comm, x, ids, weights))
    return found


def compared(comm: tw.Communicator, x: list[Any], ids: list[Any], weights: Any) -> dict[str, float]:
    """How far the rows of this rank's experts are off, all of which have to be there, in their order."""
    place = spread(len(weights), comm.world_size)
    own = [expert for expert, rank in enumerate(place) if rank == comm.rank]
    mine = (x[comm.rank], ids[comm.rank], weights[own])
    got = tw.moe_dispatch_matmul(*mine, experts=place, out_dtype="fp32")
    counts = np.bincount(np.concatenate([one.ravel() for one in ids]), minlength=len(weights))
    assert np.diff(got.offsets).tolist() == counts[own].tolist()
    worst = 0.0
    for number, expert in enumerate(own):
        rows = slice(got.offsets[number], got.offsets[number + 1])
        origins = [np.argwhere(of_rank == expert) for of_rank in ids]  # of each rank: token, slot
        wanted = [[rank, *one] for rank, of_rank in enumerate(origins) for one in of_rank.tolist()]
        assert got.handle.origins[rows].tolist() == wanted
        brought = np.concatenate([of[one[:, 0]] for of, one in zip(x, origins, strict=True)])
        expected = brought.astype(np.float64) @ weights[expert].astype(np.float64)
        worst = max(worst, float(np.abs(got.y[rows] - expected).max(initial=0.0)))
    return {"rows": int(counts.sum()), "worst": worst, "skew": float(counts.max() / counts.mean())}
