"""What the ranks of the GPU's tests run to show that faults of the field are none here (docs/cases.md)."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from gpu_coded import GPU, Coded, K, to_gpu

import tilewire as tw
from rank_programs import outcome
from tilewire.coded_data import coded_bias


def read_at_once() -> dict[str, str]:
    """B08: what reads a result right behind its call, in the stream and without a wait, finds all of it."""
    with tw.init() as comm:
        d = Coded(comm, rows=[500] * comm.world_size, k=512, n=640)
        expected = tw.all_gather_matmul(d.a, d.b).clone()
        found = {"first": d.wrong(expected)}
        out = torch.empty_like(expected)
        unlike = torch.zeros((), dtype=torch.int64, device=GPU)
        for _ in range(300):
            out.fill_(torch.nan)
            tw.all_gather_matmul(d.a, d.b, out=out)
            unlike += (out != expected).sum()
        found["elements that were not there"] = "" if int(unlike) == 0 else str(int(unlike))
        comm.synchronize()
    return found


def filled_memory() -> dict[str, str]:
    """B36: torch fills new memory with NaN on the stream where it was asked for: never behind what a call wrote."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        with tw.init() as comm:
            d = Coded(comm)
            first = tw.all_gather_matmul(d.a, d.b)
            found = {"first": d.wrong(first)}
            side, unlike = torch.cuda.Stream(), torch.zeros((), dtype=torch.int64, device=GPU)
            torch.cuda.synchronize()
            for i in range(200):
                if i % 2:
                    with torch.cuda.stream(side):
                        y = tw.all_gather_matmul(d.a, d.b)
                        unlike += (y != first).sum()
                else:
                    y = tw.all_gather_matmul(d.a, d.b, stream=side)
                    with torch.cuda.stream(side):
                        unlike += (y != first).sum()
                        del y
            torch.cuda.synchronize()
            found["elements that were filled over"] = "" if int(unlike) == 0 else str(int(unlike))
            comm.synchronize()
    finally:
        torch.use_deterministic_algorithms(False)
    return found


def queues() -> dict[str, str]:
    """B40, B83: with one hardware queue, and user memory in segments that no other process can map: several calls and
    products of torch without a wait between them."""
    with tw.init() as comm:
        d = Coded(comm)
        found = {"connections": "" if os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "1" else "more"}
        found["first"] = d.wrong(tw.all_gather_matmul(d.a, d.b))
        side = torch.cuda.Stream()
        for seed in range(5):
            d.change(seed)
            torch.cuda.synchronize()
            kept = []
            for i in range(9):
                with torch.cuda.stream(side if i % 3 == 2 else torch.cuda.current_stream()):
                    kept.append(tw.all_gather_matmul(d.a, d.b))
                    torch.matmul(d.a, d.b)
            torch.cuda.synchronize()
            found[f"round {seed}"] = max(d.wrong(y) for y in kept[::4])
        comm.synchronize()
    return found


def graphs_in_turn() -> dict[str, str]:
    """B58: two graphs of one handle, and one of another shape between them, replayed in turn."""
    found: dict[str, str] = {}
    with tw.init() as comm:
        d, other = Coded(comm), Coded(comm, k=72, n=96, seed=1)
        handle = tw.AllGatherMatmul(d.rows, K, d.n)
        handle(d.a, d.b)
        tw.all_gather_matmul(other.a, other.b)
        torch.cuda.synchronize()
        graphs, results = [], []
        for call in (
            lambda: handle(d.a, d.b),
            lambda: tw.all_gather_matmul(other.a, other.b),
            lambda: handle(d.a, d.b),
        ):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                results.append(call())
            graphs.append(graph)
        comm.barrier()
        for seed in range(10):
            d.change(seed)
            other.change(seed)
            for i in range(20):
                graphs[i % 3].replay()
            wrong = [d.wrong(results[0]), other.wrong(results[1]), d.wrong(results[2])]
            found[f"round {seed}"] = max(wrong)
        torch.cuda.synchronize()
        comm.synchronize()
    return found


