"""Streams, as programs name them, and as DLPack does."""

from __future__ import annotations

from typing import Any

from tilewire.argument_checks import is_switch
from tilewire.errors import InvalidArgument

LEGACY = 0  # CUDA's default stream


def stream_handle(stream: Any, gpu: int) -> int:
    """The cudaStream_t of what was passed as `stream`. `InvalidArgument` for what is none, or one of another GPU."""
    found = _handle_of(stream)
    if not isinstance(found, int) or is_switch(found) or found < 0:
        raise InvalidArgument(
            "stream is no stream",
            values=f"stream is a {type(stream).__name__}",
            limit="must be a stream of torch or CuPy, an object with __cuda_stream__, or a cudaStream_t as an integer",
        )
    where = getattr(stream, "device_index", getattr(stream, "device_id", gpu))
    if isinstance(where, int) and where not in (gpu, -1):  # CuPy's default streams are of no GPU
        raise InvalidArgument(
            "stream is of another GPU", values=f"stream is on cuda:{where}", limit=f"this rank's GPU is cuda:{gpu}"
        )
    return found


def _handle_of(stream: Any) -> Any:
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):  # torch, CuPy
        found = getattr(stream, name, None)
        if isinstance(found, int):
            return found
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        return None
    answer = protocol()
    return answer[1] if isinstance(answer, tuple) and len(answer) == 2 else None


def dlpack_stream(handle: int) -> int:
    """DLPack has 1 for the default stream: 0 could be taken for none."""
    return handle or 1
