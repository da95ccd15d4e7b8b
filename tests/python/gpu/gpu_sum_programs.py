"""What the ranks of the GPU's tests run of the operations that sum products over ranks; each takes the operation's
name. See `gpu_programs`."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpu_coded import GPU, Foreign, to_gpu, to_numpy
from gpu_sums import N, Sum

import tilewire as tw
from rank_programs import outcome


def values(op: str) -> dict[str, str]:
    """By what is special about a call: "" or what is wrong with its result."""
    warnings.simplefilter("ignore", RuntimeWarning)
    found: dict[str, str] = {}
    with tw.init() as comm:
        ranks = range(comm.world_size)
        shapes: dict[str, dict[str, Any]] = {
            "even": {"m": 192 * comm.world_size},
            "M not divisible": {"m": 301},
            "uneven rows": {"m": 517, "rows": [300, *[0] * (comm.world_size - 2), 217]},
            "fewer rows than ranks": {"m": 1, "n": 8, "k": 8},
            "no rows": {"m": 0},
            "no columns": {"n": 0},
            "odd sizes": {"m": 127, "k": 131, "n": 211},
            "K = 1, N = 1": {"m": 9, "k": 1, "n": 1},
            "another K on each rank": {"k": [24 + 8 * rank for rank in ranks]},
            "K = 0 on rank 0": {"k": [0, *[64] * (comm.world_size - 1)]},
            "K = 0 on all but one rank": {"k": [*[0] * (comm.world_size - 1), 72]},
            "K = 0 everywhere": {"k": 0},
            "fp16": {"dtype": np.float16, "k": 72, "n": 96},
            "larger": {"m": 1024, "k": 512, "n": 768},
        }
        for name, options in shapes.items():
            for seed in range(2):
                s = Sum(comm, op, seed=seed, **options)
                found[name] = s.wrong(s.call()) or found.get(name, "")
                stored = to_gpu(s.parts[s.rank][1].T).T
                found[f"{name}, [N, K]"] = s.wrong(s.call(b=stored)) or found.get(f"{name}, [N, K]", "")
                bias, residual = s.bias(), s.residual()
                y = s.call(bias=to_gpu(bias), residual=to_gpu(residual), wire_dtype="fp32", out_dtype="fp32")
                both = s.wrong(y, torch.float32, np.float32, bias, residual)
                found[f"{name}, bias and residual, fp32"] = both or found.get(f"{name}, bias and residual, fp32", "")
        found |= _operands(comm, op)
        report = comm.last_call
        found["report"] = "" if report.seconds == 0 and "tile_rows" in report.plan_json else str(report)
        comm.synchronize()
    return found


def _operands(comm: Any, op: str) -> dict[str, str]:
    found: dict[str, str] = {}
    s = Sum(comm, op, seed=4)
    bias, residual = s.bias(), s.residual()
    shape = (s.own_rows, N)
    for name, a in {
        "part of a larger array": torch.nn.functional.pad(s.a, (5, 7))[:, 5:-7],
        "column order": s.a.T.contiguous().T,
        "DLPack": Foreign(s.a),
    }.items():
        found[f"a: {name}"] = s.wrong(s.call(a=a))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        y = s.call(bias=to_gpu(bias).to(dtype), residual=to_gpu(residual).to(dtype))
        found[f"bias and residual in {dtype}"] = s.wrong(y, bias=bias, residual=residual)
    columns = to_gpu(residual.T).T
    found["residual in column order"] = s.wrong(s.call(residual=columns), residual=residual)
    every_second = torch.repeat_interleave(to_gpu(residual), 2, dim=1)[:, ::2]
    found["residual of every second column"] = s.wrong(s.call(residual=every_second), residual=residual)
    for inputs, wire, results in (
        ("bf16", "bf16", torch.float32),
        ("bf16", "fp16", torch.float16),
        ("bf16", "fp32", torch.bfloat16),
        ("fp16", "fp16", torch.float32),
        ("fp16", "fp32", torch.bfloat16),
    ):
        other = Sum(comm, op, dtype=np.float16 if inputs == "fp16" else s.dtype, seed=9)
        # As numpy knows it: the checker asks what the wire rounds.
        numpy_wire = {"bf16": s.dtype, "fp16": np.float16, "fp32": np.float32}[wire]
        y = other.call(wire_dtype=wire, out_dtype=results)
        found[f"{inputs} over {wire} to {results}"] = other.wrong(y, results, numpy_wire)
    out = torch.full(shape, torch.nan, dtype=torch.bfloat16, device=GPU)
    for again in range(3):  # one that is like another takes another way
        found[f"out, call {again}"] = "" if s.call(out=out) is out else "another one"
        found[f"out, call {again}"] += s.wrong(out)
        out.fill_(torch.nan)
    room = torch.full((shape[0] + 2, N + 10), 7.0, dtype=torch.float32, device=GPU)
    s.call(out=room[1:-1, 5:-5])
    found["out is part of a larger array"] = s.wrong(room[1:-1, 5:-5], torch.float32)
    room[1:-1, 5:-5] = 7
    found["nothing around out is touched"] = "" if bool((room == 7).all()) else "it is"
    placed = comm.empty(tuple(s.a.shape), torch.bfloat16)
    placed.copy_(s.a)
    found["a in the arena"] = s.wrong(s.call(a=placed))
    handle = s.handle()
    for seed in range(3):
        s.change(20 + seed)
        found[f"handle, call {seed}"] = s.wrong(handle(s.a, s.b))
    found["plan"] = s.wrong(s.call(plan=handle.plan))
    found["handle explains"] = "" if handle.explain() and "tile_rows" in handle.plan else handle.explain()
    comm.synchronize()
    return found


def streams(op: str) -> dict[str, str]:
    """Calls on two streams, behind what is there and in front of what reads them."""
    found: dict[str, str] = {}
    with tw.init() as comm:
        s = Sum(comm, op)
        residual = to_gpu(s.residual())
        side, other = torch.cuda.Stream(), torch.cuda.Stream()
        found["first"] = s.wrong(s.call(residual=residual), residual=s.residual())
        wrong = [""]
        for seed in range(6):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000)  # the inputs change behind it, and the call must wait for them
                s.change(30 + seed)
                wrong.append(s.wrong(s.call(residual=residual), residual=s.residual()))
            torch.cuda.current_stream().wait_stream(side)
        found["on a side stream, behind what is there"] = max(wrong)
        torch.cuda.synchronize()
        # A residual that goes while a call on another stream is to read it: its memory must not be given away.
        wrong = [""]
        for seed in range(6):
            going = residual.clone()
            s.change(40 + seed)
            torch.cuda.synchronize()
            with torch.cuda.stream(other):
                torch.cuda._sleep(4_000_000)
            y = s.call(residual=going, stream=other)
            del going
            torch.full_like(residual, 99.0)
            other.synchronize()
            wrong.append(s.wrong(y, residual=s.residual()))
        found["a residual that goes"] = max(wrong)
        kept = []
        for i in range(150):
            with torch.cuda.stream(side if i % 3 else other):
                kept.append(s.call())
        torch.cuda.synchronize()
        found["150 calls on two streams"] = max(s.wrong(y) for y in kept[::15])
        comm.synchronize()
    return found


def graphs(op: str) -> dict[str, Any]:
    """Captured once and replayed with inputs changed in place: the bits of eager calls."""
    found: dict[str, Any] = {}
    with tw.init() as comm:
        s, odd = Sum(comm, op), Sum(comm, op, m=131, k=75, n=211)
        bias, residual = to_gpu(s.bias()), to_gpu(s.residual())
        for _ in range(2):
            s.call(bias=bias, residual=residual)
            odd.call(out_dtype="fp32", wire_dtype="fp32")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = s.call(bias=bias, residual=residual)
            z = odd.call(out_dtype="fp32", wire_dtype="fp32")
        comm.barrier()
        unlike = torch.zeros((), dtype=torch.int64, device=GPU)
        for round_ in range(20):
            # Sums that are not whole: the bits depend on the order in which they are added.
            noise = torch.Generator(GPU).manual_seed(100 * round_ + comm.rank)
            s.a.copy_(torch.randn(s.a.shape, generator=noise, device=GPU))
            eager = s.call(bias=bias, residual=residual)
            for _ in range(50):
                y.fill_(torch.nan)
                graph.replay()
                unlike += (y != eager).sum()
        torch.cuda.synchronize()
        found["1000 replays have the bits of eager calls"] = "" if int(unlike) == 0 else f"{int(unlike)} have not"
        s.change(7)
        odd.change(7)
        graph.replay()
        found["a replay"] = s.wrong(y, bias=s.bias(), residual=s.residual())
        found["the other one in the graph"] = odd.wrong(z, torch.float32, np.float32)
        found["a call behind replays"] = s.wrong(s.call())
        new = Sum(comm, op, k=64, n=24)

        def capture() -> None:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                new.call()

        torch.cuda.synchronize()
        found["capture of a new shape"] = outcome(capture)
        comm.barrier()
        found["after"] = new.wrong(new.call())
        torch.cuda.synchronize()
        comm.synchronize()
        del graph
    return found


def bits(op: str) -> dict[str, str]:
    """First epochs near 2^32, ranks that come at other times: what each call gave, and "" where it gave it again."""
    found: dict[str, str] = {}
    with tw.init(first_epoch=2**32 - 3) as comm:
        for repeat in range(10):
            s = Sum(comm, op, m=5 + 70 * (repeat % 4), k=264, n=104, seed=repeat)
            noise = torch.Generator(GPU).manual_seed(100 * repeat + comm.rank)
            a = torch.randn(s.a.shape, generator=noise, device=GPU).to(s.a.dtype)  # sums that are not exact
            once = s.call(a=a, out_dtype="fp32")
            torch.cuda._sleep(1 + 400_000 * ((comm.rank + repeat) % 3))
            same = torch.equal(once, s.call(a=a, out_dtype="fp32"))
            found[f"repeat {repeat}"] = s.wrong(s.call()) or ("" if same else "the same call gave other bits")
            found[f"bits {repeat}"] = hashlib.sha256(to_numpy(once).tobytes()).hexdigest()
        comm.synchronize()
    return found


def refusals(op: str) -> dict[str, Any]:
    """Calls that every rank refuses, by name of what is wrong; "after" is a good call at the end."""
    found: dict[str, Any] = {}
    with tw.init() as comm:
        s = Sum(comm, op)

        def refuse(name: str, **options: Any) -> None:
            found[name] = outcome(lambda: s.call(**options))

        refuse("host tensor", a=s.a.cpu())
        refuse("fp32", a=s.a.float(), b=s.b.float())
        refuse("a list of weights", b=[s.b, s.b])
        refuse("K differs", b=s.b[:-8])
        refuse("host residual", residual=s.residual())
        refuse("residual of another shape", residual=to_gpu(s.residual()[:, :-1]))
        refuse("host bias", bias=s.bias())
        refuse("out has the wrong shape", out=torch.zeros((5, N), dtype=torch.bfloat16, device=GPU))
        refuse("plan of CPU ranks", plan=_plan_of_cpus(op, s))
        found["after"] = s.wrong(s.call())
        comm.synchronize()
    return found


def _plan_of_cpus(op: str, s: Sum) -> Any:
    return getattr(tw, f"plan_{op}")(s.m, s.k[0], s.n, nodes=[len(s.k)])


def disagreements(op: str) -> dict[str, Any]:
    """By name of what differs: what each rank got; each on a communicator of its own."""
    found: dict[str, Any] = {}

    def differ(name: str, call: Callable[[Sum, bool], Any]) -> None:
        with tw.init() as comm:
            s = Sum(comm, op)
            s.call()
            comm.synchronize()
            comm.barrier()

            def attempt() -> None:
                call(s, comm.rank == comm.world_size - 1)
                comm.synchronize()

            found[name] = outcome(attempt)
            found[name]["check"] = outcome(comm.check)["error"]

    differ("N", lambda s, last: s.call(b=s.b[:, : N - 8 * last]))
    differ("wire_dtype", lambda s, last: s.call(wire_dtype="fp32" if last else "bf16"))
    differ("refused by one", lambda s, last: s.call(a=s.a[0] if last else s.a))
    with tw.init(device="cpu") as comm:
        on_gpu = torch.zeros((8, 8), dtype=torch.bfloat16, device=GPU)
        found["GPU tensor on CPU ranks"] = outcome(lambda: getattr(tw, op)(on_gpu, on_gpu))
        comm.barrier()
    return found


def cupy_arrays(op: str) -> dict[str, str]:
    """ "" for each, or what is wrong; {"absent": ""} where there is no CuPy."""
    try:
        import cupy
    except ImportError:
        return {"absent": ""}
    found: dict[str, str] = {}
    with tw.init() as comm:
        s = Sum(comm, op, dtype=np.float16, k=72, n=96)
        a, b = (cupy.asarray(x) for x in s.parts[s.rank])
        residual = cupy.asarray(s.residual())
        y = s.call(a=a, b=b, residual=residual)
        found["type"] = "" if isinstance(y, cupy.ndarray) else type(y).__name__
        found["values"] = s.wrong(torch.from_dlpack(y), residual=s.residual())
        side = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with side:
            found["side stream"] = s.wrong(torch.from_dlpack(s.call(a=a, b=b)))
        comm.synchronize()
    return found


def layers(op: str) -> dict[str, str]:
    """A gather and a sum in one graph, as of two layers: the bits of eager calls, and right ones."""
    found: dict[str, str] = {}
    with tw.init() as comm:
        width, own = 256, 64
        ones = torch.Generator(GPU).manual_seed(11)
        whole = torch.randint(-1, 2, (own * comm.world_size, width), generator=ones, device=GPU).to(torch.bfloat16)
        x = whole[own * comm.rank : own * (comm.rank + 1)].clone()
        up = torch.eye(width, device=GPU, dtype=torch.bfloat16)
        down = torch.randint(-1, 2, (width, 96), generator=ones, device=GPU).to(torch.bfloat16)

        def forward() -> Any:
            return getattr(tw, op)(tw.all_gather_matmul(x, up), down)

        first = forward()
        wanted = (whole.float() @ down.float() * comm.world_size).to(torch.bfloat16)
        mine = wanted[own * comm.rank : own * (comm.rank + 1)] if op == "matmul_reduce_scatter" else wanted
        found["eager"] = "" if torch.equal(first, mine) else "other values"
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = forward()
        comm.barrier()
        unlike = torch.zeros((), dtype=torch.int64, device=GPU)
        for _ in range(200):
            y.fill_(torch.nan)
            graph.replay()
            unlike += (y != first).sum()
        found["200 replays"] = "" if int(unlike) == 0 else f"{int(unlike)} elements differ"
        comm.synchronize()
        del graph
    return found
