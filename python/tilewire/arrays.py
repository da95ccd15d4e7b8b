"""Arrays of several libraries, seen as numpy arrays over the same memory; no element is copied.

numpy arrays are taken as they are (bf16 by ml_dtypes), torch tensors and anything else with `__dlpack__` become views.
Functions raise `InvalidArgument` that names the argument.
"""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy import ma  # np.ma would be imported by its first use, which is in a call
from numpy.typing import NDArray

from tilewire import _core
from tilewire.argument_checks import INT64_MOST
from tilewire.errors import InvalidArgument, ResourceError
from tilewire.gpu.imported import any_library

Array: TypeAlias = NDArray[Any]

_DTYPES: dict[str, Any] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp16": np.dtype(np.float16),
    "fp32": np.dtype(np.float32),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_WORDS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_DTYPES_TEXT = "bf16, fp16 or fp32"


def numpy_dtype(dtype: Any, name: str) -> Any:
    """The numpy dtype of "bf16", "bfloat16", a numpy dtype or a torch dtype."""
    if not isinstance(dtype, str) and type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")
    if isinstance(dtype, str):
        dtype = _DTYPES.get(_WORDS.get(dtype, dtype), dtype)
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        found = None
    if found not in _NAMES:
        raise InvalidArgument(f"{name} is not supported", values=f"{name} = {dtype}", limit=f"must be {_DTYPES_TEXT}")
    return found


def dtype_name(dtype: Any) -> str:
    """ "bf16", "fp16" or "fp32" of a numpy dtype that `numpy_dtype` gave."""
    return _NAMES[dtype]


