"""What the calls and handles have in common of operations that multiply `a` by one or several weights `b`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tilewire import arrays
from tilewire.argument_checks import count, is_single, one_or_more_counts
from tilewire.communicator import Communicator
from tilewire.errors import InvalidArgument
from tilewire.op_calls import Call, CallArguments, Handle, Run, Shape, runner
from tilewire.operands import Operands, WeightArguments
from tilewire.plans import AnyPlan, plan_text

if TYPE_CHECKING:
    from tilewire import _core
    from tilewire.gpu.library import GpuLibrary
    from tilewire.gpu.repeats import Repeat


class WeightCallArguments(WeightArguments, CallArguments, Protocol):
    """What the compiled arguments of these operations have in common."""


class WeightShape(Shape, Protocol):
    """What the compiled shapes of their handles have in common."""

    rows: Sequence[int]
    k: int
    cols: Sequence[int]
    dtype: str
    out_dtype: str


W = TypeVar("W", bound=WeightCallArguments)
S = TypeVar("S", bound=WeightShape)


class WeightCall(Call[W, Operands]):
    """A call that gives one result a weight; one that gives more has a class of its own."""

    def __init__(self, arguments: W, operands: Operands) -> None:
        super().__init__(arguments, operands)
        self.is_repeatable = True  # its results are those of its weights, and it has no arrays but a, b, bias and out

    def repeat(self, library: GpuLibrary, gpu: int, sizes: Sequence[int]) -> Repeat | None:
        from tilewire.gpu.repeats import Repeat

        return Repeat(self, library, gpu, sizes[0]) if self.is_repeatable else None

    @staticmethod
    def pack_results(views: list[Any]) -> Any:
        """What make_results gives, of the results alone."""
        return views


@dataclass(frozen=True)
class Given:
    """The arrays of a call as the caller gave them, and the stream."""

    a: Any
    b: Any
    bias: Any
    out: Any
    stream: Any


def prepare(
    comm: Communicator, shared: Hashable, given: Given, is_plain: bool, make: Callable[[], WeightCall[W]]
) -> Callable[[Run], Any]:
    """Checks a call, and gives what runs it. `make` takes a close look at the arrays; where the call is plain, all
    but its arrays is in `shared`, one that looked like it before spares that."""
    again = comm._again(shared, (given.a, given.b, given.bias, given.out), given.stream) if is_plain else None
    ready = None if again is None else again.prepare(given.out)
    if again is not None and ready is not None:
        return partial(_run_again, comm, ready, again.stream)
    call = make()
    call.again = again
    return runner(comm, call)


def _run_again(comm: Communicator, ready: tuple[Any, Any, Any], stream: int, run: Run) -> Any:
    """A call that `Again` has prepared."""
    arguments, views, results = ready
    try:
        comm._note(run(arguments, _results_are_there, stream, views))
    except BaseException as error:
        comm._tell_lost_call(error)
        raise
    return results


def _results_are_there(rows: int) -> Any:
    raise AssertionError("the core asks for results that it was given")


def fill_shape(shape: S, *, rows: Sequence[int], k: Any, n: Any, dtypes: tuple[Any, Any], plan: AnyPlan) -> S:
    """The common part of a shape; `rows` are checked already. Gives the shape."""
    shape.rows = rows
    shape.k = count("k", k)
    shape.cols = one_or_more_counts("n", n)
    shape.dtype, shape.out_dtype = map(arrays.dtype_name, dtypes)
    shape.plan_json = plan_text(plan)
    return shape


class WeightHandle(Handle[S], ABC, Generic[W, S]):
    """Base of such an operation's handle."""

    def __init__(
        self,
        op: str,
        comm: Communicator | None,
        n: Any,
        make_shape: Callable[[], S],
        make_handle: Callable[[_core.Communicator, S], Any],
    ) -> None:
        """`make_shape` checks this rank's arguments; what it raises is told to the other ranks."""

        def checked() -> S:
            self._has_list = not is_single(n)
            return make_shape()

        super().__init__(op, comm, checked, make_handle)

    def __call__(self, a: Any, b: Any, *, out: Any = None, bias: Any = None, stream: Any = None) -> Any:
        """One call with the handle's shapes; `a`, `b`, `out`, `bias`, `stream` and the result as for the operation's
        function."""
        return self._run_given(Given(a, b, bias, out, stream), self._make_call)

    def _run_given(self, given: Given, make_call: Callable[[Operands], WeightCall[W]]) -> Any:
        is_plain = make_call == self._make_call  # it takes no more than these
        make = partial(self._checked_call, given, make_call)
        return self._run(partial(prepare, self._comm, self._token, given, is_plain, make))

    def _checked_call(self, given: Given, make_call: Callable[[Operands], WeightCall[W]]) -> WeightCall[W]:
        memory = self._comm._memory(given.a, given.stream)
        operands = Operands(memory, given.a, given.b, bias=given.bias, out=given.out, out_dtype=self._shape.out_dtype)
        if operands.has_list != self._has_list:
            raise InvalidArgument("b does not fit the handle", limit="a list of weights if n is a list, else one")
        call = make_call(operands)
        call.settle(self._op, self._token, self._result_rows(self._comm.rank))
        return call

    @abstractmethod
    def _result_rows(self, rank: int) -> int:
        """Of the results on a rank."""

    @abstractmethod
    def _make_call(self, operands: Operands) -> WeightCall[W]:
        """The operation's call with what the handle's shape has settled."""
