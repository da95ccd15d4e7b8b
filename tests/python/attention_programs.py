"""What the ranks of the tests of `ring_attention` run; see `rank_run`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tilewire as tw
from rank_programs import outcome, same
from tilewire.attention_cases import plan_of
from tilewire.attention_checker import check_attention

BF16 = np.dtype(ml_dtypes.bfloat16)
ROWS, HEADS, D = 50, (4, 2), 64


class Whole:
    """A sequence that all ranks draw alike, and this rank's rows of it."""

    def __init__(self, comm: tw.Communicator, positions: str = "zigzag") -> None:
        self.comm, self.positions = comm, positions
        generator = np.random.default_rng(3)
        drawn = [generator.standard_normal((2, ROWS, heads, D), np.float32).astype(BF16) for heads in (4, 2, 2)]
        self.q, self.k, self.v = drawn
        self.own = [self.shard(x) for x in drawn]
        self.rows = tw.shard_rows(ROWS, comm.world_size, positions=positions)
        self.places = self.shard(np.arange(ROWS)[None])[0]

    def shard(self, x: Any) -> Any:
        return tw.shard(x, self.comm.rank, self.comm.world_size, positions=self.positions)

    def is_right(self, result: Any, causal: bool = True, scale: float | None = None) -> bool:
        o, lse = result
        seen = np.arange(ROWS)[None, :] <= self.places[:, None] if causal else np.ones((len(self.places), ROWS), bool)
        report = check_attention(o, lse, self.own[0], self.k, self.v, seen, scale)
        if not report.ok:
            print(report)
        return report.ok and report.compared > 0


def options() -> dict[str, bool]:
    """Masks, placements, out, dtypes, inputs in any order, counts, plans, handles and refusals."""
    checks: dict[str, bool] = {}
    with tw.init(deadline_s=40, connect_deadline_s=40) as comm:
        w = Whole(comm)
        q, k, v = w.own
        known: dict[str, Any] = {"causal": True, "positions": "zigzag", "rows": w.rows}
        o, lse = tw.ring_attention(q, k, v, **known)
        checks["as it is"] = w.is_right((o, lse)) and o.dtype == BF16
        moved, shard = comm.last_call.bytes_by_link, k.nbytes + v.nbytes
        checks["bytes are reported"] = moved["copy"] == shard and (moved["network"] > 0) == (comm.nodes > 1)

        def again(name: str, *arrays: Any, **options: Any) -> None:
            got = tw.ring_attention(*arrays, **{**known, **options})
            checks[name] = same(got[0], o) and same(got[1], lse)

        again("rows of k said too", q, k, v, kv_rows=w.rows)
        again("counts exchanged", q, k, v, rows="exchange")
        again("positions given", q, k, v, positions=w.places)
        again("positions given of both", q, k, v, positions=(list(w.places), w.places))
        last = comm.rank == comm.world_size - 1
        few = 0 if last else 1
        places = {"positions": (w.places, w.places[:few]), "kv_rows": [1] * (comm.world_size - 1) + [0]}
        no_keys = outcome(lambda: tw.ring_attention(q, k[:, :few], v[:, :few], rows=w.rows, **places))
        checks["positions given, no keys on a rank"] = no_keys["error"] == ""
        mistake = {"cu_seqlens": [0, 9, 3]} if last else {}
        refused = outcome(lambda: tw.ring_attention(q, k, v, **{**known, "rows": "exchange"}, **mistake))
        checks["documents that fall on one rank"] = refused["error"] == ("InvalidArgument" if last else "Refused")
        again("scale given", q, k, v, scale=D**-0.5)
        heads_first = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k, v)]
        again("laid out as [B, H, S, D]", *heads_first)
        again("packed qkv", q, *np.split(np.concatenate([k, v], axis=2), 2, axis=2))
        again("one document", q, k, v, cu_seqlens=[0, ROWS])
        again("of both", q, k, v, cu_seqlens=([0, ROWS], np.array([0, ROWS])))
        again("a window", q, k, v, plan=plan_of(is_step_major=False, window=1))
        again("rank after rank", q, k, v, plan=plan_of(is_step_major=True, window=1))
        checks["full"] = w.is_right(tw.ring_attention(q, k, v, **{**known, "causal": False}), causal=False)
        checks["another scale"] = w.is_right(tw.ring_attention(q, k, v, scale=0.3, **known), scale=0.3)
        checks["to fp32"] = w.is_right(tw.ring_attention(q, k, v, out_dtype="fp32", **known))

        out = np.full(q.shape, 7, np.float32)
        given = tw.ring_attention(q, k, v, out=out, **known)
        checks["out is given back"] = given[0] is out and w.is_right(given)

        handle = tw.RingAttention(w.rows, HEADS, D, batch=2, causal=True, positions="zigzag")
        checks["handle"] = all(same(handle(q, k, v)[0], o) for _ in range(3))
        checks["handle explains"] = "chunks of" in handle.explain() and "is_step_major" in handle.plan
        checks["a handle refuses other shapes"] = (
            outcome(lambda: handle(q[:1], k[:1], v[:1]))["error"] == "InvalidArgument"
        )

        for name, call in {
            "other head dimensions": lambda: tw.ring_attention(*(x[..., :48] for x in (q, k, v)), **known),
            "fp32": lambda: tw.ring_attention(*(x.astype(np.float32) for x in (q, k, v)), **known),
            "a matrix": lambda: tw.ring_attention(q[0, 0], k, v, **known),
            "positions that there are not": lambda: tw.ring_attention(q, k, v, **{**known, "positions": "ring"}),
            "heads that do not fit": lambda: tw.ring_attention(q[:, :, :3], k, v, **known),
            "rows that are no zigzag": lambda: tw.ring_attention(q, k, v, **{**known, "rows": [0, 0, 0, ROWS]}),
            "documents that fall": lambda: tw.ring_attention(q, k, v, cu_seqlens=[0, 9, 3], **known),
            "an out of another shape": lambda: tw.ring_attention(q, k, v, out=out[:1], **known),
            "an out that is q": lambda: tw.ring_attention(q, k, v, out=q, **known),
            "an infinite scale in 32 bits": lambda: tw.ring_attention(q, k, v, scale=1e39, **known),
            "no positions of keys": lambda: tw.ring_attention(q, k, v, **{**known, "positions": (w.places, [])}),
            "too few positions": lambda: tw.ring_attention(q, k, v, **{**known, "positions": [1, 2]}),
        }.items():
            checks[f"{name}: refused"] = outcome(call)["error"] == "InvalidArgument"
        again("and does no harm", q, k, v)
    return checks