def is_torch(x: Any) -> bool:
    """Whether x is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def as_numpy(x: Any, name: str) -> Array:
    """A numpy array over the memory of x, any strides, of one of the three dtypes in native byte order."""
    if is_torch(x):
        return _from_torch(x, name)
    if isinstance(x, np.ndarray):
        return _checked(x, name)
    if hasattr(x, "__dlpack__"):
        return _from_dlpack(x, name)
    if hasattr(type(x), "__array_interface__") or hasattr(x, "__array_interface__"):
        return _checked(_from_interface(x, name), name)
    raise InvalidArgument(
        f"{name} is no array",
        values=f"{name} is a {type(x).__name__}",
        limit="must be a numpy array, a torch tensor or an object with __dlpack__",
    )


def _of_dimensions(x: Any, name: str, ndim: int) -> Array:
    array = as_numpy(x, name)
    _check_dimensions(array, name, ndim)
    return array


def _check_dimensions(array: Array, name: str, ndim: int) -> None:
    if array.ndim != ndim:
        raise InvalidArgument(
            f"{name} has the wrong number of dimensions",
            values=f"{name} has shape {list(array.shape)}",
            limit=f"must have {ndim}",
            advice=f"reshape it to {ndim} dimensions",
        )


def as_input(x: Any, name: str, ndim: int = 2) -> Array:
    """`as_numpy` for what is read: `ndim` dimensions; copied where elements do not lie at multiples of their size."""
    array = _of_dimensions(x, name, ndim)
    return array if _is_aligned(array) else np.array(array, order="C", copy=True)


def as_whole_numbers(x: Any, name: str, ndim: int = 2) -> Array:
    """A numpy array over the memory of x, which is read: int32 or int64, any strides; copied where elements do not lie
    at multiples of their size. Of numpy, of torch on the CPU, or of anything with `__dlpack__`."""
    if is_torch(x):
        if x.device.type != "cpu":
            raise _wrong_device(name, x.device)
        array: Array = x.numpy()
    elif isinstance(x, np.ndarray):
        array = x
    elif hasattr(x, "__dlpack__"):
        try:
            array = np.from_dlpack(x)
        except Exception as error:  # of a user's class
            raise _no_dlpack(name, error) from error
    else:
        raise InvalidArgument(
            f"{name} is no array",
            values=f"{name} is a {type(x).__name__}",
            limit="must be a numpy array, a torch tensor or an object with __dlpack__",
        )
    if array.dtype not in (np.dtype(np.int32), np.dtype(np.int64)) or not array.dtype.isnative:
        raise InvalidArgument(
            f"{name} has a dtype that is not supported",
            values=f"{name} is {array.dtype}",
            limit="must be int32 or int64",
        )
    _check_dimensions(array, name, ndim)
    return array if _is_aligned(array) else np.array(array, order="C", copy=True)


def as_output(x: Any, name: str, ndim: int = 2) -> Array:
    """`as_numpy` for what is written."""
    try:
        array = _of_dimensions(x, name, ndim)
    except InvalidArgument as error:
        # What helps with inputs would make a copy, and the result would be lost.
        advice = f"pass an array that can be written where it lies, or leave {name} away"
        raise InvalidArgument(error.what, values=error.values, limit=error.limit, advice=advice) from None
    if not array.flags.writeable:
        raise InvalidArgument(f"{name} is read-only", advice="pass an array that can be written, or leave out away")
    if not _is_aligned(array):
        raise InvalidArgument(
            f"{name} is not aligned",
            values=f"{name} has strides {list(array.strides)} bytes",
            limit=f"address and strides must be multiples of {array.itemsize} bytes",
        )
    return array


def bias_values(x: Any, name: str, columns: int) -> Array:
    """[columns] contiguous fp32 values; bf16 and fp16 ones lose nothing."""
    array = as_input(x, name, ndim=1)
    if array.shape[0] != columns:
        raise InvalidArgument(
            f"{name} has the wrong length",
            values=f"{name} has {array.shape[0]} values, its weight has {columns} columns",
            limit="must be equal",
        )
    return np.ascontiguousarray(array, dtype=np.float32)


def matrix(array: Array) -> _core.Matrix:
    """What the compiled core takes. The array must live as long as it is used."""
    item = array.itemsize
    rows, cols = array.shape
    # numpy gives arrays without elements any strides.
    strides = (array.strides[0] // item, array.strides[1] // item) if array.size else (max(cols, 1), 1)
    return _core.Matrix(address(array), (rows, cols), strides, _NAMES[array.dtype])


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def new_like(example: Any, shape: Sequence[int], dtype: Any, name: str) -> Any:
    """Uninitialised memory of the library of `example`: torch for torch, numpy for all else. Raises `ResourceError`."""
    torch: Any = sys.modules["torch"] if is_torch(example) else None
    try:
        if torch is not None:
            return torch.empty(tuple(shape), dtype=_torch_dtype(dtype))
        return np.empty(tuple(shape), dtype)
    except (MemoryError, ValueError, RuntimeError) as error:  # numpy's, numpy's for absurd sizes, torch's
        raise ResourceError(
            f"{name} does not fit into memory",
            values=f"{list(shape)} of {dtype_name(dtype)}, {math.prod(shape) * dtype.itemsize} bytes",
        ) from error


def arena_array(core: _core.Communicator, shape: Sequence[int], dtype: Any) -> Any:
    """An array over memory of the communicator's arena."""
    wanted = numpy_dtype(dtype, "dtype")
    block = _core.ArenaBlock(core, _arena_bytes(shape, wanted))
    try:
        array = _over(block, block.address, tuple(shape), None, wanted, read_only=False)
    except ValueError as error:
        raise InvalidArgument(
            "no array has such a shape", values=f"shape = {reprlib.repr(list(shape))}", limit=first_line(error)
        ) from error
    return _to_torch(array) if type(dtype).__module__ == "torch" else array


def arena_gpu_array(core: _core.Communicator, shape: Sequence[int], dtype: Any) -> Any:
    """An array of a GPU library over memory of the communicator's arena."""
    wanted = numpy_dtype(dtype, "dtype")
    library = any_library("arrays in the arena of a GPU rank")
    block = _core.ArenaBlock(core, _arena_bytes(shape, wanted))
    return library.take(_core.gpu_array(block, shape, _NAMES[wanted]))


def _arena_bytes(shape: Sequence[int], dtype: Any) -> int:
    bytes_ = math.prod(shape) * int(dtype.itemsize)
    if bytes_ > INT64_MOST:
        raise ResourceError(
            "an array does not fit into the arena", values=f"{list(shape)} of {_NAMES[dtype]}, {bytes_} bytes"
        )
    return bytes_


