"""Arrays of CuPy. It is not imported here: this is used where the program has done so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import ml_dtypes

from tilewire.gpu.library import GpuLibrary
from tilewire.gpu.views import FLOATS, ITEM_BYTES, GpuView

_DTYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": "float16",
    "fp32": "float32",
    "int32": "int32",
    "int64": "int64",
}


class CupyLibrary(GpuLibrary):
    """CuPy, as `GpuLibrary` has it."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy

    def owns(self, x: Any) -> bool:
        return isinstance(x, self.cupy.ndarray)

    def gpu_of(self, x: Any) -> int:
        return int(x.device.id)

    def device_text(self, x: Any) -> str:
        return f"cuda:{x.device.id}"

    def view(self, x: Any, name: str, dtypes: tuple[str, ...] = FLOATS) -> GpuView:
        dtype = self.dtype_of(name, x.dtype, dtypes)
        item = ITEM_BYTES[dtype]
        if any(stride % item for stride in x.strides):  # of a field of a record
            raise self.dtype_error(name, f"{x.dtype} with strides of {x.strides} bytes", dtypes)
        return GpuView(x, x.data.ptr, x.shape, tuple(stride // item for stride in x.strides), dtype)

    def current_gpu(self) -> int:
        # It has a current GPU from the start, the first one: only another one was chosen.
        return int(self.cupy.cuda.runtime.getDevice()) or -1

    def current_stream(self, gpu: int) -> int:
        with self.cupy.cuda.Device(gpu):
            return int(self.cupy.cuda.get_current_stream().ptr)

    @contextmanager
    def _on(self, stream: int, gpu: int) -> Iterator[None]:
        with self.cupy.cuda.Device(gpu), self.cupy.cuda.ExternalStream(stream, gpu):
            yield

    def on(self, stream: int, gpu: int) -> AbstractContextManager[Any]:
        return self._on(stream, gpu)

    def new(self, shape: tuple[int, ...], dtype: str, gpu: int) -> Any:
        with self.cupy.cuda.Device(gpu):
            return self.cupy.empty(shape, _DTYPES[dtype])

    def fill(self, to: Any, x: Any) -> None:
        to[...] = x

    def take(self, x: Any) -> Any:
        return self.cupy.from_dlpack(x)

    def keep_for(self, x: Any, stream: int, gpu: int) -> None:
        """Its pool gives memory back to the current stream as soon as x goes: so that stream waits for the other."""
        with self.cupy.cuda.Device(gpu):
            other = self.cupy.cuda.ExternalStream(stream, gpu)
            if not (stream and other.is_capturing()):
                self.cupy.cuda.get_current_stream().wait_event(other.record())

    def address(self, x: Any) -> int:
        return int(x.data.ptr)

    def is_capturing(self) -> bool:
        stream = self.cupy.cuda.get_current_stream()
        return bool(stream.ptr) and bool(stream.is_capturing())


_made: CupyLibrary | None = None


def cupy_library() -> CupyLibrary:
    global _made
    cupy = sys.modules["cupy"]
    if _made is None or _made.cupy is not cupy:
        _made = CupyLibrary(cupy)
    return _made
