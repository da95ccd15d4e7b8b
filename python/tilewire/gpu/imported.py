"""The libraries of GPU arrays that the program has imported, in the order in which they are asked."""

from __future__ import annotations

import sys
from typing import Any

from tilewire.errors import Unavailable
from tilewire.gpu.cupy_library import cupy_library
from tilewire.gpu.library import GpuLibrary
from tilewire.gpu.torch_library import torch_library


def libraries() -> list[GpuLibrary]:
    found: list[GpuLibrary] = []
    if "torch" in sys.modules:
        found.append(torch_library())
    if "cupy" in sys.modules:
        found.append(cupy_library())
    return found


def library_of(x: Any) -> GpuLibrary | None:
    """The one that x is an array of."""
    for library in libraries():
        if library.owns(x):
            return library
    return None


def any_library(purpose: str) -> GpuLibrary:
    """For what belongs to none of them. Raises `Unavailable` when the program has imported none."""
    found = libraries()
    if not found:
        raise Unavailable(
            f"there is no library for {purpose}",
            values="neither torch nor cupy is imported",
            advice="import one of them first",
        )
    return found[0]


def chosen_gpu() -> int:
    """The GPU that the program has chosen in a library, or -1."""
    return next((gpu for gpu in (library.current_gpu() for library in libraries()) if gpu >= 0), -1)


def is_capturing() -> bool:
    """Whether a library's current stream is captured in a graph."""
    return any(library.is_capturing() for library in libraries())
