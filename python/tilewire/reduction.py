"""What the operations have in common that sum the products of all ranks: one weight, a residual, the wire's dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tilewire import arrays
from tilewire.errors import InvalidArgument
from tilewire.operands import Operands
from tilewire.weight_calls import WeightCall, WeightCallArguments

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


def one_weight(comm: Communicator, a: Any, b: Any, stream: Any = None, **others: Any) -> Operands:
    """The operands of such a call; `others` are those of `Operands`."""
    if isinstance(b, (list, tuple)):
        raise InvalidArgument("b is a list", values=f"{len(b)} weights", limit="must be one weight")
    return Operands(comm._memory(a, stream), a, b, **others)


def dtype_word(name: str, dtype: Any) -> str:
    """A dtype as the core has it; "" for None."""
    return "" if dtype is None else arrays.dtype_name(arrays.numpy_dtype(dtype, name))