def opposite_orders() -> dict[str, Any]:
    """B38: two handles, called in opposite orders by the ranks, each on a stream of its own."""
    with tw.init(deadline_s=5) as comm:
        first, second = Coded(comm), Coded(comm, k=72, n=96, seed=1)
        handles = [tw.AllGatherMatmul(d.rows, d.k, d.n) for d in (first, second)]
        for handle, d in zip(handles, (first, second), strict=True):
            handle(d.a, d.b)
        comm.synchronize()
        comm.barrier()
        order = [(0, first), (1, second)]
        if comm.rank == comm.world_size - 1:
            order.reverse()

        def attempt() -> None:
            for number, d in order:
                with torch.cuda.stream(torch.cuda.Stream()):
                    handles[number](d.a, d.b)
            comm.synchronize()

        found = outcome(attempt)
        found["next"] = outcome(lambda: handles[0](first.a, first.b))["error"]
    # The process can go on with another communicator.
    with tw.init() as comm:
        found["after"] = first.wrong(tw.all_gather_matmul(first.a, first.b))
        comm.synchronize()
    return found


def deep_and_huge() -> dict[str, str]:
    """B75, B02: a K of 16384; offsets and counts of elements beyond 2^32 in the gathered rows and in the result."""
    found: dict[str, str] = {}
    with tw.init() as comm:
        deep = Coded(comm, rows=[40] * comm.world_size, k=16384, n=72)
        found["K = 16384"] = deep.wrong(tw.all_gather_matmul(deep.a, deep.b))
        for name, rows, k, n in (("gathered rows", 163840, 16384, 64), ("result", 98304, 512, 28672)):
            own = rows // comm.world_size
            numbers = torch.Generator(GPU).manual_seed(7)  # the same on all ranks
            whole = torch.randint(-2, 3, (rows, k), generator=numbers, device=GPU, dtype=torch.int8)
            b = torch.randint(-2, 3, (k, n), generator=numbers, device=GPU, dtype=torch.int8).to(torch.bfloat16)
            a = whole[own * comm.rank : own * (comm.rank + 1)].to(torch.bfloat16)
            y = tw.all_gather_matmul(a, b)
            wrong = 0
            for begin in range(0, rows, 8192):
                part = whole[begin : begin + 8192].to(torch.bfloat16)
                wrong += int((torch.matmul(part, b) != y[begin : begin + 8192]).sum())
            found[f"{name} of more than 2^32 bytes"] = "" if wrong == 0 else f"{wrong} wrong elements"
            del whole, a, b, y, part
        comm.synchronize()
    return found


def lives() -> dict[str, str]:
    """B98: communicators that come and go leave descriptors, threads and memory of the GPU as they were."""
    seen: dict[str, list[int]] = {"files": [], "threads": [], "MiB of the GPU": []}
    wrong = ""
    for life in range(13):
        with tw.init() as comm:
            d = Coded(comm, seed=life)
            for _ in range(3):
                y = tw.all_gather_matmul(d.a, d.b)
            wrong = max(wrong, d.wrong(y))
            comm.synchronize()
            comm.barrier()
            free, whole = torch.cuda.mem_get_info()  # of all ranks together
            seen["MiB of the GPU"].append((whole - free) >> 20)
            comm.barrier()
        seen["files"].append(len(os.listdir("/proc/self/fd")))
        seen["threads"].append(len(os.listdir("/proc/self/task")))
    grown = {name: numbers for name, numbers in seen.items() if max(numbers[8:]) > max(numbers[:5])}
    return {"values": wrong, **{name: f"they grow: {numbers}" for name, numbers in grown.items()}}


def leaves_early() -> None:
    """B16: a program that ends without close(), its calls in the stream, with an exit code of its own."""
    comm = tw.init()
    d = Coded(comm)
    for _ in range(3):
        tw.all_gather_matmul(d.a, d.b, bias=to_gpu(coded_bias(d.n)))
    comm.barrier()
    sys.exit(7)


def one_of_two_jobs(job: str) -> None:
    """B49: calls beside those of another job on the same GPU."""
    with tw.init() as comm:
        wrong = [""]
        for seed in range(100):
            d = Coded(comm, rows=[64] * comm.world_size, seed=1000 * int(job) + seed)
            wrong.append(d.wrong(tw.all_gather_matmul(d.a, d.b)))
        comm.synchronize()
    print(f"values: {max(wrong) or 'all right'}")
