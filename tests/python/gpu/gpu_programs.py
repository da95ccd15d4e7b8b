"""What the ranks of the GPU's tests run; see `rank_run`. Each function gives something that JSON can hold."""

from __future__ import annotations

import importlib
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpu_coded import BF16, GPU, Coded, Foreign, K, N, to_gpu, to_numpy

import tilewire as tw
from rank_programs import outcome
from tilewire.coded_data import coded_bias
from tilewire.demo_cases import odd_cases, run_case
from tilewire.gpu.demo_machine import GpuMachine


def one_after_the_other(*programs: str) -> dict[str, Any]:
    """What each of them gave, or {"raised": text}: the start of a process takes longer than most.

    A program is a function here, or MODULE.FUNCTION, with its arguments behind colons.
    """
    found: dict[str, Any] = {}
    for program in programs:
        name, *arguments = program.split(":")
        module, _, function = name.rpartition(".")
        begin = time.monotonic()
        try:
            found[program] = getattr(importlib.import_module(module or __name__), function)(*arguments)
        except Exception:
            found[program] = {"raised": traceback.format_exc()}
        print(f"{program}: {time.monotonic() - begin:.1f} s", flush=True)
    return found


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
        results = [run_case(case, machine) for case in odd_cases(comm.world_size) if getattr(case, "on_gpu", False)]
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


def streams() -> dict[str, Any]:
    """Calls on several streams, what is before and behind them there, and memory that goes back while they run."""
    found: dict[str, Any] = {}
    with tw.init() as comm:
        d = Coded(comm)
        side, other = torch.cuda.Stream(), torch.cuda.Stream()
        found["first"] = d.wrong(tw.all_gather_matmul(d.a, d.b))
        wrong = [""]
        for seed in range(10):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000)  # the inputs change behind it, and the call must wait for them
                d.change(30 + seed)
                y = tw.all_gather_matmul(d.a, d.b)
                wrong.append(d.wrong(y))
            torch.cuda.current_stream().wait_stream(side)
        found["on a side stream, behind what is there"] = max(wrong)
        side.synchronize()
        for name, given in {"stream": other, "handle": other.cuda_stream, "protocol": Protocol(other)}.items():
            d.change(50)
            torch.cuda.synchronize()
            y = tw.all_gather_matmul(d.a, d.b, stream=given)
            with torch.cuda.stream(other):
                found[f"stream= as {name}"] = d.wrong(y)
        torch.cuda.synchronize()
        # Inputs that go while a call on another stream is to read them: their memory must not be given away.
        wrong = [""]
        for seed in range(8):
            d.change(60 + seed)
            torch.cuda.synchronize()
            a = d.a.clone()
            torch.cuda.synchronize()
            with torch.cuda.stream(other):
                torch.cuda._sleep(4_000_000)
            y = tw.all_gather_matmul(a, d.b, stream=other)
            del a
            torch.full_like(d.a, 99.0)
            other.synchronize()
            wrong.append(d.wrong(y))
        found["inputs that go"] = max(wrong)
        d.change(70)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        kept = []
        for i in range(200):
            with torch.cuda.stream(side if i % 3 else other):
                kept.append(tw.all_gather_matmul(d.a, d.b))
        found["us to enqueue"] = (time.perf_counter() - begin) * 1e6 / 200
        torch.cuda.synchronize()
        found["200 calls on two streams"] = max(d.wrong(y) for y in kept[::20])
        comm.synchronize()
    return found