class _Memory:
    """Lets numpy see memory that `owner` keeps alive."""

    def __init__(self, owner: Any, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def _over(
    owner: Any, at: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: Any, read_only: bool
) -> Array:
    interface = {
        "version": 3,
        "shape": shape,
        "strides": strides,
        "typestr": f"<u{dtype.itemsize}",
        "data": (at, read_only),
    }
    return np.asarray(_Memory(owner, interface)).view(dtype)


def _checked(array: Array, name: str) -> Array:
    if isinstance(array, ma.MaskedArray):
        raise InvalidArgument(f"{name} is a masked array", advice=f"pass {name}.filled(...)")
    if array.dtype not in _NAMES or not array.dtype.isnative:
        raise _wrong_dtype(name, array.dtype)
    return array


def _wrong_dtype(name: str, dtype: Any) -> InvalidArgument:
    return InvalidArgument(
        f"{name} has a dtype that is not supported",
        values=f"{name} is {dtype}",
        limit=f"must be {_DTYPES_TEXT}",
        advice=f"pass {name}.astype(...), with numpy.float32 or ml_dtypes.bfloat16",
    )


def _is_aligned(array: Array) -> bool:
    return address(array) % array.itemsize == 0 and all(stride % array.itemsize == 0 for stride in array.strides)


def _wrong_device(name: str, device: Any) -> InvalidArgument:
    return InvalidArgument(
        f"{name} is not in host memory",
        values=f"{name} is on {device}",
        limit="the ranks of this communicator are CPUs",
        advice=f'pass {name}.cpu(), or make the communicator by tilewire.init(device="cuda")',
    )


def _from_torch(x: Any, name: str) -> Array:
    torch: Any = sys.modules["torch"]
    if x.device.type != "cpu":
        raise _wrong_device(name, x.device)
    if x.layout != torch.strided:
        raise InvalidArgument(f"{name} is not dense", values=f"layout {x.layout}", advice=f"pass {name}.to_dense()")
    if x.requires_grad and torch.is_grad_enabled():
        raise InvalidArgument(
            f"{name} requires grad",
            limit="this call records no gradient",
            advice=f"pass {name}.detach(), or call under torch.no_grad()",
        )
    if x.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise _wrong_dtype(name, x.dtype)
    x = x.detach()
    if x.dtype == torch.bfloat16:
        array: Array = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return array
    array = x.numpy()
    return array


def _torch_dtype(dtype: Any) -> Any:
    torch: Any = sys.modules["torch"]
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[_NAMES[dtype]]


def _to_torch(array: Array) -> Any:
    torch: Any = sys.modules["torch"]
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _from_interface(x: Any, name: str) -> Array:
    try:
        return np.asarray(x)
    except Exception as error:  # of a user's class
        raise InvalidArgument(
            f"{name} cannot be taken over by its __array_interface__", values=first_line(error)
        ) from error


def _from_dlpack(x: Any, name: str) -> Array:
    try:
        device = dlpack_device(x)
    except Exception as error:  # of a user's class
        raise _no_dlpack(name, error) from error
    if device[0] != 1:  # kDLCPU
        raise _wrong_device(name, f"DLPack device {device}")
    try:
        foreign = _core.ForeignArray(x)
    except Exception as error:
        raise _no_dlpack(name, _dlpack_error(x) or error) from error
    if not foreign.is_on_cpu:
        raise _wrong_device(name, foreign.device)
    dtype = _DTYPES.get(foreign.dtype)
    if dtype is None:
        raise _wrong_dtype(name, foreign.dtype)
    strides = tuple(stride * dtype.itemsize for stride in foreign.strides)
    return _over(foreign, foreign.address, tuple(foreign.shape), strides, dtype, read_only=True)


def dlpack_device(x: Any) -> tuple[int, int]:
    """CPU where it is not said."""
    device = getattr(x, "__dlpack_device__", None)
    if device is None:
        return 1, 0
    kind, number = device()
    return int(kind), int(number)


def _no_dlpack(name: str, error: Exception) -> InvalidArgument:
    return InvalidArgument(f"{name} cannot be taken over by DLPack", values=first_line(error))


def _dlpack_error(x: Any) -> Exception | None:
    """Why an array refused: whoever took it over has lost that."""
    try:
        x.__dlpack__()
    except Exception as error:
        return error
    return None


def first_line(error: Exception) -> str:
    """Its first line behind its class."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
