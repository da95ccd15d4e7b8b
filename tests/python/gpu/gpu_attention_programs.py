"""What the ranks of the GPU's tests run of ring attention, against torch's own attention. See `gpu_programs`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from gpu_coded import GPU, Foreign
from torch.nn.functional import scaled_dot_product_attention

import tilewire as tw
from rank_programs import outcome

UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


class Attention:
    """One rank's part of a sequence, and what its rows have to give."""

    def __init__(
        self,
        comm: Any,
        rows: list[int] | None = None,
        kv_rows: list[int] | None = None,
        batch: int = 1,
        heads: tuple[int, int] = (4, 2),
        d: int = 128,
        dtype: torch.dtype = torch.bfloat16,
        causal: bool = False,
        positions: str = "contiguous",  # or zigzag, or "striped"
        cu_seqlens: list[int] | None = None,
        seed: int = 0,
    ) -> None:
        self.rows = rows or [192] * comm.world_size
        self.kv_rows = kv_rows or self.rows
        self.rank, self.batch, self.heads, self.d, self.dtype = comm.rank, batch, heads, d, dtype
        self.places, self.kv_places = (self._places(positions, counts) for counts in (self.rows, self.kv_rows))
        self.options: dict[str, Any] = {"causal": causal, "rows": self.rows, "kv_rows": self.kv_rows}
        if positions == "striped":
            self.options["positions"] = (self.places.tolist(), self.kv_places.tolist())
        elif positions != "contiguous":
            self.options["positions"] = positions
        if cu_seqlens is not None:
            self.options["cu_seqlens"] = cu_seqlens
        self.sees = self._sees(causal, cu_seqlens)
        self.set_seed(seed)
        self.q, self.k, self.v = self.own()

    def _places(self, positions: str, counts: list[int]) -> torch.Tensor:
        """Which row of the whole sequence each own row is."""
        total, ranks = sum(counts), len(counts)
        if positions == "zigzag":
            length = -(-total // (2 * ranks))
            blocks = [torch.arange(min(total, n * length), min(total, (n + 1) * length)) for n in range(2 * ranks)]
            return torch.cat([blocks[self.rank], blocks[2 * ranks - 1 - self.rank]]).to(GPU)
        if positions == "striped":
            assert len({*counts}) == 1
            return torch.arange(self.rank, total, ranks, device=GPU)
        ends = list(accumulate(counts, initial=0))
        return torch.arange(ends[self.rank], ends[self.rank + 1], device=GPU)

    def _sees(self, causal: bool, begins: list[int] | None) -> torch.Tensor:
        p, j = self.places[:, None], torch.arange(sum(self.kv_rows), device=GPU)[None, :]
        seen = torch.ones((len(self.places), sum(self.kv_rows)), dtype=torch.bool, device=GPU)
        if begins is None:
            return seen & (j <= p + sum(self.kv_rows) - sum(self.rows)) if causal else seen
        ends = torch.tensor(begins, device=GPU)
        document, of_key = (torch.searchsorted(ends, x.contiguous(), right=True) for x in (p, j))
        seen = (document == of_key) & (document < len(begins)) & (p < begins[-1]) & (j < begins[-1])
        return seen & (j <= p) if causal else seen

    def set_seed(self, seed: int) -> None:
        numbers = torch.Generator(GPU).manual_seed(seed)  # the same on all ranks

        def whole(counts: list[int], heads: int) -> torch.Tensor:
            shape = (self.batch, sum(counts), heads, self.d)
            return torch.randn(shape, generator=numbers, device=GPU).to(self.dtype)

        self.whole = [whole(self.rows, self.heads[0]), *(whole(self.kv_rows, self.heads[1]) for _ in "kv")]

    def own(self) -> list[torch.Tensor]:
        q, k, v = self.whole
        return [q[:, self.places].contiguous(), k[:, self.kv_places].contiguous(), v[:, self.kv_places].contiguous()]

    def change(self, seed: int) -> None:
        """Other values in the same memory, in stream order."""
        self.set_seed(seed)
        for mine, new in zip((self.q, self.k, self.v), self.own(), strict=True):
            mine.copy_(new)

    def call(self, q: Any = None, k: Any = None, v: Any = None, **options: Any) -> Any:
        arrays = [mine if one is None else one for one, mine in ((q, self.q), (k, self.k), (v, self.v))]
        return tw.ring_attention(*arrays, **{**self.options, **options})

    def wrong(self, result: Any) -> str:
        """ "" or how far a call's results are from those of torch in 64 bits."""
        o, lse = result
        shape = tuple(self.q.shape)
        if not isinstance(o, torch.Tensor) or o.device != GPU or o.dtype != self.dtype or tuple(o.shape) != shape:
            return f"o is a {type(o).__name__} of {getattr(o, 'dtype', None)}, {getattr(o, 'shape', None)}"
        if lse.dtype != torch.float32 or tuple(lse.shape) != (shape[0], shape[2], shape[1]):
            return f"lse is of {lse.dtype}, {lse.shape}"
        shared = self.heads[0] // self.heads[1]
        q = self.q.double().transpose(1, 2)
        k, v = (x.double().transpose(1, 2).repeat_interleave(shared, 1) for x in self.whole[1:])
        has_key = self.sees.any(1)
        if o.numel() == 0:
            return ""
        if bool(has_key.any()):
            want, size = (
                scaled_dot_product_attention(q[:, :, has_key], k, x, attn_mask=self.sees[has_key]).transpose(1, 2)
                for x in (v, v.abs())
            )
            # Weights are rounded to the dtype of the values.
            allowed = 1.05 * UNIT[self.dtype] * (want.abs() + size) + 1e-6
            if not bool(((o[:, has_key].double() - want).abs() <= allowed).all()):
                return f"o is off by {(o[:, has_key].double() - want).abs().max()}, within {allowed.max()}"
            scores = (q[:, :, has_key] @ k.transpose(2, 3) * self.d**-0.5).masked_fill(~self.sees[has_key], -torch.inf)
            sums = scores.logsumexp(-1)
            if not bool(((lse[:, :, has_key].double() - sums).abs() <= 2e-5 + 2e-6 * sums.abs()).all()):
                return f"lse is off by {(lse[:, :, has_key].double() - sums).abs().max()}"
        none = bool((o[:, ~has_key] == 0).all()) and bool((lse[:, :, ~has_key] == -torch.inf).all())
        return "" if none else "rows without keys are not zeros with a logarithm of -inf"


def values() -> dict[str, str]:
    """By what is special about a call: "" or what is wrong with its results."""
    warnings.simplefilter("ignore", RuntimeWarning)
    found: dict[str, str] = {}
    with tw.init() as comm:
        ranks = comm.world_size
        total = 100 * ranks
        shapes: dict[str, dict[str, Any]] = {
            "even": {},
            "causal": {"causal": True},
            "heads of 64, fp16": {"d": 64, "dtype": torch.float16, "causal": True},
            "one head for all": {"heads": (8, 1)},
            "28 heads over 4": {"heads": (28, 4), "rows": [65] * ranks},
            "uneven, none on rank 0": {"rows": [0, *[130] * (ranks - 1)], "causal": True},
            "more keys than queries": {"rows": [7] * ranks, "kv_rows": [150] * ranks, "causal": True},
            "more queries than keys": {"rows": [150] * ranks, "kv_rows": [7] * ranks, "causal": True},
            "no keys": {"kv_rows": [0] * ranks},
            "no rows": {"rows": [0] * ranks},
            "two batch entries": {"batch": 2, "rows": [90] * ranks},
            "zigzag": {"rows": tw.shard_rows(999, ranks, positions="zigzag"), "positions": "zigzag", "causal": True},
            "striped": {"rows": [100] * ranks, "positions": "striped", "causal": True},
            "documents": {"rows": [100] * ranks, "causal": True, "cu_seqlens": [0, 13, 13, total // 2 + 3, total - 4]},
            "documents, full": {"rows": [100] * ranks, "cu_seqlens": [0, total // 3, total]},
            "larger": {"rows": [1500] * ranks, "heads": (8, 4), "causal": True},
        }
        for name, options in shapes.items():
            for seed in range(3):  # the third one is like one before
                one = Attention(comm, seed=seed, **options)
                found[name] = one.wrong(one.call()) or found.get(name, "")
        found |= _operands(comm)
        report = comm.last_call
        found["report"] = "" if report.seconds == 0 and "tile_rows" in report.plan_json else str(report)
        comm.synchronize()
    return found


def _operands(comm: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    one = Attention(comm, seed=4)
    padded = torch.nn.functional.pad(one.q, (8, 24))[..., 8:-24]
    for name, q in {
        "laid out as [B, H, S, D]": one.q.transpose(1, 2).contiguous().transpose(1, 2),
        "part of a larger array": padded,
        "at an odd place": torch.nn.functional.pad(one.q, (1, 2))[..., 1:-2],
        "every second column": torch.repeat_interleave(one.q, 2, dim=-1)[..., ::2],
        "DLPack": Foreign(one.q),
    }.items():
        found[f"q: {name}"] = one.wrong(one.call(q=q))
    keys = one.k.transpose(1, 2).contiguous().transpose(1, 2)
    found["k: laid out as [B, H, S, D]"] = one.wrong(one.call(k=keys))
    same = one.call(k=one.k[:, :, :1].expand_as(one.k), v=one.v[:, :, :1].expand_as(one.v))
    alone = Attention(comm, seed=4, heads=(4, 1))
    alone.q.copy_(one.q)
    found["expanded keys"] = (
        "" if torch.equal(same[0], alone.call(k=one.k[:, :, :1], v=one.v[:, :, :1])[0]) else "other bits"
    )
    out = torch.full_like(one.q, torch.nan)
    for again in range(3):
        o, lse = one.call(out=out)
        found[f"out, call {again}"] = ("" if o is out else "another one") + one.wrong((o, lse))
        out.fill_(torch.nan)
    room = torch.full((out.numel() + 9,), 7.0, dtype=one.dtype, device=GPU)
    odd = room[1 : 1 + out.numel()].view(out.shape)
    found["out at an odd place"] = one.wrong(one.call(out=odd))
    found["nothing around out is touched"] = "" if bool((room[out.numel() + 1 :] == 7).all()) else "it is"
    found["scale"] = "" if not one.wrong(one.call(scale=128**-0.5)) and one.wrong(one.call(scale=1.0)) else "ignored"
    placed = comm.empty(tuple(one.q.shape), one.dtype)
    placed.copy_(one.q)
    found["q in the arena"] = one.wrong(one.call(q=placed))
    handle = tw.RingAttention(one.rows, one.heads, one.d)
    for seed in range(3):
        one.change(20 + seed)
        found[f"handle, call {seed}"] = one.wrong(handle(one.q, one.k, one.v))
    found["plan"] = one.wrong(one.call(plan=handle.plan))
    found["handle explains"] = "" if handle.explain() and "tile_rows" in handle.plan else handle.explain()
    comm.synchronize()
    return found


def streams() -> dict[str, str]:
    """Calls on two streams, behind what is there and in front of what reads them; also with documents of their own."""
    found: dict[str, str] = {}
    with tw.init() as comm:
        one = Attention(comm, causal=True)
        side, other = torch.cuda.Stream(), torch.cuda.Stream()
        found["first"] = one.wrong(one.call())
        wrong = [""]
        for seed in range(6):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000)  # the inputs change behind it, and the call must wait for them
                one.change(30 + seed)
                wrong.append(one.wrong(one.call()))
            torch.cuda.current_stream().wait_stream(side)
        found["on a side stream, behind what is there"] = max(wrong)
        torch.cuda.synchronize()
        wrong = [""]
        for seed in range(6):
            one.change(40 + seed)
            going = one.k.clone()
            torch.cuda.synchronize()
            with torch.cuda.stream(other):
                torch.cuda._sleep(4_000_000)
            result = one.call(k=going, stream=other)
            del going
            torch.full_like(one.k, 99.0)
            other.synchronize()
            wrong.append(one.wrong(result))
        found["keys that go"] = max(wrong)
        total = sum(one.rows)
        packed = [Attention(comm, causal=True, cu_seqlens=[0, 5 + 9 * n, total // 2, total]) for n in range(11)]
        torch.cuda.synchronize()
        kept = []
        for i in range(110):
            with torch.cuda.stream(side if i % 3 else other):
                kept.append(packed[i * 3 % 11].call())
        torch.cuda.synchronize()
        found["110 packed calls on two streams"] = max(packed[i * 3 % 11].wrong(kept[i]) for i in range(0, 110, 7))
        comm.synchronize()
    return found


def graphs() -> dict[str, Any]:
    """Captured once and replayed with inputs changed in place: the bits of eager calls."""
    found: dict[str, Any] = {}
    with tw.init() as comm:
        one = Attention(comm, causal=True)
        packed = Attention(comm, rows=[100] * comm.world_size, d=64, cu_seqlens=[0, 30, 100 * comm.world_size])
        for _ in range(2):
            one.call()
            packed.call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o, lse = one.call()
            p = packed.call()
        comm.barrier()
        unlike = torch.zeros((), dtype=torch.int64, device=GPU)
        for round_ in range(20):
            one.change(50 + round_)
            eager = one.call()
            for _ in range(50):
                o.fill_(torch.nan)
                lse.fill_(torch.nan)
                graph.replay()
                unlike += (o != eager[0]).sum() + (lse != eager[1]).sum()
        torch.cuda.synchronize()
        found["1000 replays have the bits of eager calls"] = "" if int(unlike) == 0 else f"{int(unlike)} have not"
        packed.change(7)
        graph.replay()
        found["a replay"] = one.wrong((o, lse))
        found["documents in the graph"] = packed.wrong(p)
        found["a call behind replays"] = one.wrong(one.call())

        def capture(new: Attention) -> Callable[[], None]:
            def run() -> None:
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    new.call()

            return run

        torch.cuda.synchronize()
        found["capture of a new shape"] = outcome(capture(Attention(comm, rows=[9] * comm.world_size)))
        total = sum(packed.rows)
        found["capture of new documents"] = outcome(
            capture(Attention(comm, rows=packed.rows, d=64, cu_seqlens=[0, 31, total]))
        )
        found["capture of given positions"] = outcome(
            capture(Attention(comm, rows=packed.rows, d=64, positions="striped"))
        )
        comm.barrier()
        found["after"] = one.wrong(one.call())
        torch.cuda.synchronize()
        comm.synchronize()
        del graph
    return found


def refusals() -> dict[str, Any]:
    """Calls that every rank refuses, by name of what is wrong; "after" is a good call at the end."""
    found: dict[str, Any] = {}
    with tw.init() as comm:
        one = Attention(comm)

        def refuse(name: str, **options: Any) -> None:
            found[name] = outcome(lambda: one.call(**options))

        refuse("host tensor", q=one.q.cpu())
        refuse("fp32", q=one.q.float(), k=one.k.float(), v=one.v.float())
        refuse("result of another dtype", out_dtype="fp32")
        refuse("scale of 0", scale=0.0)
        refuse("three axes", q=one.q[0])
        refuse("host out", out=one.q.cpu())
        refuse("out has the wrong shape", out=one.q[:, :5].contiguous())
        refuse("out overlaps q", out=one.q)
        refuse("plan of CPU ranks", plan=tw.plan_ring_attention(one.rows, one.heads, one.d, nodes=[comm.world_size]))
        far = [2**31 + n for n in range(one.rows[0])]
        refuse("positions of 32 bits", positions=far)
        found["after"] = one.wrong(one.call())
        comm.synchronize()
    return found


def disagreements() -> dict[str, Any]:
    """By name of what differs: what each rank got; each on a communicator of its own."""
    found: dict[str, Any] = {}

    def differ(name: str, call: Callable[[Attention, bool], Any], **options: Any) -> None:
        with tw.init() as comm:
            one = Attention(comm, **options)
            one.call()
            comm.synchronize()
            comm.barrier()

            def attempt() -> None:
                call(one, comm.rank == comm.world_size - 1)
                comm.synchronize()

            found[name] = outcome(attempt)
            found[name]["check"] = outcome(comm.check)["error"]

    differ("causal", lambda one, last: one.call(causal=last))
    differ("documents", lambda one, last: one.call(cu_seqlens=[0, 8 + last, 20]), cu_seqlens=[0, 8, 20])
    differ("refused by one", lambda one, last: one.call(q=one.q[0] if last else one.q))
    with tw.init(device="cpu") as comm:
        on_gpu = torch.zeros((1, 8, 1, 64), dtype=torch.bfloat16, device=GPU)
        found["GPU tensor on CPU ranks"] = outcome(lambda: tw.ring_attention(on_gpu, on_gpu, on_gpu))
        comm.barrier()
    return found


def cupy_arrays() -> dict[str, str]:
    """ "" for each, or what is wrong; {"absent": ""} where there is no CuPy."""
    try:
        import cupy
    except ImportError:
        return {"absent": ""}
    found: dict[str, str] = {}
    with tw.init() as comm:
        one = Attention(comm, dtype=torch.float16, d=64, causal=True)
        arrays = {name: cupy.from_dlpack(x) for name, x in (("q", one.q), ("k", one.k), ("v", one.v))}
        o, lse = one.call(**arrays)
        found["type"] = "" if isinstance(o, cupy.ndarray) and isinstance(lse, cupy.ndarray) else type(o).__name__
        found["values"] = one.wrong((torch.from_dlpack(o), torch.from_dlpack(lse)))
        side = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with side:
            found["side stream"] = one.wrong(tuple(torch.from_dlpack(x) for x in one.call(**arrays)))
        comm.synchronize()
    return found