class Protocol:
    """A stream of a library that is not known: all that it has is the protocol."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream.cuda_stream


def graphs() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tw.init() as comm:
        d = Coded(comm)
        bias = to_gpu(coded_bias(N))
        odd = Coded(comm, k=131, n=211)
        for _ in range(2):
            found["eager"] = d.wrong(tw.all_gather_matmul(d.a, d.b, bias=bias), bias=coded_bias(N))
            tw.all_gather_matmul(odd.a, odd.b, return_gathered=True, out_dtype="fp32")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = tw.all_gather_matmul(d.a, d.b, bias=bias)
            z, gathered = tw.all_gather_matmul(odd.a, odd.b, return_gathered=True, out_dtype="fp32")
        comm.barrier()
        wrong = [""]
        for seed in range(100):
            if seed % 10 == 0:
                d.change(seed)
                odd.change(seed)
            graph.replay()
            if seed % 10 == 9:
                wrong += [d.wrong(y, bias=coded_bias(N)), odd.wrong(z, dtype=torch.float32)]
                wrong.append(odd.wrong_gathered(gathered))
        found["100 replays"] = max(wrong)
        found["a call behind replays"] = d.wrong(tw.all_gather_matmul(d.a, d.b))
        for _ in range(300):
            graph.replay()
        torch.cuda.synchronize()
        found["300 replays in a row"] = d.wrong(y, bias=coded_bias(N))
        new = Coded(comm, k=64, n=24)
        torch.cuda.synchronize()

        def capture(call: Callable[[], Any]) -> dict[str, Any]:
            def run() -> None:
                with torch.cuda.graph(torch.cuda.CUDAGraph()):
                    call()

            return outcome(run)

        found["capture of a new shape"] = capture(lambda: tw.all_gather_matmul(new.a, new.b))
        if comm.rank == 0:  # alone: nobody waits for it
            found["refusal in a capture"] = capture(lambda: tw.all_gather_matmul(new.a[0], new.b))
        comm.barrier()
        found["after"] = new.wrong(tw.all_gather_matmul(new.a, new.b))
        torch.cuda.synchronize()
        comm.synchronize()
        del graph
    return found


def refusals() -> dict[str, Any]:
    """Calls that every rank refuses, by name of what is wrong; "after" is a good call at the end."""
    found: dict[str, Any] = {}
    with tw.init() as comm:
        d = Coded(comm)

        def refuse(name: str, *arguments: Any, **options: Any) -> None:
            found[name] = outcome(lambda: tw.all_gather_matmul(*arguments, **options))

        refuse("host tensor", d.a.cpu(), d.b)
        refuse("numpy array", d.host_a, d.b)
        refuse("host weight", d.a, d.b.cpu())
        refuse("host bias", d.a, d.b, bias=coded_bias(N))
        refuse("host out", d.a, d.b, out=torch.zeros((sum(d.rows), N), dtype=torch.bfloat16))
        refuse("a list", [[1.0]], d.b)
        refuse("fp32", d.a.float(), d.b.float())
        refuse("int8", d.a.to(torch.int8), d.b)
        refuse("dtypes differ", d.a, d.b.half())
        refuse("b as [N, K]", d.a, d.b.T.contiguous())
        refuse("K differs", d.a, d.b[:-8])
        refuse("requires grad", d.a.clone().requires_grad_(), d.b)
        inside, beginning = _overlapping(d)
        refuse("out overlaps a", beginning, d.b[:, :K], out=inside)
        refuse("out has the wrong shape", d.a, d.b, out=torch.zeros((5, N), dtype=torch.bfloat16, device=GPU))
        refuse("out by DLPack", d.a, d.b, out=Foreign(d.a))
        refuse("stream is a word", d.a, d.b, stream="side")
        refuse("result is too large", d.a[:, :8], d.b[:8, :1].expand(8, 2**40))
        found["empty: no room"] = outcome(lambda: comm.empty(1 << 50, torch.bfloat16))
        found["after"] = d.wrong(tw.all_gather_matmul(d.a, d.b))
        comm.synchronize()
    return found


def timeline() -> dict[str, Any]:
    """The roles of a traced call, whether its times make sense, and events of a call behind the recording."""
    with tw.init() as comm:
        d = Coded(comm)
        tw.all_gather_matmul(d.a, d.b)
        with comm.trace() as recording:
            y = tw.all_gather_matmul(d.a, d.b)
        events = recording.events
        tw.all_gather_matmul(d.a, d.b)
        comm.synchronize()
        return {
            "wrong": d.wrong(y),
            "roles": sorted({event.role for event in events}),
            "in order": all(e.t_wait_ns >= 0 and e.t_begin_ns <= e.t_end_ns for e in events),
            "later": len(recording.events) - len(events),
        }


def _overlapping(d: Coded) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory for a result, and a shard at its beginning."""
    whole = torch.zeros((sum(d.rows), K), dtype=torch.bfloat16, device=GPU)
    return whole, whole[: d.a.shape[0]]


def disagreements() -> dict[str, Any]:
    """By name of what differs: what each rank got; each on a communicator of its own."""
    found: dict[str, Any] = {}

    def differ(name: str, call: Callable[[Any, Coded, bool], Any]) -> None:
        with tw.init() as comm:
            d = Coded(comm)
            tw.all_gather_matmul(d.a, d.b)
            comm.synchronize()
            comm.barrier()

            def attempt() -> None:
                call(comm, d, comm.rank == comm.world_size - 1)
                comm.synchronize()

            found[name] = outcome(attempt)

            def later() -> None:
                tw.all_gather_matmul(d.a, d.b)  # the news may be on its way to the rank that refused
                comm.synchronize()

            found[name]["later"] = outcome(later)["error"]
            found[name]["check"] = outcome(comm.check)["error"]

    differ("K", lambda c, d, last: tw.all_gather_matmul(d.a[:, : K - 8 * last], d.b[: K - 8 * last]))
    differ("refused by one", lambda c, d, last: tw.all_gather_matmul(d.a[0] if last else d.a, d.b))
    differ("host tensor on one", lambda c, d, last: tw.all_gather_matmul(d.a.cpu() if last else d.a, d.b))
    differ("fp32 on one", lambda c, d, last: tw.all_gather_matmul(*(x.float() if last else x for x in (d.a, d.b))))
    with tw.init(device="cpu") as comm:
        on_gpu = torch.zeros((8, 8), dtype=torch.bfloat16, device=GPU)
        found["GPU tensor on CPU ranks"] = outcome(lambda: tw.all_gather_matmul(on_gpu, on_gpu))
        found["stream on CPU ranks"] = outcome(lambda: tw.all_gather_matmul(on_gpu.cpu(), on_gpu.cpu(), stream=0))
        found["CPU ranks"] = comm.device
    return found


