"""Programs of the GPU's tests that look at values alone; see `gpu_programs`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from gpu_coded import BF16, GPU, Coded, Foreign, K, N, to_gpu, to_numpy

import tilewire as tw
from tilewire.coded_data import coded_bias
from tilewire.demo_cases import odd_cases, run_case
from tilewire.gpu.demo_machine import GpuMachine


def values() -> dict[str, str]:
    """By what is special about a call: "" or what is wrong with its result."""
    warnings.simplefilter("ignore", RuntimeWarning)
    found: dict[str, str] = {}
    with tw.init() as comm:
        assert comm.device == "cuda:0"
        ranks = range(comm.world_size)
        uneven = [300, 0, 217, 130][: comm.world_size]
        for name, options in {
            "even": {},
            "uneven": {"rows": uneven},
            "no rows": {"rows": [0] * comm.world_size},
            "one row": {"rows": [1] * comm.world_size, "k": 8, "n": 8},
            "odd sizes": {"rows": [127 - r for r in ranks], "k": 131, "n": 211},
            "K = 1, N = 1": {"rows": [9] * comm.world_size, "k": 1, "n": 1},
            "no columns": {"n": 0},
            "fp16": {"dtype": np.float16, "k": 72, "n": 96},
            "larger": {"rows": [1000] * comm.world_size, "k": 2048, "n": 1024},
        }.items():
            for seed in range(3):
                d = Coded(comm, seed=seed, **options)
                rows = None if len(set(d.rows)) == 1 else d.rows
                found[name] = d.wrong(tw.all_gather_matmul(d.a, d.b, rows=rows)) or found.get(name, "")
                found[f"{name}, [N, K]"] = d.wrong(tw.all_gather_matmul(d.a, to_gpu(d.host_b.T).T, rows=rows))
        found["rows exchanged"] = (d := Coded(comm, uneven, seed=3)).wrong(
            tw.all_gather_matmul(d.a, d.b, rows="exchange")
        )
        alone = Coded(comm, [0] * (comm.world_size - 1) + [9], seed=5)
        found["rows exchanged, none on most ranks"] = alone.wrong(
            tw.all_gather_matmul(alone.a, alone.b, rows="exchange")
        )
        found |= _operands(comm) | _lists(comm) | _types(comm, uneven) | _gathered(comm, uneven)
        report = comm.last_call
        found["report"] = "" if report.seconds == 0 and "tile_rows" in report.plan_json else str(report)
        comm.synchronize()
    return found


def _operands(comm: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    d = Coded(comm, seed=4)
    total = sum(d.rows)
    wide = torch.zeros((400, 600), dtype=torch.bfloat16, device=GPU)
    wide[3 : 3 + d.a.shape[0], 7 : 7 + K] = d.a
    views = {
        "part of a larger array": wide[3 : 3 + d.a.shape[0], 7 : 7 + K],
        "every second column": torch.stack([d.a, d.a], 2)[:, :, 0],
        "column order": d.a.T.contiguous().T,
        "a row apart": torch.cat([d.a, d.a], 1)[:, :K],
    }
    for name, a in views.items():
        found[f"a: {name}"] = d.wrong(tw.all_gather_matmul(a, d.b))
    found["b: part of a larger array"] = d.wrong(
        tw.all_gather_matmul(d.a, torch.nn.functional.pad(d.b, (5, 5))[:, 5:-5])
    )
    bias = coded_bias(N)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        host = to_numpy(to_gpu(bias).to(dtype))
        found[f"bias {dtype}"] = d.wrong(tw.all_gather_matmul(d.a, d.b, bias=to_gpu(bias).to(dtype)), bias=host)
    strided = torch.repeat_interleave(to_gpu(bias), 2)[::2]
    found["bias strided"] = d.wrong(tw.all_gather_matmul(d.a, d.b, bias=strided), bias=bias)
    out = torch.full((total, N), torch.nan, dtype=torch.bfloat16, device=GPU)
    found["out"] = d.wrong(out) and d.wrong(tw.all_gather_matmul(d.a, d.b, out=out))
    found["out is given back"] = "" if tw.all_gather_matmul(d.a, d.b, out=out) is out else "another one"
    room = torch.full((total + 2, N + 10), 7.0, dtype=torch.bfloat16, device=GPU)
    tw.all_gather_matmul(d.a, d.b, out=room[1:-1, 5:-5])
    found["out is part of a larger array"] = d.wrong(room[1:-1, 5:-5])
    room[1:-1, 5:-5] = 7
    found["nothing around out is touched"] = "" if bool((room == 7).all()) else "it is"
    odd = Coded(comm, n=7, seed=5)
    beside = torch.full((total, 8), 7.0, dtype=torch.bfloat16, device=GPU)
    found["out of 7 columns"] = odd.wrong(tw.all_gather_matmul(odd.a, odd.b, out=beside[:, :7]))
    found["nothing beside it is touched"] = "" if bool((beside[:, 7] == 7).all()) else "it is"
    a, b = Foreign(d.a), Foreign(d.b)
    found["DLPack"] = d.wrong(tw.all_gather_matmul(a, b))
    found["DLPack stream"] = "" if a.streams == [1] and b.streams == [1] else str(a.streams)
    placed = comm.empty(tuple(d.a.shape), torch.bfloat16)
    placed.copy_(d.a)
    found["a in the arena"] = d.wrong(tw.all_gather_matmul(placed, d.b))
    found["arena array"] = "" if comm.empty((3, 4)).shape == (3, 4) else "shape"
    comm.synchronize()
    return found


def _types(comm: Any, uneven: list[int]) -> dict[str, str]:
    """Results of other dtypes than the inputs."""
    found: dict[str, str] = {}
    bias = coded_bias(N)
    for inputs, results in (
        (BF16, torch.float32),
        (np.float16, torch.float32),
        (BF16, torch.float16),
        (np.float16, torch.bfloat16),
    ):
        name = f"{np.dtype(inputs)} to {results}"
        d = Coded(comm, uneven, dtype=inputs, seed=9)
        y = tw.all_gather_matmul(d.a, d.b, rows=d.rows, out_dtype=results)
        found[name] = d.wrong(y, dtype=results)
        y = tw.all_gather_matmul(d.a, to_gpu(d.host_b.T).T, rows=d.rows, bias=to_gpu(bias), out_dtype=results)
        found[f"{name}, bias, [N, K]"] = d.wrong(y, bias=bias, dtype=results)
        out = torch.full((sum(d.rows), N), torch.nan, dtype=results, device=GPU)
        for again in range(3):  # one that is like another takes another way
            found[f"{name}, out {again}"] = d.wrong(
                tw.all_gather_matmul(d.a, d.b, rows=d.rows, out=out), dtype=results
            ) or ("" if tw.all_gather_matmul(d.a, d.b, rows=d.rows, out=out) is out else "another one")
    odd = Coded(comm, k=131, n=7, seed=5)
    odd_y = tw.all_gather_matmul(odd.a, odd.b, out_dtype="fp32")
    found["odd sizes in fp32"] = odd.wrong(odd_y, dtype=torch.float32)
    beside = torch.full((sum(odd.rows), 8), 7.0, device=GPU)
    tw.all_gather_matmul(odd.a, odd.b, out=beside[:, :7])
    found["7 columns of fp32"] = odd.wrong(beside[:, :7], dtype=torch.float32)
    found["nothing beside fp32 is touched"] = "" if bool((beside[:, 7] == 7).all()) else "it is"
    exact = to_gpu(odd.whole.astype(np.float32)) @ to_gpu(odd.host_b.astype(np.float32))
    found["fp32 is not rounded"] = "" if torch.equal(odd_y, exact) else "it is"
    nothing = Coded(comm, k=0, seed=2)
    found["K = 0"] = nothing.wrong(tw.all_gather_matmul(nothing.a, nothing.b))
    y = tw.all_gather_matmul(nothing.a, nothing.b.T.contiguous().T, bias=to_gpu(bias), out_dtype="fp32")
    found["K = 0, bias, fp32"] = nothing.wrong(y, bias=bias, dtype=torch.float32)
    return found


def _gathered(comm: Any, uneven: list[int]) -> dict[str, str]:
    """The gathered rows as a result."""
    found: dict[str, str] = {}
    for name, options in {
        "even": {},
        "uneven": {"rows": uneven},
        "odd sizes": {"k": 131, "n": 7},
        "K = 0": {"k": 0},
        "no columns": {"n": 0},
        "no rows": {"rows": [0] * comm.world_size},
        "fp16": {"dtype": np.float16},
        "larger": {"rows": [700] * comm.world_size, "k": 1024},
    }.items():
        kept = []
        for seed in range(3):  # what a call gave is the caller's: later calls leave it alone
            d = Coded(comm, seed=seed, **options)
            rows = None if len(set(d.rows)) == 1 else d.rows
            kept.append((d, *tw.all_gather_matmul(d.a, d.b, rows=rows, return_gathered=True)))
        for seed, (d, y, gathered) in enumerate(kept):
            found[f"gathered: {name}, call {seed}"] = d.wrong(y) or d.wrong_gathered(gathered)
    d = Coded(comm, uneven, seed=8)
    _, gathered = tw.all_gather_matmul(d.a, d.b, rows="exchange", return_gathered=np.True_)
    found["gathered: rows exchanged"] = d.wrong_gathered(gathered)
    bias = coded_bias(N)
    products, gathered = tw.all_gather_matmul(
        d.a, [d.b, d.b[:, :7]], rows=d.rows, bias=[to_gpu(bias), None], out_dtype="fp32", return_gathered=True
    )
    found["gathered: list"] = (
        d.wrong(products[0], bias=bias, dtype=torch.float32)
        or d.wrong(products[1], b=d.host_b[:, :7], dtype=torch.float32)
        or d.wrong_gathered(gathered)
    )
    both = tw.AllGatherMatmul(d.rows, K, [N, N], return_gathered=True, out_dtype=np.float32)
    for again in range(3):  # one that is like another must not go without its gathered rows
        products, gathered = both(d.a, [d.b, d.b], bias=[None, to_gpu(bias)])
        found[f"gathered: handle, call {again}"] = d.wrong(
            products[1], bias=bias, dtype=torch.float32
        ) or d.wrong_gathered(gathered)
    return found


def odd_shapes() -> dict[str, str]:
    """The cases of all operations that GPU ranks can run: "" or the message of what went wrong."""
    with tw.init() as comm:
        machine = GpuMachine(comm)
        results = [run_case(case, machine) for case in odd_cases(comm.world_size) if case.on_gpu]
    return {f"{result.op}: {result.name}": "" if result.ok else result.message for result in results}


def same_bits_again() -> dict[str, str]:
    """First epochs near 2^32, calls of changing rows, ranks that come at other times: the same bits each time."""
    found: dict[str, str] = {}
    with tw.init(first_epoch=2**32 - 3) as comm:
        for repeat in range(12):
            rows = [5 + 70 * ((rank + repeat) % 3) for rank in range(comm.world_size)]
            d = Coded(comm, rows, k=264, n=104, seed=repeat)
            noise = torch.randn_like(d.a, dtype=torch.float32).to(d.a.dtype)  # sums that are not exact
            once = tw.all_gather_matmul(noise, d.b, rows=rows)
            torch.cuda._sleep(1 + 400_000 * ((comm.rank + repeat) % 3))
            again = tw.all_gather_matmul(noise, d.b, rows=rows)
            found[f"repeat {repeat}"] = d.wrong(tw.all_gather_matmul(d.a, d.b, rows=rows)) or (
                "" if torch.equal(once, again) else "the same call gave other bits"
            )
        comm.synchronize()
    return found


def _lists(comm: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    d = Coded(comm, seed=6)
    bias = coded_bias(N)
    narrow = d.host_b[:, :7]
    weights = [d.b, d.b[:, :7], to_gpu(np.zeros((K, 0), BF16)), to_gpu(d.host_b.T).T, to_gpu(d.host_b[:, :1])]
    products = tw.all_gather_matmul(d.a, weights, bias=[None, to_gpu(bias[:7]), None, to_gpu(bias), None])
    for i, (host, one) in enumerate(
        [(d.host_b, None), (narrow, bias[:7]), (d.host_b[:, :0], None), (d.host_b, bias), (d.host_b[:, :1], None)]
    ):
        found[f"weight {i} of a list"] = d.wrong(products[i], bias=one, b=host)
    (single,) = tw.all_gather_matmul(d.a, [d.b])
    found["list of one weight"] = d.wrong(single)
    handle = tw.AllGatherMatmul(d.rows, K, N)
    for seed in range(4):
        d.change(20 + seed)
        found[f"handle, call {seed}"] = d.wrong(handle(d.a, d.b))
    found["handle, [N, K]"] = d.wrong(handle(d.a, to_gpu(d.host_b.T).T))
    found["handle explains"] = "" if handle.explain() and "tile_rows" in handle.plan else handle.explain()
    forced = tw.all_gather_matmul(d.a, d.b, plan=handle.plan)
    found["plan"] = d.wrong(forced)
    return found
