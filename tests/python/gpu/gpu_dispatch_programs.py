"""What the ranks of the GPU's tests run of `moe_dispatch_matmul`. See `gpu_programs`."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gpu_coded import GPU, Foreign, to_gpu, to_numpy

import tilewire as tw
from rank_programs import outcome
from tilewire.demo_cases import run_case
from tilewire.gpu.demo_machine import GpuMachine
from tilewire.moe_dispatch import Dispatched, DispatchHandle
from tilewire.moe_dispatch_cases import MoeDispatchCase, MoeDispatchCaseCall, odd_cases, spread


class Dispatch:
    """One rank's inputs of a call, and what it has to give."""

    def __init__(self, comm: Any, seed: int = 0, **options: Any) -> None:
        self.rank, ranks = comm.rank, comm.world_size
        tokens = [40 + 13 * rank for rank in range(ranks)]
        case = MoeDispatchCase("", tokens, spread(7, ranks), 3, 136, 200, skew="gaps", has_limit=True)
        self.case = replace(case, **options)
        self.limit = sum(self.case.tokens) * self.case.top_k  # whatever the routes
        self.set_seed(seed)
        host = self.host
        self.x, self.ids, self.w1 = to_gpu(host._x), to_gpu(host._ids), to_gpu(host._w1)

    def set_seed(self, seed: int) -> None:
        self.host: MoeDispatchCaseCall = self.case.prepare(self.rank, seed)
        self.host._limit = self.limit

    def change(self, seed: int) -> None:
        """Other tokens, routes and weights in the same memory, in stream order."""
        self.set_seed(seed)
        for to, values in ((self.x, self.host._x), (self.ids, self.host._ids), (self.w1, self.host._w1)):
            to.copy_(to_gpu(values))

    def call(self, **options: Any) -> Any:
        inputs = {"x": self.x, "topk_ids": self.ids, "w1": self.w1, "experts": self.case.experts}
        if self.case.has_limit:
            inputs |= {"max_tokens": self.limit, "max_source_tokens": max(self.case.tokens)}
        return tw.moe_dispatch_matmul(**{**inputs, **options})

    def wrong(self, result: Any) -> str:
        """ "" or what is wrong with what a call gave."""
        arrays = (result.y, result.offsets, result.handle.origins)
        if not all(isinstance(one, torch.Tensor) and one.device == GPU for one in arrays):
            return f"not all on the GPU: {[type(one).__name__ for one in arrays]}"
        y, offsets, origins = map(to_numpy, arrays)
        report = self.host.check(Dispatched(y, offsets, DispatchHandle(origins)))
        return "" if report.ok else str(report)


def values() -> dict[str, str]:
    """The demo's odd cases, and inputs of every kind."""
    warnings.simplefilter("ignore", RuntimeWarning)
    found: dict[str, str] = {}
    with tw.init() as comm:
        for case in odd_cases(comm.world_size):
            if case.on_gpu:
                result = run_case(case, GpuMachine(comm))
                found[case.name] = "" if result.ok else result.message
        for name, options in {
            "larger": {"tokens": [512] * comm.world_size, "h": 512, "i": 768, "experts": spread(16, comm.world_size)},
            "fp16": {"dtype": np.float16},
            "ids of 64 bits": {"ids_dtype": np.int64},
            "rows counted": {"has_limit": False, "ids_dtype": np.int64},
        }.items():
            d = Dispatch(comm, **options)
            for seed in range(3):
                d.change(seed)
                found[name] = found.get(name, "") or d.wrong(d.call())
        found |= _operands(comm)
        comm.synchronize()
    return found


