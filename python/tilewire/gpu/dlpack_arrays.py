"""Arrays of any library that come by DLPack, in GPU memory."""

from __future__ import annotations

from typing import Any

from tilewire import _core
from tilewire.arrays import dlpack_device, first_line
from tilewire.errors import InvalidArgument
from tilewire.gpu.streams import dlpack_stream
from tilewire.gpu.views import FLOATS, GpuView, dtypes_text

_CUDA = 2  # kDLCUDA


def gpu_of(x: Any, name: str) -> tuple[int, str]:
    """The GPU that x lies on, -1 for any other memory, and how to call the place."""
    try:
        kind, number = dlpack_device(x)
    except Exception as error:  # of a user's class
        raise _not_taken(name, error) from error
    if kind == _CUDA:
        return number, f"cuda:{number}"
    return -1, "host memory" if kind == 1 else f"DLPack device {(kind, number)}"


def view(x: Any, name: str, stream: int, dtypes: tuple[str, ...] = FLOATS) -> GpuView:
    """x as it is when what is in `stream` has run: its library sees to that."""
    try:
        foreign = _core.ForeignArray(x.__dlpack__(stream=dlpack_stream(stream)))
    except Exception as error:  # of a user's class
        raise _not_taken(name, error) from error
    if foreign.dtype not in dtypes:
        raise InvalidArgument(
            f"{name} has a dtype that is not supported",
            values=f"{name} is {foreign.dtype}",
            limit=f"must be {dtypes_text(dtypes)}",
        )
    return GpuView(foreign, foreign.address, tuple(foreign.shape), tuple(foreign.strides), foreign.dtype)


def _not_taken(name: str, error: Exception) -> InvalidArgument:
    return InvalidArgument(f"{name} cannot be taken over by DLPack", values=first_line(error))
