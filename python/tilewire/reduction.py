"""What the operations have in common that sum the products of all ranks: one weight, a residual, the wire's dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from tilewire import arrays
from tilewire.errors import InvalidArgument
from tilewire.operands import Operands
from tilewire.weight_calls import Given, S, WeightCall, WeightCallArguments, WeightHandle

if TYPE_CHECKING:
    from tilewire import _core
    from tilewire.communicator import Communicator


class ReductionArguments(WeightCallArguments, Protocol):
    """What the compiled arguments of these operations have in common."""

    residual: _core.Matrix | None
    wire_dtype: str


R = TypeVar("R", bound=ReductionArguments)


class ReductionCall(WeightCall[R]):
    """It may have a residual."""

    def __init__(self, arguments: R, operands: Operands, residual: Any) -> None:
        super().__init__(arguments, operands)
        if residual is None:
            return
        memory = operands.memory
        self._residual = memory.extra(residual, "residual")
        self.arguments.residual = memory.matrix(self._residual)
        self.is_repeatable = False


class ReductionHandle(WeightHandle[R, S], Generic[R, S]):
    """Base of such an operation's handle; `_arguments` makes the compiled arguments of a call."""

    _arguments: ClassVar[type[Any]]

    def __call__(
        self, a: Any, b: Any, *, out: Any = None, bias: Any = None, stream: Any = None, residual: Any = None
    ) -> Any:
        """One call with the handle's shapes; the arguments and the result as for the operation's function."""
        if residual is None:
            return super().__call__(a, b, out=out, bias=bias, stream=stream)
        return self._run_given(Given(a, b, bias, out, stream), lambda operands: self._call_with(operands, residual))

    def _make_call(self, operands: Operands) -> WeightCall[R]:
        return self._call_with(operands, None)

    def _call_with(self, operands: Operands, residual: Any) -> WeightCall[R]:
        return ReductionCall(self._arguments(), operands, residual)


def one_weight(comm: Communicator, a: Any, b: Any, stream: Any = None, **others: Any) -> Operands:
    """The operands of such a call; `others` are those of `Operands`."""
    if isinstance(b, (list, tuple)):
        raise InvalidArgument("b is a list", values=f"{len(b)} weights", limit="must be one weight")
    return Operands(comm._memory(a, stream), a, b, **others)


def dtype_word(name: str, dtype: Any) -> str:
    """A dtype as the core has it; "" for None."""
    return "" if dtype is None else arrays.dtype_name(arrays.numpy_dtype(dtype, name))