def _operands(comm: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    d = Dispatch(comm, seed=4)
    stored = d.w1.transpose(1, 2).contiguous().transpose(1, 2)
    wide = torch.zeros((2 * d.ids.shape[0], 7), dtype=torch.int64, device=GPU)
    wide[::2, ::3] = d.ids.long()
    for name, options in {
        "w1 stored as [I, H]": {"w1": stored},
        "w1 of every second column": {"w1": torch.repeat_interleave(d.w1, 2, dim=2)[:, :, ::2]},
        "x is part of a larger array": {"x": torch.nn.functional.pad(d.x, (5, 7))[:, 5:-7]},
        "ids of any strides": {"topk_ids": wide[::2, ::3]},
        "DLPack": {"x": Foreign(d.x), "topk_ids": Foreign(d.ids), "w1": Foreign(d.w1)},
        "a stream": {"stream": torch.cuda.current_stream()},
    }.items():
        found[name] = d.wrong(d.call(**options))
    out = torch.full((d.limit, d.case.i), torch.nan, dtype=torch.bfloat16, device=GPU)
    given = d.call(out=out)
    found["out is given back"] = d.wrong(given) if given.y is out else "another one"
    room = torch.full((d.limit + 2, d.case.i + 10), 7.0, dtype=torch.bfloat16, device=GPU)
    part = room[1:-1, 5:-5]
    found["out is part of a larger array"] = d.wrong(d.call(out=part))
    part.fill_(7)
    found["nothing around out is touched"] = "" if bool((room == 7).all()) else "it is"
    handle = tw.MoeDispatchMatmul(
        d.case.experts, d.case.top_k, d.case.h, d.case.i, max_tokens=d.limit, max_source_tokens=max(d.case.tokens)
    )
    for seed in range(3):
        d.change(20 + seed)
        found[f"handle, call {seed}"] = d.wrong(handle(d.x, d.ids, d.w1))
    found["handle explains"] = "" if handle.explain() and "tile_rows" in handle.plan else handle.explain()
    found["plan"] = d.wrong(d.call(plan=handle.plan))
    report = comm.last_call
    found["report"] = "" if report.bytes_by_link["node"] == 0 and "tile_rows" in report.plan_json else str(report)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        d.change(30)
        results = [d.call() for _ in range(20)]
        found["20 calls on a stream"] = max(d.wrong(one) for one in results)
    torch.cuda.current_stream().wait_stream(side)
    return found


def graphs() -> dict[str, Any]:
    """Captured once, and replayed with other tokens and routes in the same memory."""
    found: dict[str, Any] = {}
    with tw.init() as comm:
        d, counted = Dispatch(comm), Dispatch(comm, has_limit=False)
        for _ in range(2):
            d.call()
        counted.call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = d.call()
        comm.barrier()
        wrong = ""
        for seed in range(20):
            d.change(seed)
            made.y.fill_(torch.nan)
            graph.replay()
            torch.cuda.synchronize()
            wrong = wrong or d.wrong(made)
        found["replays with changed routes"] = wrong
        unlike = torch.zeros((), dtype=torch.int64, device=GPU)
        eager = d.call()
        for _ in range(200):
            graph.replay()
            unlike += (made.y != eager.y).sum() + (made.handle.origins != eager.handle.origins).sum()
        found["200 replays have the bits of an eager call"] = "" if int(unlike) == 0 else f"{int(unlike)} have not"

        def capture() -> None:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                counted.call()

        torch.cuda.synchronize()
        found["capture without max_tokens"] = outcome(capture)
        comm.barrier()
        found["after"] = counted.wrong(counted.call())
        comm.synchronize()
        del graph
    return found


def remarks() -> dict[str, Any]:
    """What a kernel finds wrong is raised behind the call, once, and the communicator goes on."""
    found: dict[str, Any] = {}
    with tw.init() as comm:
        d = Dispatch(comm)
        small = d.call(max_tokens=3)
        found["the call behind it"] = d.wrong(d.call())
        found["too many rows"] = outcome(comm.synchronize)
        found["its result is NaN"] = "" if bool(small.y.isnan().all()) else "it is not"
        found["said once"] = outcome(comm.synchronize)["text"]
        ids = d.ids.clone()
        if comm.rank == 0:
            ids[0, 0] = 7
        d.call(topk_ids=ids)
        found["no such expert"] = outcome(comm.synchronize)
        found["after"] = d.wrong(d.call())
        comm.synchronize()
    return found


def refusals() -> dict[str, Any]:
    """Calls that every rank refuses, by what is wrong."""
    found: dict[str, Any] = {}
    with tw.init() as comm:
        d = Dispatch(comm)
        for name, options in {
            "host tokens": {"x": d.x.cpu()},
            "host ids": {"topk_ids": d.ids.cpu()},
            "ids are no whole numbers": {"topk_ids": d.ids.to(torch.bfloat16)},
            "x is of whole numbers": {"x": d.x.to(torch.int32)},
            "fp32": {"x": d.x.float(), "w1": d.w1.float()},
            "results of another dtype": {"out_dtype": "fp32"},
            "a plan of CPU ranks": {"plan": _cpu_plan(d, comm.world_size)},
            "out has the wrong shape": {"out": torch.empty((5, d.case.i), dtype=torch.bfloat16, device=GPU)},
        }.items():
            found[name] = outcome(lambda options=options: d.call(**options))
        found["after"] = d.wrong(d.call())
        comm.synchronize()
    return found


def _cpu_plan(d: Dispatch, ranks: int) -> Any:
    case = d.case
    return tw.plan_moe_dispatch_matmul(max(case.tokens), case.experts, case.top_k, case.h, case.i, nodes=[ranks])


def cupy_arrays() -> dict[str, str]:
    try:
        import cupy
    except ImportError:
        return {"absent": "CuPy"}
    found: dict[str, str] = {}
    with tw.init() as comm:
        d = Dispatch(comm, dtype=np.float16)
        x, ids, w1 = (cupy.from_dlpack(one) for one in (d.x, d.ids, d.w1))
        for name, options in {"limited": {}, "counted": {"max_tokens": None, "max_source_tokens": None}}.items():
            d.case = replace(d.case, has_limit=not options)
            d.set_seed(0)
            made = d.call(x=x, topk_ids=ids, w1=w1, **options)
            cupy.cuda.get_current_stream().synchronize()
            arrays = (made.y, made.offsets, made.handle.origins)
            found[f"{name}: types"] = "" if all(isinstance(one, cupy.ndarray) for one in arrays) else str(arrays)
            y, offsets, origins = map(cupy.asnumpy, arrays)
            report = d.host.check(Dispatched(y, offsets, DispatchHandle(origins)))
            found[name] = "" if report.ok else str(report)
        comm.synchronize()
    return found
