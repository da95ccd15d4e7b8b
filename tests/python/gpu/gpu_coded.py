"""Inputs of GPU ranks in which every element says where it belongs, and what calls have to give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from tilewire.checker import check_matmul
from tilewire.coded_data import coded_rows, coded_shard, coded_weight

K, N = 256, 320
BF16 = ml_dtypes.bfloat16
GPU = torch.device("cuda", 0)


def to_gpu(array: Any) -> torch.Tensor:
    """Its values, C-contiguous, on the GPU."""
    array = np.ascontiguousarray(array)
    if array.dtype == BF16:
        return torch.from_numpy(array.view(np.int16)).to(GPU).view(torch.bfloat16)
    return torch.from_numpy(array).to(GPU)


def to_numpy(tensor: Any) -> Any:
    host = tensor.contiguous().cpu()
    return host.view(torch.int16).numpy().view(BF16) if host.dtype == torch.bfloat16 else host.numpy()


class Coded:
    """One rank's inputs, in which every element says where it belongs, and what the call has to give."""

    def __init__(
        self, comm: Any, rows: list[int] | None = None, k: int = K, n: int = N, dtype: Any = BF16, seed: int = 0
    ) -> None:
        self.rows = rows or [192] * comm.world_size
        self.rank, self.k, self.n, self.dtype = comm.rank, k, n, dtype
        self.set_seed(seed)
        self.a, self.b = to_gpu(self.host_a), to_gpu(self.host_b)

    def set_seed(self, seed: int) -> None:
        self.host_a = coded_shard(self.rank, self.rows, self.k, self.dtype, seed)
        self.host_b = coded_weight(self.k, self.n, self.n * self.rank, self.dtype, seed)
        self.whole = coded_rows(self.rows, self.k, self.dtype, seed)

    def change(self, seed: int) -> None:
        """Other values in the same memory, in stream order."""
        self.set_seed(seed)
        self.a.copy_(to_gpu(self.host_a))
        self.b.copy_(to_gpu(self.host_b))

    def wrong(self, y: Any, bias: Any = None, b: Any = None, dtype: Any = None) -> str:
        """ "" or the worst element of what a call gave; `dtype` is that of torch, None: as that of the inputs."""
        weight = self.host_b if b is None else b
        empty = self.whole.shape[0] == 0 or weight.shape[1] == 0
        if not isinstance(y, torch.Tensor) or y.device != GPU or y.dtype != (dtype or self.a.dtype):
            return f"a {type(y).__name__} on {getattr(y, 'device', None)} of {getattr(y, 'dtype', None)}"
        report = check_matmul(to_numpy(y), self.whole, weight, bias=bias, rows=self.rows, allow_empty=empty)
        return "" if report.ok else str(report)

    def wrong_gathered(self, gathered: Any) -> str:
        """The same of the gathered rows."""
        if not isinstance(gathered, torch.Tensor) or gathered.device != GPU:
            return f"a {type(gathered).__name__} on {getattr(gathered, 'device', None)}"
        host = to_numpy(gathered)
        same = host.dtype == self.whole.dtype and host.shape == self.whole.shape
        return "" if same and host.tobytes() == self.whole.tobytes() else f"not the rows of all ranks: {host}"


class Foreign:
    """An array of another library: all that is known of it is DLPack. Notes the streams that it is asked for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.streams: list[Any] = []

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        self.streams.append(stream)
        return self._tensor.__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()
