"""Where the arrays of a call lie: what `tilewire.operands` needs of it, and host memory, which CPU ranks take."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewire import arrays
from tilewire.errors import InvalidArgument, ResourceError

if TYPE_CHECKING:
    from tilewire import _core
    from tilewire.op_calls import Call


class Memory(Protocol):
    """Takes arrays of a call over as views with a `shape`, and gives memory for results.

    Functions raise `InvalidArgument` that names the argument. Dtypes are words: bf16, fp16, fp32.
    """

    def inputs(self, a: Any, b: Sequence[Any], names: Sequence[str]) -> tuple[Any, list[Any]]:
        """Views of `a` and of the weights, for reading; `names` are those of the weights."""
        ...

    def biases(self, bias: Sequence[Any], names: Sequence[str], columns: Sequence[int]) -> tuple[list[Any], str]:
        """Views of [columns] contiguous values each, None where there is none, and the dtype that they all have."""
        ...

    def extra(self, x: Any, name: str, ndim: int = 2) -> Any:
        """A view of an array that an operation reads besides, of any dtype and strides."""
        ...

    def rows(self, x: Any, name: str) -> Any:
        """A view of [rows, columns], for reading."""
        ...

    def slots(self, x: Any, name: str) -> Any:
        """A view of [slots, rows, columns], for reading: weights behind each other."""
        ...

    def whole_numbers(self, x: Any, name: str) -> Any:
        """A view of a matrix of int32 or int64, for reading."""
        ...

    def heads(self, x: Any, name: str) -> Any:
        """A view of [B, S, H, D], for reading."""
        ...

    def outputs(self, out: Sequence[Any], names: Sequence[str], ndim: int = 2) -> list[Any]:
        """Views of what the caller gave for results."""
        ...

    def new_like(self, example: Any, shape: tuple[int, ...], dtype: str, name: str) -> Any:
        """Memory for a result, of the library of `example`. Raises `ResourceError`."""
        ...

    def view_result(self, x: Any, name: str, ndim: int = 2) -> Any:
        """A view of what `new_like` gave."""
        ...

    def new_numbers(self, example: Any, shape: tuple[int, ...], dtype: str, name: str) -> tuple[Any, int]:
        """Memory for int32 or int64 that a call gives, in C order, and its address. Of numpy for CPU ranks, of the
        library of `example` on a GPU. Raises `ResourceError`."""
        ...

    def dtype_of(self, view: Any) -> str: ...
    def item_bytes(self, view: Any) -> int: ...
    def address(self, view: Any) -> int: ...
    def strides(self, view: Any) -> tuple[int, ...]:
        """In elements."""
        ...

    def matrices(self, view: Any) -> list[_core.Matrix]:
        """Those of `slots`, one behind the other."""
        ...

    def matrix(self, view: Any) -> _core.Matrix:
        """What the compiled core takes. The view must live as long as it is used."""
        ...

    def settle(self, call: Call[Any, Any], key: Hashable, sizes: Sequence[int]) -> None:
        """Before a call that has all its arguments. `key`: all that the core tells calls by; `sizes`: those that the
        operation asks for results with."""
        ...

    def run(self, call: Call[Any, Any], run: Callable[..., _core.CallReport]) -> _core.CallReport:
        """Makes the call; `run` takes arguments, make_results, stream and results, as the compiled core has it."""
        ...


class HostMemory:
    """Arrays of numpy, of torch on the CPU, and of anything with `__dlpack__`; see `tilewire.arrays`."""

    def inputs(self, a: Any, b: Sequence[Any], names: Sequence[str]) -> tuple[Any, list[Any]]:
        return arrays.as_input(a, "a"), [arrays.as_input(one, name) for one, name in zip(b, names, strict=True)]

    def biases(self, bias: Sequence[Any], names: Sequence[str], columns: Sequence[int]) -> tuple[list[Any], str]:
        each = zip(bias, names, columns, strict=True)
        return [None if one is None else arrays.bias_values(one, name, count) for one, name, count in each], "fp32"

    def extra(self, x: Any, name: str, ndim: int = 2) -> Any:
        return arrays.as_input(x, name, ndim)

    def rows(self, x: Any, name: str) -> Any:
        return arrays.as_input(x, name)

    def slots(self, x: Any, name: str) -> Any:
        return arrays.as_input(x, name, 3)

    def whole_numbers(self, x: Any, name: str) -> Any:
        return arrays.as_whole_numbers(x, name)

    def heads(self, x: Any, name: str) -> Any:
        return arrays.as_input(x, name, 4)

    def outputs(self, out: Sequence[Any], names: Sequence[str], ndim: int = 2) -> list[Any]:
        return [arrays.as_output(one, name, ndim) for one, name in zip(out, names, strict=True)]

    def new_like(self, example: Any, shape: tuple[int, ...], dtype: str, name: str) -> Any:
        return arrays.new_like(example, shape, arrays.numpy_dtype(dtype, name), name)

    def view_result(self, x: Any, name: str, ndim: int = 2) -> Any:
        return arrays.as_output(x, name, ndim)

    def new_numbers(self, example: Any, shape: tuple[int, ...], dtype: str, name: str) -> tuple[Any, int]:
        try:
            made = np.empty(shape, dtype)
        except (MemoryError, ValueError) as error:
            raise ResourceError(f"{name} do not fit into memory", values=f"{list(shape)} of {dtype}") from error
        return made, arrays.address(made)

    def item_bytes(self, view: Any) -> int:
        return int(view.itemsize)

    def strides(self, view: Any) -> tuple[int, ...]:
        return tuple(stride // view.itemsize for stride in view.strides)

    def matrices(self, view: Any) -> list[_core.Matrix]:
        return [arrays.matrix(one) for one in view]

    def dtype_of(self, view: Any) -> str:
        return arrays.dtype_name(view.dtype)

    def address(self, view: Any) -> int:
        return arrays.address(view)

    def matrix(self, view: Any) -> _core.Matrix:
        return arrays.matrix(view)

    def settle(self, call: Call[Any, Any], key: Hashable, sizes: Sequence[int]) -> None:
        """Results are made when the core asks for them."""

    def run(self, call: Call[Any, Any], run: Callable[..., _core.CallReport]) -> _core.CallReport:
        return run(call.arguments, call.make_results)


_HOST = HostMemory()


def host_memory(stream: Any) -> HostMemory:
    """That of a call on CPU ranks, which have no streams."""
    if stream is not None:
        raise InvalidArgument(
            "a call on CPU ranks takes no stream", values=f"stream is a {type(stream).__name__}", limit="must be None"
        )
    return _HOST
