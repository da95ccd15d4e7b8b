"""What the ranks of the GPU's tests run; see `rank_run`. Each function gives something that JSON can hold."""

from __future__ import annotations

import importlib
import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpu_coded import GPU, Coded, Foreign, K, N, to_gpu

import tilewire as tw
from rank_programs import outcome
from tilewire.coded_data import coded_bias


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
