"""An array in GPU memory as Tilewire sees it, and what a kernel can follow of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KERNEL_BYTES = 16  # what the copy engine counts in: addresses and row pitches are multiples of it
ITEM_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "int32": 4, "int64": 8}
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "int32": "int32", "int64": "int64"}
FLOATS, WHOLE_NUMBERS = ("bf16", "fp16", "fp32"), ("int32", "int64")


def dtypes_text(dtypes: tuple[str, ...]) -> str:
    """What an array may be of: "bf16, fp16 or fp32"."""
    return f"{', '.join(dtypes[:-1])} or {dtypes[-1]}"


class GpuView:
    """Memory of this rank's GPU, whatever library it is of. `owner` keeps it; strides count elements."""

    __slots__ = ("address", "dtype", "owner", "shape", "strides")

    def __init__(self, owner: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> None:
        self.owner = owner
        self.address = address
        self.shape = shape
        self.strides = strides
        self.dtype = dtype

    def is_contiguous(self) -> bool:
        """In C order."""
        return is_contiguous(self.shape, self.strides)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether an array lies in C order without gaps; strides count elements."""
    wanted = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != wanted:
            return 0 in shape
        wanted *= size
    return True


def padded(count: int, dtype: str) -> int:
    """So many elements of `dtype`, or more, that they fill multiples of KERNEL_BYTES."""
    step = KERNEL_BYTES // ITEM_BYTES[dtype]
    return -(-count // step) * step


def has_kernel_rows(view: GpuView) -> bool:
    """Of a matrix with elements: can the copy engine follow its rows, contiguous at multiples of KERNEL_BYTES?"""
    (rows, cols), (pitch, step) = view.shape, view.strides
    return (cols == 1 or step == 1) and _is_placed(view, rows, pitch)


def has_kernel_columns(view: GpuView) -> bool:
    """The same of its columns: those of a weight that is stored as [N, K]."""
    (rows, cols), (step, pitch) = view.shape, view.strides
    return (rows == 1 or step == 1) and _is_placed(view, cols, pitch)


def slot_of(view: GpuView, number: int) -> GpuView:
    """One of the matrices that lie behind each other."""
    address = view.address + number * view.strides[0] * ITEM_BYTES[view.dtype]
    return GpuView(view.owner, address, view.shape[1:], view.strides[1:], view.dtype)


def has_kernel_slots(view: GpuView) -> bool:
    """Of matrices behind each other, with elements: can the copy engine follow them, as far apart from each other?"""
    first = slot_of(view, 0)
    distance = view.strides[0] * ITEM_BYTES[view.dtype]
    fits = has_kernel_rows if is_n_major(first) else has_kernel_columns
    return fits(first) and (view.shape[0] == 1 or (distance > 0 and distance % KERNEL_BYTES == 0))


def has_kernel_heads(view: GpuView) -> bool:
    """Of [B, S, H, D]: can the copy engine follow its columns, contiguous, with other strides of KERNEL_BYTES?"""
    if 0 in view.shape:
        return True
    *counts, columns = view.shape
    *strides, step = view.strides
    item = ITEM_BYTES[view.dtype]
    are_fine = [
        count == 1 or (stride > 0 and stride * item % KERNEL_BYTES == 0)
        for count, stride in zip(counts, strides, strict=True)
    ]
    return (columns == 1 or step == 1) and all(are_fine) and view.address % KERNEL_BYTES == 0


def is_n_major(view: GpuView) -> bool:
    """Whether a weight, seen as [K, N], is stored so, and not as [N, K]; as the core sees it where it could be both."""
    (rows, cols), (row_stride, col_stride) = view.shape, view.strides
    if row_stride == 1 or rows <= 1:
        return rows <= 1 if cols <= 1 else col_stride == 1
    return True


def without_elements(view: GpuView, as_n_major: bool) -> GpuView:
    """A matrix that has none, with strides of that order: libraries give it any."""
    rows, cols = view.shape
    step = KERNEL_BYTES // ITEM_BYTES[view.dtype]
    strides = (max(cols, step), 1) if as_n_major else (1, max(rows, step))
    return GpuView(view.owner, view.address, view.shape, strides, view.dtype)


def _is_placed(view: GpuView, lines: int, pitch: int) -> bool:
    is_pitch_fine = lines == 1 or (pitch > 0 and pitch * ITEM_BYTES[view.dtype] % KERNEL_BYTES == 0)
    return is_pitch_fine and view.address % KERNEL_BYTES == 0
