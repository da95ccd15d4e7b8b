"""The arrays of a call that multiplies by weights: how they come in, what is checked, how the results are made.

For the file of any operation. Everything raises `InvalidArgument` that names the argument.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from tilewire import _core, arrays
from tilewire.argument_checks import counts
from tilewire.errors import InvalidArgument
from tilewire.operand_memory import Memory


class WeightArguments(Protocol):
    """What the compiled arguments of such an operation have in common."""

    a: _core.Matrix
    b: Sequence[_core.Matrix]
    bias: Sequence[int]
    bias_dtype: str
    out_dtype: str


class RowArguments(Protocol):
    """Compiled arguments with a `rows`."""

    def use_rows(self, rows: Sequence[int], /) -> None: ...
    def exchange_rows(self) -> None: ...


class Operands:
    """`a`, one or several weights `b` with their biases, and where the results go. Keeps all of them alive.

    `memory` says where they lie. Dtypes are words: bf16, fp16, fp32.
    """

    def __init__(
        self, memory: Memory, a: Any, b: Any, *, bias: Any = None, out: Any = None, out_dtype: Any = None
    ) -> None:
        self.memory = memory
        self.has_list = isinstance(b, (list, tuple))  # then results are a list, too
        self._example = a
        weights = list(b) if self.has_list else [b]
        self.a, self.b = memory.inputs(a, weights, self._names("b", len(weights)))
        self._check_weights()
        self._bias, self._bias_dtype = self._biases(bias)
        self._out, self._out_views = self._outputs(out)
        self.out_dtype = self._choose_out_dtype(out_dtype)
        self._results: list[Any] = []

    @property
    def has_bias(self) -> bool:
        return self._bias is not None

    @property
    def has_out(self) -> bool:
        return self._out is not None

    @property
    def out_views(self) -> list[Any]:
        """Of what was given as `out`."""
        return self._out_views

    def name(self, argument: str, index: int) -> str:
        """ "b[2]", or "b" when there is no list."""
        return f"{argument}[{index}]" if self.has_list else argument

    def fill(self, arguments: WeightArguments) -> None:
        memory = self.memory
        arguments.a = memory.matrix(self.a)
        arguments.b = [memory.matrix(one) for one in self.b]
        if self._bias is not None:
            arguments.bias = [0 if one is None else memory.address(one) for one in self._bias]
            arguments.bias_dtype = self._bias_dtype
        arguments.out_dtype = self.out_dtype

    def key(self) -> Hashable:
        """All that the core tells calls by, of them and of the results."""
        return self.a.shape, self.a.dtype, tuple([(one.shape, one.strides) for one in self.b]), self.out_dtype

    def make_results(self, rows: int) -> list[_core.Matrix]:
        """Memory for the results, [rows, N] for each weight: what was given as `out`, or new."""
        if self._out is not None:
            self._results, views = self._out, self._out_views
        else:
            names = self._names("the result", len(self.b))
            self._results = [self.new_array(name, rows, one) for name, one in zip(names, self.b, strict=True)]
            views = [self.memory.view_result(one, name) for name, one in zip(names, self._results, strict=True)]
        return [self.memory.matrix(view) for view in views]

    def result(self) -> Any:
        """What `make_results` gave memory for, as the caller gets it."""
        return self._results if self.has_list else self._results[0]

    def new_array(self, name: str, rows: int, weight: Any) -> Any:
        """[rows, N] of the results' dtype, of the library of `a`."""
        return self.memory.new_like(self._example, (rows, weight.shape[1]), self.out_dtype, name)

    def new_like_a(self, name: str, rows: int) -> Any:
        """[rows, K] of the dtype and the library of `a`."""
        return self.memory.new_like(self._example, (rows, self.a.shape[1]), self.memory.dtype_of(self.a), name)

    def _names(self, argument: str, count: int) -> list[str]:
        return [f"{argument}[{i}]" for i in range(count)] if self.has_list else [argument]

    def _check_weights(self) -> None:
        """A weight [N, K] given where [K, N] is meant deserves a better word than that the sizes differ."""
        k = self.a.shape[1]
        for i, one in enumerate(self.b):
            if one.shape[0] != k and one.shape[1] == k:
                name = self.name("b", i)
                raise InvalidArgument(
                    f"{name} looks like a weight stored as [N, K]",
                    values=f"a is {list(self.a.shape)}, {name} is {list(one.shape)}",
                    limit=f"{name} must be [K, N] with K = {k}",
                    advice=f"pass {name}.T, a view that copies nothing",
                )

    def _biases(self, bias: Any) -> tuple[list[Any] | None, str]:
        if bias is None:
            return None, ""
        each = self._one_a_weight(bias, "bias")
        return self.memory.biases(each, self._names("bias", len(each)), [one.shape[1] for one in self.b])

    def _outputs(self, out: Any) -> tuple[list[Any] | None, list[Any]]:
        if out is None:
            return None, []
        each = self._one_a_weight(out, "out")
        return each, self.memory.outputs(each, self._names("out", len(each)))

    def _one_a_weight(self, given: Any, name: str) -> list[Any]:
        if isinstance(given, (list, tuple)) != self.has_list:
            raise InvalidArgument(
                f"{name} does not fit b",
                values=f"{name} is a {type(given).__name__}, b is {'a list' if self.has_list else 'one weight'}",
                limit=f"{name} must be a list where b is one, and an array where b is an array",
            )
        each = list(given) if self.has_list else [given]
        if len(each) != len(self.b):
            raise InvalidArgument(
                f"{name} has the wrong length",
                values=f"{len(each)} of {name}, {len(self.b)} weights",
                limit="one for each weight",
            )
        return each

    def _choose_out_dtype(self, out_dtype: Any) -> str:
        if out_dtype is not None:
            return arrays.dtype_name(arrays.numpy_dtype(out_dtype, "out_dtype"))
        return self.memory.dtype_of(self._out_views[0] if self._out_views else self.a)


def dtypes_of(dtype: Any, out_dtype: Any) -> tuple[Any, Any]:
    """numpy's dtypes of inputs and results; the results' is that of the inputs unless it is given."""
    wanted = arrays.numpy_dtype(dtype, "dtype")
    return wanted, wanted if out_dtype is None else arrays.numpy_dtype(out_dtype, "out_dtype")


def choose_rows(arguments: RowArguments, rows: Sequence[int] | str | None) -> list[int] | None:
    """The argument `rows`: None, a list of counts, or "exchange". Gives the list, if it is one."""
    if rows is None:
        return None
    if isinstance(rows, str):
        if rows != "exchange":
            raise InvalidArgument("rows is unknown", values=f"rows = {rows!r}", limit='None, a list or "exchange"')
        arguments.exchange_rows()
        return None
    listed = counts("rows", rows)
    arguments.use_rows(listed)
    return listed
