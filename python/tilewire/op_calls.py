"""What the calls and handles of all operations do alike: check here, tell a refusal, run, note the report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tilewire import arrays
from tilewire.argument_checks import count, is_single, one_or_more_counts
from tilewire.communicator import Communicator, calling
from tilewire.errors import InvalidArgument
from tilewire.operands import Operands, WeightArguments
from tilewire.plans import AnyPlan, plan_text

if TYPE_CHECKING:
    from tilewire import _core
    from tilewire.gpu.repeats import Again


class CallArguments(WeightArguments, Protocol):
    """What the compiled arguments of all operations have in common."""

    plan_json: str


class Shape(Protocol):
    """What the compiled shapes of all handles have in common."""

    rows: Sequence[int]
    k: int
    cols: Sequence[int]
    dtype: str
    out_dtype: str
    plan_json: str


A = TypeVar("A", bound=CallArguments)
S = TypeVar("S", bound=Shape)


class Call(Generic[A]):
    """One call's arguments: keeps its arrays alive, makes the results when their size is known, hands them back.

    For an operation that gives one result a weight; one that gives more has a class of its own.
    """

    def __init__(self, arguments: A, operands: Operands) -> None:
        self.arguments = arguments
        self.operands = operands
        self.early: Any = None  # what make_results gives, where that is asked before the call
        self.again: Again | None = None  # how the call looked before its arrays were
        self.is_repeatable = True  # its results are those of its weights, and it has no arrays but a, b, bias and out
        self.key: Hashable = None  # of a call that is ready when this one has been made
        operands.fill(arguments)

    def settle(self, op: str, shared: Hashable, rows: int | None) -> None:
        """When all arguments are there. `shared`: those beside the operands that calls differ by; `rows`: those of the
        results, None where they are not known yet."""
        if rows is not None:
            o = self.operands
            weights = tuple([(one.shape, one.strides) for one in o.b])
            self.operands.memory.settle(self, (op, shared, o.a.shape, o.a.dtype, weights, o.out_dtype), rows)

    def make_results(self, rows: int) -> Any:
        """Called by the core once the number of rows is known, before anything is sent."""
        return self.operands.make_results(rows)

    @staticmethod
    def pack_results(views: list[Any]) -> Any:
        """What make_results gives, of the results alone."""
        return views

    def result(self) -> Any:
        """What the caller gets."""
        return self.operands.result()


# A compiled call, without its communicator: takes arguments, make_results and, on GPU ranks, a stream and early
# results.
Run = Callable[..., "_core.CallReport"]


@dataclass(frozen=True)
class Given:
    """The arrays of a call as the caller gave them, and the stream."""

    a: Any
    b: Any
    bias: Any
    out: Any
    stream: Any


def prepare(
    comm: Communicator, shared: Hashable, given: Given, is_plain: bool, make: Callable[[], Call[A]]
) -> Callable[[Run], Any]:
    """Checks a call, and gives what runs it. `make` takes a close look at the arrays; where the call is plain, all
    but its arrays is in `shared`, one that looked like it before spares that."""
    again = comm._again(shared, given.a, given.b, given.bias, given.out, given.stream) if is_plain else None
    ready = None if again is None else again.prepare(given.out)
    if again is not None and ready is not None:
        return partial(_run_again, comm, ready, again.stream)
    call = make()
    call.again = again
    return partial(_run_call, comm, call)


def _run_again(comm: Communicator, ready: tuple[Any, Any, Any], stream: int, run: Run) -> Any:
    """A call that `Again` has prepared."""
    arguments, views, results = ready
    comm._note(run(arguments, _results_are_there, stream, views))
    return results


def _run_call(comm: Communicator, call: Call[A], run: Run) -> Any:
    comm._note(call.operands.memory.run(call, run))
    return call.result()


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


class Handle(ABC, Generic[A, S]):
    """Base of an operation's handle: its shapes are fixed once, for many calls. Creation is collective."""

    def __init__(
        self,
        op: str,
        comm: Communicator | None,
        n: Any,
        make_shape: Callable[[], S],
        make_handle: Callable[[_core.Communicator, S], Any],
    ) -> None:
        """`make_shape` checks this rank's arguments; what it raises is told to the other ranks."""
        self._op = op
        with calling(op, comm) as self._comm:
            self._has_list = not is_single(n)
            self._shape = make_shape()
        self._token = object()
        self._handle = make_handle(self._comm._core, self._shape)

    @property
    def plan(self) -> str:
        """The plan as JSON text, on this rank."""
        return str(self._handle.plan_json)

    def explain(self) -> str:
        """For people: the plan, its predicted time, and why the other candidates lost."""
        return str(self._handle.explain())

    def __call__(self, a: Any, b: Any, *, out: Any = None, bias: Any = None, stream: Any = None) -> Any:
        """One call with the handle's shapes; `a`, `b`, `out`, `bias`, `stream` and the result as for the operation's
        function."""
        return self._run(a, b, out, bias, stream, self._make_call)

    def _run(self, a: Any, b: Any, out: Any, bias: Any, stream: Any, make_call: Callable[[Operands], Call[A]]) -> Any:
        given = Given(a, b, bias, out, stream)
        is_plain = make_call == self._make_call  # it takes no more than these
        with calling(self._op, self._comm):
            run = prepare(self._comm, self._token, given, is_plain, lambda: self._checked_call(given, make_call))
        return run(self._handle)

    def _checked_call(self, given: Given, make_call: Callable[[Operands], Call[A]]) -> Call[A]:
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
    def _make_call(self, operands: Operands) -> Call[A]:
        """The operation's call with what the handle's shape has settled."""