def same_bits_again() -> dict[str, Any]:
    """Whether 30 calls give the same bits, with poison in what they write."""
    with tw.init(deadline_s=40, connect_deadline_s=40) as comm:
        w = Whole(comm)
        known: dict[str, Any] = {"causal": True, "positions": "zigzag", "rows": w.rows}
        first = tw.ring_attention(*w.own, **known)
        wrong = 0
        for _ in range(30):
            out = np.full(w.own[0].shape, np.nan, BF16)
            o, lse = tw.ring_attention(*w.own, out=out, **known)
            wrong += not (same(o, first[0]) and same(lse, first[1]))
        return {"wrong": wrong, "is_right": w.is_right(first)}


def disagreement(what: str) -> dict[str, Any]:
    """The last rank makes another call than the others."""
    with tw.init(deadline_s=40, connect_deadline_s=40) as comm:
        w = Whole(comm, "contiguous")
        known: dict[str, Any] = {"rows": w.rows}
        if comm.rank == comm.world_size - 1:
            known |= {"causal": True} if what == "causal" else {"cu_seqlens": [0, 9]}
        return outcome(lambda: tw.ring_attention(*w.own, **known))


def plain_softmax(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """Softmax as it is written in a book, in double, a row of a head at a time."""
    shared = q.shape[2] // k.shape[2]
    o = np.zeros(q.shape)
    for b, s, h in np.ndindex(*q.shape[:3]):
        keys, values = k[b, seen[s], h // shared], v[b, seen[s], h // shared]
        weights = np.exp(keys @ q[b, s, h] / np.sqrt(q.shape[3]))
        o[b, s, h] = weights @ values / weights.sum()
    return o


def torch_attention(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """torch's own, in double."""
    import torch

    shared = q.shape[2] // k.shape[2]
    heads = [torch.from_numpy(np.repeat(x, n, axis=2).swapaxes(1, 2)) for x, n in ((q, 1), (k, shared), (v, shared))]
    found = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=torch.from_numpy(seen))
    return found.numpy().swapaxes(1, 2)


def second_judge(name: str) -> dict[str, float]:
    """The largest difference between a call and the judge, and how far zeros would be off."""
    judge = {"plain": plain_softmax, "torch": torch_attention}[name]
    worst, of_zeros = 0.0, np.inf
    with tw.init(deadline_s=40, connect_deadline_s=40) as comm:
        for positions in ("contiguous", "zigzag"):
            w = Whole(comm, positions)
            for causal in (False, True):
                known: dict[str, Any] = {"rows": w.rows, "positions": positions, "causal": causal}
                o, _ = tw.ring_attention(*w.own, out_dtype="fp32", **known)
                whole = np.ones((len(w.places), ROWS), bool)
                seen = np.arange(ROWS)[None, :] <= w.places[:, None] if causal else whole
                expected = judge(*(x.astype(np.float64) for x in (w.own[0], w.k, w.v)), seen)
                worst = max(worst, float(np.abs(o - expected).max()))
                of_zeros = min(of_zeros, float(np.abs(expected).max()))
    return {"worst": worst, "of_zeros": of_zeros}
