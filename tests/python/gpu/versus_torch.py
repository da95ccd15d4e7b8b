"""Calls on GPU ranks beside what torch and NCCL have for the same work: `versus_torch.py ROWS_FILE COMMIT DATE`.

A rank a GPU, one node. The ways take turns on each shape, on random data that changes from call to call; a way's time
is the median over rounds of the slowest rank's. The results of all ways are compared once. NVLink multicast stays off.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from gpu_places import program_environment, why_not
from torch.distributed import _symmetric_memory as symm_mem

import tilewire as tw
from rank_run import run_ranks
from tilewire.gpu.driver import gpus

SKIPPED = 77
ROUNDS, CALLS, SETS = 9, 4, 3
OURS = "tilewire"
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}

# Columns and rows of one rank's weight: [K, N], K of its own where products are summed.
ROWS_OF_GEMMS = (512, 2048, 8192)
WEIGHTS = ((4096, 1024), (8192, 2048), (4096, 7168), (8192, 14336))
DECODE_ROWS, DECODE_K, DECODE_N = (1, 8, 64), (1024, 3584), 8192
WORST = 0.05  # between two ways of rounding sums to bf16, as a part of the largest element

Way = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Contest:
    """The ways to do one piece of work; each takes this rank's [rows of a, K] and [K, N]."""

    op: str
    shape: str
    rows: int
    k: int
    n: int
    ways: Mapping[str, Way]


