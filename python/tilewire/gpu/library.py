"""What Tilewire asks of a library whose arrays lie in GPU memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Any

from tilewire.errors import InvalidArgument
from tilewire.gpu.views import DTYPES, FLOATS, GpuView, dtypes_text


class GpuLibrary(ABC):
    """One library. GPUs are numbered as CUDA numbers those that the process sees; a stream is a cudaStream_t."""

    @abstractmethod
    def owns(self, x: Any) -> bool:
        """Whether x is an array of this library, wherever it lies."""

    @abstractmethod
    def gpu_of(self, x: Any) -> int:
        """The GPU that an array lies on; -1 for any other memory."""

    @abstractmethod
    def device_text(self, x: Any) -> str: ...

    @abstractmethod
    def view(self, x: Any, name: str, dtypes: tuple[str, ...] = FLOATS) -> GpuView:
        """An array on a GPU, seen. Raises `InvalidArgument` for other dtypes, and for layouts that no call takes."""

    @abstractmethod
    def current_gpu(self) -> int:
        """The GPU that the program has chosen, or -1 when it has not come to that."""

    @abstractmethod
    def current_stream(self, gpu: int) -> int: ...

    @abstractmethod
    def on(self, stream: int, gpu: int) -> AbstractContextManager[Any]:
        """Within it the GPU and the stream are the library's current ones, on this thread."""

    @abstractmethod
    def new(self, shape: tuple[int, ...], dtype: str, gpu: int) -> Any:
        """Uninitialised memory, C-contiguous, of the library's allocator on its current stream."""

    @abstractmethod
    def fill(self, to: Any, x: Any) -> None:
        """Copies x into `to`, of the same shape; any dtypes and layouts. On the current stream."""

    @abstractmethod
    def take(self, x: Any) -> Any:
        """An array of this library over the memory of x, which has `__dlpack__`."""

    @abstractmethod
    def keep_for(self, x: Any, stream: int, gpu: int) -> None:
        """x is used on a stream that is not the current one: its memory is not given away before that use has ended."""

    def sign(self, x: Any) -> tuple[Hashable, int] | None:
        """What decides how an array is taken, and its address; None for what takes a closer look: no array, or one of
        another library, kind or layout. Where two have the same signature, `view` differs by the address alone."""
        return None

    def address(self, x: Any) -> int:
        """Of what `new` gave."""
        return self.view(x, "the result").address

    @abstractmethod
    def is_capturing(self) -> bool:
        """Whether the current stream is captured in a graph."""

    def dtype_error(self, name: str, dtype: Any, dtypes: tuple[str, ...]) -> InvalidArgument:
        return InvalidArgument(
            f"{name} has a dtype that is not supported",
            values=f"{name} is {dtype}",
            limit=f"must be {dtypes_text(dtypes)}",
        )

    def dtype_of(self, name: str, dtype: Any, dtypes: tuple[str, ...]) -> str:
        found = DTYPES.get(str(dtype).removeprefix("torch."))
        if found not in dtypes:
            raise self.dtype_error(name, dtype, dtypes)
        return found
