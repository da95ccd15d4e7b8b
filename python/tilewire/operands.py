"""The arrays of a call that multiplies by weights: how they come in, what is checked, how the results are made.

For the file of any operation. Everything raises `InvalidArgument` that names the argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tilewire import _core, arrays
from tilewire.argument_checks import counts
from tilewire.errors import InvalidArgument


class WeightArguments(Protocol):
    """What the compiled arguments of such an operation have in common."""

    a: _core.Matrix
    b: Sequence[_core.Matrix]
    bias: Sequence[int]
    out_dtype: str


class RowArguments(Protocol):
    """Compiled arguments with a `rows`."""

    def use_rows(self, rows: Sequence[int], /) -> None: ...
    def exchange_rows(self) -> None: ...


class Operands:
    """`a`, one or several weights `b` with their biases, and where the results go. Keeps all of them alive."""

    def __init__(self, a: Any, b: Any, *, bias: Any = None, out: Any = None, out_dtype: Any = None) -> None:
        self.has_list = isinstance(b, (list, tuple))  # then results are a list, too
        self._example = a
        self.a = arrays.as_input(a, "a")
        weights = list(b) if self.has_list else [b]
        self.b = [arrays.as_input(one, self.name("b", i)) for i, one in enumerate(weights)]
        self._check_weights()
        self._bias = self._biases(bias)
        self._out = self._outputs(out)
        self.out_dtype = self._choose_out_dtype(out_dtype)
        self._results: list[Any] = []

    def name(self, argument: str, index: int) -> str:
        """ "b[2]", or "b" when there is no list."""
        return f"{argument}[{index}]" if self.has_list else argument

    def fill(self, arguments: WeightArguments) -> None:
        arguments.a = arrays.matrix(self.a)
        arguments.b = [arrays.matrix(one) for one in self.b]
        if self._bias is not None:
            arguments.bias = [0 if one is None else arrays.address(one) for one in self._bias]
        arguments.out_dtype = arrays.dtype_name(self.out_dtype)

    def make_results(self, rows: int) -> list[_core.Matrix]:
        """Memory for the results, [rows, N] for each weight: what was given as `out`, or new."""
        if self._out is None:
            self._results = [self.new_array(self.name("the result", i), rows, one) for i, one in enumerate(self.b)]
        else:
            self._results = self._out
        views = [arrays.as_output(one, self.name("out", i)) for i, one in enumerate(self._results)]
        return [arrays.matrix(view) for view in views]

    def result(self) -> Any:
        """What `make_results` gave memory for, as the caller gets it."""
        return self._results if self.has_list else self._results[0]

    def new_array(self, name: str, rows: int, weight: arrays.Array) -> Any:
        """[rows, N] of the results' dtype, of the library of `a`."""
        return arrays.new_like(self._example, (rows, weight.shape[1]), self.out_dtype, name)

    def new_like_a(self, name: str, rows: int) -> Any:
        """[rows, K] of the dtype and the library of `a`."""
        return arrays.new_like(self._example, (rows, self.a.shape[1]), self.a.dtype, name)

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

    def _biases(self, bias: Any) -> list[arrays.Array | None] | None:
        if bias is None:
            return None
        each = self._one_a_weight(bias, "bias")
        return [
            None if one is None else arrays.bias_values(one, self.name("bias", i), self.b[i].shape[1])
            for i, one in enumerate(each)
        ]

    def _outputs(self, out: Any) -> list[Any] | None:
        if out is None:
            return None
        each = self._one_a_weight(out, "out")
        for i, one in enumerate(each):
            arrays.as_output(one, self.name("out", i))
        return each

    def _one_a_weight(self, given: Any, name: str) -> list[Any]:
        if isinstance(given, (list, tuple)) != self.has_list:
            raise InvalidArgument(
                f"{name} does not fit b", limit=f"{name} must be a list if b is one, and a single array if b is one"
            )
        each = list(given) if self.has_list else [given]
        if len(each) != len(self.b):
            raise InvalidArgument(
                f"{name} has the wrong length",
                values=f"{len(each)} of {name}, {len(self.b)} weights",
                limit="one for each weight",
            )
        return each

    def _choose_out_dtype(self, out_dtype: Any) -> Any:
        if out_dtype is not None:
            return arrays.numpy_dtype(out_dtype, "out_dtype")
        return arrays.as_numpy(self._out[0], "out").dtype if self._out else self.a.dtype


def dtypes_of(dtype: Any, out_dtype: Any) -> tuple[Any, Any]:
    """numpy's dtypes of inputs and results; the results' is that of the inputs unless it is given."""
    wanted = arrays.numpy_dtype(dtype, "dtype")
    return wanted, wanted if out_dtype is None else arrays.numpy_dtype(out_dtype, "out_dtype")


def choose_rows(arguments: RowArguments, rows: Sequence[int] | str | None) -> None:
    """The argument `rows`: None, a list of counts, or "exchange"."""
    if isinstance(rows, str):
        if rows != "exchange":
            raise InvalidArgument("rows is unknown", values=f"rows = {rows!r}", limit='None, a list or "exchange"')
        arguments.exchange_rows()
    elif rows is not None:
        arguments.use_rows(counts("rows", rows))