def gathers(ranks: int, group: str) -> list[Contest]:
    def by_nccl(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        whole = a.new_empty((a.shape[0] * ranks, a.shape[1]))
        dist.all_gather_into_tensor(whole, a)
        return whole @ b

    def by_torch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.ops.symm_mem.fused_all_gather_matmul(a, [b], 0, group)[1][0]

    ways = {OURS: tw.all_gather_matmul, "NCCL, then torch.matmul": by_nccl, "torch fused_all_gather_matmul": by_torch}
    return [Contest("ag_gemm", f"{m}x{n}x{k}", m // ranks, k, n, ways) for m in ROWS_OF_GEMMS for k, n in WEIGHTS]


def scatters(ranks: int, group: str) -> list[Contest]:
    def by_nccl(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        part = a.new_empty((a.shape[0] // ranks, b.shape[1]))
        dist.reduce_scatter_tensor(part, a @ b)
        return part

    def by_torch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, group)

    ways = {
        OURS: tw.matmul_reduce_scatter,
        "torch.matmul, then NCCL": by_nccl,
        "torch fused_matmul_reduce_scatter": by_torch,
    }
    return [Contest("gemm_rs", f"{m}x{k}x{n}", m, n, k, ways) for m in ROWS_OF_GEMMS for k, n in WEIGHTS]


def reductions(group: str) -> list[Contest]:
    shared: dict[tuple[int, int], torch.Tensor] = {}

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        shape = (a.shape[0], b.shape[1])
        if shape not in shared:
            shared[shape] = symm_mem.empty(shape, dtype=a.dtype, device=a.device)
            symm_mem.rendezvous(shared[shape], group)
        return torch.matmul(a, b, out=shared[shape])

    def by_nccl(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = a @ b
        dist.all_reduce(y)
        return y

    def one_shot(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.ops.symm_mem.one_shot_all_reduce(product(a, b), "sum", group)

    def two_shots(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.ops.symm_mem.two_shot_all_reduce_(product(a, b), "sum", group)

    ways = {
        OURS: tw.matmul_all_reduce,
        "torch.matmul, then NCCL": by_nccl,
        "torch.matmul, then torch one_shot_all_reduce": one_shot,
        "torch.matmul, then torch two_shot_all_reduce_": two_shots,
    }
    sizes = [(m, k, DECODE_N) for m in DECODE_ROWS for k in DECODE_K]
    sizes += [(m, n, k) for m in ROWS_OF_GEMMS for k, n in WEIGHTS]
    return [Contest("gemm_ar", f"{m}x{n}x{k}", m, k, n, ways) for m, k, n in sizes]


def differs(contest: Contest, a: torch.Tensor, b: torch.Tensor) -> dict[str, str]:
    """The ways that cannot be had here or give something else than ours, and why."""
    faults = {}
    mine = contest.ways[OURS](a, b).clone()
    for name, way in contest.ways.items():
        try:
            worst = (way(a, b).float() - mine.float()).abs().max().item() / max(mine.abs().max().item(), 1e-9)
            fault = "" if worst < WORST else f"differs by {worst:.3f} of the largest element"
        except Exception as error:
            fault = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        everyone: list[str] = [""] * dist.get_world_size()
        dist.all_gather_object(everyone, fault)
        if any(everyone):
            faults[name] = next(filter(None, everyone))
    return faults


def times_us(contest: Contest, skip: Mapping[str, str]) -> dict[str, float]:
    """Microseconds a call of each way on this rank in each round, the slowest rank's; medians of the rounds."""
    a = [torch.randn(contest.rows, contest.k, device="cuda").bfloat16() for _ in range(SETS)]
    b = [torch.randn(contest.k, contest.n, device="cuda").bfloat16() for _ in range(SETS)]
    found: dict[str, list[float]] = {name: [] for name in contest.ways if name not in skip}
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for around in range(-1, ROUNDS):
        for name in found:
            torch.cuda.synchronize()
            dist.barrier()
            contest.ways[name](a[-1], b[-1])  # ranks come together here
            begin.record()
            for call in range(CALLS):
                contest.ways[name](a[call % SETS], b[call % SETS])
            end.record()
            end.synchronize()
            slowest = torch.tensor([begin.elapsed_time(end) * 1e3 / CALLS], device="cuda")
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            if around >= 0:
                found[name].append(slowest.item())
    return {name: median(us) for name, us in found.items()}


def compare(store: str) -> list[dict[str, Any]]:
    """One rank: what each contest came to."""
    found = []
    with tw.init() as comm:
        torch.cuda.set_device(comm.device)
        device = torch.device(comm.device)
        dist.init_process_group(
            "nccl", init_method=f"file://{store}", rank=comm.rank, world_size=comm.world_size, device_id=device
        )
        group = dist.group.WORLD.group_name
        ranks = comm.world_size
        for contest in [*gathers(ranks, group), *scatters(ranks, group), *reductions(group)]:
            torch.manual_seed(comm.rank)
            a = torch.randn(contest.rows, contest.k, device="cuda").bfloat16()
            b = torch.randn(contest.k, contest.n, device="cuda").bfloat16()
            faults = differs(contest, a, b)
            us = times_us(contest, faults)
            found.append({"op": contest.op, "shape": contest.shape, "us": us, "faults": faults})
            if comm.rank == 0:
                print(
                    contest.op, contest.shape, {name: round(t, 1) for name, t in us.items()}, faults or "", flush=True
                )
        comm.synchronize()
        dist.destroy_process_group()
    return found


def rows_of(found: list[dict[str, Any]], ranks: int) -> list[dict[str, Any]]:
    """A row for each way that is not ours; what could not be compared is a row without a ratio."""
    rows = []
    for contest in found:
        ours = contest["us"].get(OURS, 0.0)
        for name in [n for n in (*contest["us"], *contest["faults"]) if n != OURS]:
            us = contest["us"].get(name, 0.0)
            row = {
                "bench": "fused_vs_torch",
                "op": contest["op"],
                "shape": f"{contest['shape']}, ranks {ranks}",
                "ours": round(ours, 1),
                "baseline": round(us, 1),
                "baseline_name": name,
                "unit": "us",
                "ratio": round(us / ours, 3) if ours and us else 0.0,
            }
            if name in contest["faults"]:
                row["verdict"] = contest["faults"][name]
            rows.append(row)
    return rows


def main() -> int:
    reason = why_not() or ("" if len(gpus()) > 1 else "there is one GPU")
    if reason:
        print(f"versus_torch: skipped: {reason}")
        return SKIPPED
    path, commit, date = sys.argv[1:]
    ranks = len(gpus())
    environment = {**program_environment(), **NO_MULTICAST, "TILEWIRE_DEVICE": "cuda"}
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "store"))
        outcome = run_ranks("versus_torch:compare", Path(folder), str(ranks), (store,), environment, limit_s=140)
    print(outcome.output)
    found = outcome.all_results()[0]
    Path(path).write_text(json.dumps({"commit": commit, "date": date, "rows": rows_of(found, ranks)}))
    return 0 if all(OURS in contest["us"] for contest in found) else 1


if __name__ == "__main__":
    sys.exit(main())
