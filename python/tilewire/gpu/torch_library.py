"""Tensors of PyTorch on a GPU. torch is not imported here: this is used where the program has done so."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any

from tilewire.errors import InvalidArgument
from tilewire.gpu.library import GpuLibrary
from tilewire.gpu.streams import LEGACY
from tilewire.gpu.views import FLOATS, KERNEL_BYTES, WHOLE_NUMBERS, GpuView


class TorchLibrary(GpuLibrary):
    """PyTorch, as `GpuLibrary` has it."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self._tensor = torch.Tensor
        self._plain = {torch.Tensor, getattr(getattr(torch, "nn", None), "Parameter", torch.Tensor)}
        self._names = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
        self._names |= {getattr(torch, name): name for name in WHOLE_NUMBERS}
        self._dtypes = {name: dtype for dtype, name in self._names.items()}
        self._raw_stream = _raw_stream_function(torch)

    def owns(self, x: Any) -> bool:
        return isinstance(x, self._tensor)

    def gpu_of(self, x: Any) -> int:
        return int(x.get_device()) if x.is_cuda else -1

    def device_text(self, x: Any) -> str:
        return str(x.device)

    def view(self, x: Any, name: str, dtypes: tuple[str, ...] = FLOATS) -> GpuView:
        if x.layout != self.torch.strided:
            raise InvalidArgument(f"{name} is not dense", values=f"layout {x.layout}", advice=f"pass {name}.to_dense()")
        if x.requires_grad and self.torch.is_grad_enabled():
            raise InvalidArgument(
                f"{name} requires grad",
                limit="this call records no gradient",
                advice=f"pass {name}.detach(), or call under torch.no_grad()",
            )
        dtype = self._names.get(x.dtype)
        if dtype not in dtypes:
            raise self.dtype_error(name, x.dtype, dtypes)
        return GpuView(x, x.data_ptr(), tuple(x.shape), x.stride(), dtype)

    def current_gpu(self) -> int:
        cuda = self.torch.cuda
        return int(cuda.current_device()) if cuda.is_available() and cuda.is_initialized() else -1

    def current_stream(self, gpu: int) -> int:
        return self._raw_stream(gpu)

    def on(self, stream: int, gpu: int) -> AbstractContextManager[Any]:
        found: AbstractContextManager[Any] = self.torch.cuda.stream(self._stream(stream, gpu))
        return found

    def new(self, shape: tuple[int, ...], dtype: str, gpu: int) -> Any:
        return self.torch.empty(shape, dtype=self._dtypes[dtype], device=gpu)

    def fill(self, to: Any, x: Any) -> None:
        to.copy_(x)

    def take(self, x: Any) -> Any:
        return self.torch.from_dlpack(x)

    def keep_for(self, x: Any, stream: int, gpu: int) -> None:
        x.record_stream(self._stream(stream, gpu))

    def _stream(self, stream: int, gpu: int) -> Any:
        """torch takes an ExternalStream of 0 for none given, and makes one of a pool."""
        cuda = self.torch.cuda
        return cuda.default_stream(gpu) if stream == LEGACY else cuda.ExternalStream(stream, device=gpu)

    def sign(self, x: Any) -> tuple[Hashable, int] | None:
        if x.__class__ not in self._plain or x.requires_grad:
            return None
        try:
            address = x.data_ptr()
            return (x.get_device(), x.dtype, x.shape, x.stride(), address % KERNEL_BYTES), address
        except RuntimeError:  # a layout without strides
            return None

    def address(self, x: Any) -> int:
        return int(x.data_ptr())

    def is_capturing(self) -> bool:
        cuda = self.torch.cuda
        return bool(cuda.is_available() and cuda.is_initialized() and cuda.is_current_stream_capturing())


def _raw_stream_function(torch: Any) -> Callable[[int], int]:
    """torch.cuda.current_stream makes an object a call; what its own compiler uses does not, where it is there."""
    fast = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    if fast is not None:
        raw: Callable[[int], int] = fast
        return raw
    return lambda gpu: int(torch.cuda.current_stream(gpu).cuda_stream)


_made: TorchLibrary | None = None


def torch_library() -> TorchLibrary:
    global _made
    torch = sys.modules["torch"]
    if _made is None or _made.torch is not torch:
        _made = TorchLibrary(torch)
    return _made
