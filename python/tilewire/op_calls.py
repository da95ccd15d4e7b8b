"""What the calls and handles of all operations do alike, whatever their operands: check here, tell a refusal, run, note
the report. `tilewire.weight_calls` has what those have besides that multiply by weights."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tilewire.calling import calling
from tilewire.communicator import Communicator
from tilewire.errors import Error

if TYPE_CHECKING:
    from tilewire import _core
    from tilewire.gpu.library import GpuLibrary
    from tilewire.gpu.repeats import Again, Repeat
    from tilewire.operand_memory import Memory


class CallArguments(Protocol):
    """What the compiled arguments of all operations have in common."""

    plan_json: str


class Shape(Protocol):
    """What the compiled shapes of all handles have in common."""

    plan_json: str


class CallOperands(Protocol):
    """The arrays of one call, which it keeps alive: how they go into the compiled arguments, and the results."""

    memory: Memory

    def fill(self, arguments: Any) -> None:
        """Their places, in the compiled arguments."""
        ...

    def key(self) -> Hashable:
        """All that the core tells calls by, of them and of the results."""
        ...

    def make_results(self, *sizes: Any, **named: Any) -> Any:
        """Memory for the results, as the core takes it; the sizes are those that the operation asks with."""
        ...

    def result(self) -> Any:
        """What `make_results` gave memory for, as the caller gets it."""
        ...


A = TypeVar("A", bound=CallArguments)
S = TypeVar("S", bound=Shape)
O = TypeVar("O", bound=CallOperands)  # noqa: E741


class Call(Generic[A, O]):
    """One call's arguments: keeps its arrays alive, makes the results when their size is known, hands them back.

    For an operation that gives what its operands make; one that gives more has a class of its own.
    """

    def __init__(self, arguments: A, operands: O) -> None:
        self.arguments = arguments
        self.operands = operands
        self.early: Any = None  # what make_results gives, where that is asked before the call
        self.again: Again | None = None  # how the call looked before its arrays were
        self.key: Hashable = None  # of a call that is ready when this one has been made
        self.own: Hashable = None  # what calls of that key may differ by, of which a GPU rank has room for some
        operands.fill(arguments)

    def settle(self, op: str, shared: Hashable, *sizes: int | None) -> None:
        """When all arguments are there. `shared`: those beside the operands that calls differ by; `sizes`: those of
        the results, None where they are not known yet."""
        known = [size for size in sizes if size is not None]
        if len(known) == len(sizes):
            self.operands.memory.settle(self, (op, shared, self.operands.key()), known)

    def make_results(self, *sizes: Any, **named: Any) -> Any:
        """Called by the core once the sizes are known, before anything is sent."""
        return self.operands.make_results(*sizes, **named)

    def repeat(self, library: GpuLibrary, gpu: int, sizes: Sequence[int]) -> Repeat | None:
        """How it is made again with other arrays, when it has been made on a GPU; None where that is not known."""
        return None

    def result(self) -> Any:
        """What the caller gets."""
        return self.operands.result()


# A compiled call, without its communicator: takes arguments, make_results and, on GPU ranks, a stream and early
# results.
Run = Callable[..., "_core.CallReport"]


def runner(comm: Communicator, call: Call[Any, Any]) -> Callable[[Run], Any]:
    """What runs a call that has been checked."""
    return partial(_run_call, comm, call)


def _run_call(comm: Communicator, call: Call[Any, Any], run: Run) -> Any:
    try:
        comm._note(call.operands.memory.run(call, run))
        return call.result()
    except BaseException as error:
        if isinstance(error, Error):  # of make_results, whose core knows no Python
            comm._place(error)
        comm._tell_lost_call(error)
        raise


class Handle(Generic[S]):
    """Base of an operation's handle: its shapes are fixed once, for many calls. Creation is collective."""

    def __init__(
        self,
        op: str,
        comm: Communicator | None,
        make_shape: Callable[[], S],
        make_handle: Callable[[_core.Communicator, S], Any],
    ) -> None:
        """`make_shape` checks this rank's arguments; what it raises is told to the other ranks."""
        self._op = op
        with calling(op, comm) as self._comm:
            self._shape = make_shape()
        self._token = object()  # what its calls share
        try:
            self._handle = make_handle(self._comm._core, self._shape)
            self._comm._end_call()
        except BaseException as error:
            self._comm._tell_lost_call(error)
            raise

    @property
    def plan(self) -> str:
        """The plan as JSON text, on this rank."""
        return str(self._handle.plan_json)

    def explain(self) -> str:
        """For people: the plan, its predicted time, and why the other candidates lost."""
        return str(self._handle.explain())

    def _run(self, make: Callable[[], Callable[[Run], Any]]) -> Any:
        """One call. `make` checks its arguments and gives what runs it; what it raises is told to the other ranks."""
        with calling(self._op, self._comm):
            run = make()
        return run(self._handle)
