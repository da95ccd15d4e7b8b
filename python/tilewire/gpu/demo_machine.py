"""The demo on a GPU: whether this machine can run it, and one of its ranks. Needs torch there, and nowhere else."""

from __future__ import annotations

import dataclasses
import importlib.util
import time
from typing import Any

import ml_dtypes
import numpy as np

import tilewire as tw
from tilewire.demo_cases import CallStats
from tilewire.gpu.driver import KERNEL_CAPABILITY, KERNEL_GPUS, NEEDS_CUDA, Gpu, NoDriver, gpus


def find_gpu() -> tuple[Gpu | None, str]:
    """The GPU that ranks can share for a demo, and "" or why the one that is there cannot be used."""
    from tilewire import _core

    try:
        found = gpus()
    except NoDriver:
        return None, ""
    if not found:
        return None, ""
    gpu = found[0]
    if gpu.capability != KERNEL_CAPABILITY:
        return None, f"kernels are compiled for {KERNEL_GPUS}; here is {gpu.name}"
    if not _core.has_gpu_ranks():
        return None, f"this package was built without CUDA; {NEEDS_CUDA}"
    if importlib.util.find_spec("torch") is None:
        return None, "torch is not installed"
    return gpu, ""


# Of a plan's numbers for CPU ranks kernels lack these: the tiles of a form that there is, and as many CTAs as it takes.
TILES: dict[str, Any] = {"tile_rows": 256, "tile_cols": 256}
NUMBERS: dict[str, dict[str, Any]] = {
    "moe_dispatch_matmul": {"tile_rows": 128, "tile_cols": 256, "workers": 8},
    "ring_attention": {"workers": 8, "pace_clocks": 0},
}
ROWS_OF_HEADS = {64: 192, 128: 128}  # of a tile of attention, and of a chunk, by D
HOST_OPTIONS = ("plan", "positions")  # that are no arrays for a kernel


def kernel_numbers(op: str, *arguments: Any) -> dict[str, Any]:
    """The numbers that a plan of a call with these arguments has on a GPU."""
    if op != "ring_attention":
        return NUMBERS.get(op, TILES)
    rows = ROWS_OF_HEADS[arguments[0].shape[-1]]
    return {"tile_rows": rows, "chunk_rows": rows, **NUMBERS[op]}


class GpuMachine:
    """The demo's machine over GPU ranks: arrays of numpy go to the GPU before a call and come back behind it."""

    on_gpu = True

    def __init__(self, comm: tw.Communicator) -> None:
        import torch

        self.comm = comm
        self._torch: Any = torch
        self._seconds = 0.0

    @property
    def rank(self) -> int:
        return self.comm.rank

    @property
    def world_size(self) -> int:
        return self.comm.world_size

    def barrier(self) -> None:
        self.comm.barrier()

    def call(self, op: str, *arguments: Any, **options: Any) -> Any:
        there = [self._to_gpu(one) for one in arguments]
        options_there = {name: one if name in HOST_OPTIONS else self._to_gpu(one) for name, one in options.items()}
        if "plan" in options:
            options_there["plan"] = {**options["plan"], **kernel_numbers(op, *arguments)}
        self._torch.cuda.synchronize(self.comm.device)
        begin = time.perf_counter()
        result = getattr(tw, op)(*there, comm=self.comm, **options_there)
        self.comm.synchronize()
        self._seconds = time.perf_counter() - begin
        return self._to_host(result)

    def last_call(self) -> CallStats:
        return CallStats(self.comm.last_call.bytes_by_link, [], seconds=self._seconds)

    def _to_gpu(self, x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return [self._to_gpu(one) for one in x]
        if not isinstance(x, np.ndarray):
            return x
        if x.ndim == 2 and x.T.flags.c_contiguous and not x.flags.c_contiguous:
            return self._to_gpu(x.T).T
        host = np.ascontiguousarray(x)
        if host.dtype.name == "bfloat16":
            return self._torch.from_numpy(host.view(np.int16)).to(self.comm.device).view(self._torch.bfloat16)
        return self._torch.from_numpy(host).to(self.comm.device)

    def _to_host(self, x: Any) -> Any:
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            return dataclasses.replace(x, **{f.name: self._to_host(getattr(x, f.name)) for f in dataclasses.fields(x)})
        if hasattr(x, "_fields"):  # a named tuple
            return type(x)(*map(self._to_host, x))
        if isinstance(x, (list, tuple)):
            return [self._to_host(one) for one in x]
        host = x.contiguous().cpu()
        if host.dtype != self._torch.bfloat16:
            return host.numpy()
        return host.view(self._torch.int16).numpy().view(ml_dtypes.bfloat16)
