"""A stand-in for torch whose GPU memory is host memory: what Tilewire uses of it, and notes of what was asked.

`install()` puts it into the place of torch. Streams are numbers; `torch.allocations` has for each new tensor the stream
that was current, `torch.fills` for each copy, `torch.recorded` which tensors were recorded for which stream.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np


class DType:
    """As torch's: its text has the module in front."""

    __module__ = "torch"

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


bfloat16, float16, float32, int8 = (DType(name) for name in ("bfloat16", "float16", "float32", "int8"))
int32, int64 = DType("int32"), DType("int64")
_NUMPY = {bfloat16: np.dtype(ml_dtypes.bfloat16), float16: np.dtype(np.float16), float32: np.dtype(np.float32)}
_NUMPY |= {int32: np.dtype(np.int32), int64: np.dtype(np.int64)}
strided = "strided"


class Device:
    def __init__(self, gpu: int) -> None:
        self.type, self.index = ("cpu", None) if gpu < 0 else ("cuda", gpu)

    def __str__(self) -> str:
        return self.type if self.index is None else f"cuda:{self.index}"


class Tensor:
    def __init__(self, array: Any, gpu: int = 0, dtype: Any = None) -> None:
        self.array, self._gpu = array, gpu
        self.dtype = dtype or next(known for known, other in _NUMPY.items() if other == array.dtype)
        self.layout, self.requires_grad = strided, False

    is_cuda = property(lambda self: self._gpu >= 0)
    device = property(lambda self: Device(self._gpu))
    shape = property(lambda self: self.array.shape)

    def get_device(self) -> int:
        return self._gpu

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def copy_(self, other: Tensor) -> None:
        sys.modules["torch"].fills.append(cuda.current)  # type: ignore[attr-defined]
        self.array[...] = other.array.astype(self.array.dtype)

    def record_stream(self, stream: Stream) -> None:
        sys.modules["torch"].recorded.append((self, stream.cuda_stream))  # type: ignore[attr-defined]

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self.array[key], self._gpu, self.dtype)

    @property
    def T(self) -> Tensor:
        return Tensor(self.array.T, self._gpu, self.dtype)


POOL_STREAM = 4321


class Stream:
    def __init__(self, handle: int, device: int = 0) -> None:
        self.cuda_stream, self.device_index = handle, device


class _Cuda(types.SimpleNamespace):
    current = 0
    is_ready = True
    gpu = 0
    is_captured = False

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.is_ready

    def current_device(self) -> int:
        return self.gpu

    def current_stream(self, gpu: int) -> Stream:
        return Stream(self.current, gpu)

    def is_current_stream_capturing(self) -> bool:
        return self.is_captured

    def ExternalStream(self, handle: int, device: int) -> Stream:  # as torch names it
        return Stream(handle or POOL_STREAM, device)  # without a handle torch makes a stream

    def default_stream(self, gpu: int) -> Stream:
        return Stream(0, gpu)

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream.cuda_stream
        try:
            yield
        finally:
            self.current = before


cuda = _Cuda()
most_bytes = 1 << 30


def is_grad_enabled() -> bool:
    return True


def empty(shape: tuple[int, ...], dtype: DType, device: int) -> Tensor:
    if int(np.prod(shape)) * _NUMPY[dtype].itemsize > most_bytes:
        raise RuntimeError("CUDA out of memory. Tried to allocate much.\nMore text")
    sys.modules["torch"].allocations.append(cuda.current)  # type: ignore[attr-defined]
    return Tensor(placed(shape, _NUMPY[dtype]), device, dtype)


def placed(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array at a multiple of 512 bytes, as a GPU's allocator gives memory."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(count + 512, np.uint8)
    skip = -raw.ctypes.data % 512
    return raw[skip : skip + count].view(dtype).reshape(shape)


def from_dlpack(x: Any) -> Tensor:
    if isinstance(x, Foreign):
        return x.as_tensor()
    from tilewire import _core

    foreign = _core.ForeignArray(x.__dlpack__(stream=1))
    dtype = _NUMPY[{"bf16": bfloat16, "fp16": float16, "fp32": float32}[foreign.dtype]]
    count = int(np.prod(foreign.shape)) * dtype.itemsize
    bytes_ = (ctypes.c_uint8 * count).from_address(foreign.address)
    found = Tensor(np.frombuffer(bytes_, dtype).reshape(foreign.shape), foreign.gpu)
    found.keeps = foreign  # type: ignore[attr-defined]
    return found


def install() -> Any:
    """A fresh torch, in the place of any other. Gives it."""
    made = types.ModuleType("torch")
    for name in ("Tensor", "Stream", "bfloat16", "float16", "float32", "int8", "int32", "int64", "strided"):
        setattr(made, name, globals()[name])
    for name in ("is_grad_enabled", "empty", "from_dlpack"):
        setattr(made, name, globals()[name])
    cuda.current, cuda.is_ready, cuda.gpu, cuda.is_captured = 0, True, 0, False
    made.cuda = cuda  # type: ignore[attr-defined]
    made.allocations, made.fills, made.recorded = [], [], []  # type: ignore[attr-defined]
    sys.modules["torch"] = made
    return made


def tensor(shape: tuple[int, ...], dtype: DType = bfloat16, gpu: int = 0) -> Tensor:
    return Tensor(placed(shape, _NUMPY[dtype]), gpu, dtype)


# --- an array of a library that is not known


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
CUDA, CUDA_HOST = 2, 3


class Foreign:
    """All that is known of it is DLPack: `kind` and `gpu` are its device. Counts what was given back."""

    def __init__(self, array: Any, gpu: int = 0, kind: int = CUDA, code_bits: tuple[int, int] = (4, 16)) -> None:
        self.array, self.gpu, self.kind, self.code_bits = array, gpu, kind, code_bits
        self.streams: list[Any] = []
        self.given_back = 0
        self._lent: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.gpu

    def as_tensor(self) -> Tensor:
        return Tensor(self.array, self.gpu)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.streams.append(stream)
        count = self.array.ndim
        lengths = (ctypes.c_int64 * count)(*self.array.shape)
        strides = (ctypes.c_int64 * count)(*(stride // self.array.itemsize for stride in self.array.strides))
        code, bits = self.code_bits
        tensor = _DLTensor(self.array.ctypes.data, self.kind, self.gpu, count, code, bits, 1, lengths, strides, 0)

        def give_back(_: Any) -> None:
            self.given_back += 1

        managed = _Managed(tensor, None, _DELETER(give_back))
        self._lent.append((managed, lengths, strides))
        return _new_capsule(ctypes.addressof(managed), b"dltensor", None)