def dead_rank() -> dict[str, Any]:
    """The last rank is killed while the others wait for it in a call; their results are NaN then."""
    comm = tw.init()
    d = Coded(comm)
    for _ in range(2):
        tw.all_gather_matmul(d.a, d.b)
    torch.cuda.synchronize()
    comm.barrier()
    if comm.rank == comm.world_size - 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    y = tw.all_gather_matmul(d.a, d.b)

    def wait() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            comm.check()
            time.sleep(0.01)

    found = outcome(wait)
    torch.cuda.synchronize()
    last = y[-d.rows[-1] :]
    found["NaN"] = bool(torch.isnan(last.float()).all())
    found["next"] = outcome(lambda: tw.all_gather_matmul(d.a, d.b))["error"]
    found["close"] = outcome(comm.close)
    return found


def blocking_launches() -> dict[str, str]:
    """With CUDA_LAUNCH_BLOCKING=1, which the test sets."""
    found: dict[str, str] = {}
    with tw.init() as comm:
        for seed in range(3):
            d = Coded(comm, seed=seed)
            found[f"call {seed}"] = d.wrong(tw.all_gather_matmul(d.a, d.b))
        comm.synchronize()
    return found


def cupy_arrays() -> dict[str, Any]:
    """ "" for each, or what is wrong; {"absent": ""} where there is no CuPy."""
    try:
        import cupy
    except ImportError:
        return {"absent": ""}
    found: dict[str, Any] = {}
    with tw.init() as comm:
        d = Coded(comm, dtype=np.float16, k=72, n=96)
        a, b = cupy.asarray(d.host_a), cupy.asarray(d.host_b)
        y = tw.all_gather_matmul(a, b)
        found["type"] = "" if isinstance(y, cupy.ndarray) else type(y).__name__
        found["values"] = d.wrong(torch.from_dlpack(y))
        side = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with side:
            found["side stream"] = d.wrong(torch.from_dlpack(tw.all_gather_matmul(a, b)))
        odd = cupy.asarray(np.ascontiguousarray(d.host_b[:, :7]))
        found["odd"] = d.wrong(
            torch.from_dlpack(cupy.ascontiguousarray(tw.all_gather_matmul(a, odd))), b=d.host_b[:, :7]
        )
        comm.synchronize()
    return found


def compiled() -> dict[str, str]:
    """A call within a function that torch compiles: the graph breaks there, and the values are the same."""
    with tw.init() as comm:
        d = Coded(comm)

        def layer(a: Any, b: Any) -> Any:
            return tw.all_gather_matmul(a + 0, b)

        y = torch.compile(layer, backend="eager")(d.a, d.b)
        wrong = d.wrong(y)
        comm.synchronize()
        return {"compiled": wrong}


def latency(calls: str) -> dict[str, float]:
    """us that a call takes on the side of Python: the median of groups of 20, the GPU idle before each."""
    with tw.init() as comm:
        d = Coded(comm, rows=[128] * comm.world_size, k=1024, n=512)
        out = torch.empty((sum(d.rows), 512), dtype=torch.bfloat16, device=GPU)
        handle = tw.AllGatherMatmul(d.rows, 1024, 512)
        ways: dict[str, Callable[[], Any]] = {
            "all_gather_matmul": lambda: tw.all_gather_matmul(d.a, d.b),
            "all_gather_matmul, out": lambda: tw.all_gather_matmul(d.a, d.b, out=out),
            "AllGatherMatmul": lambda: handle(d.a, d.b),
            "torch.matmul": lambda: torch.matmul(d.a, d.b),
        }
        found: dict[str, float] = {}
        for name, way in ways.items():
            way()
            times = []
            for _ in range(int(calls)):
                torch.cuda.synchronize()
                comm.barrier()
                begin = time.perf_counter()
                for _ in range(20):
                    way()
                times.append((time.perf_counter() - begin) * 1e6 / 20)
            found[name] = float(np.median(times))
        torch.cuda.synchronize()
        comm.synchronize()
        return found
