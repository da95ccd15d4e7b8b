"""The communicator: the ranks of one job, joined. `tilewire.init()` makes one."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import get_ident, main_thread
from types import TracebackType
from typing import Any

from tilewire import _core
from tilewire.argument_checks import one_or_more_counts, utf8
from tilewire.errors import Error, InvalidArgument
from tilewire.gpu.imported import is_capturing
from tilewire.gpu.memory import GpuMemory
from tilewire.gpu.rank import GpuRank
from tilewire.gpu.repeats import Again
from tilewire.operand_memory import Memory, host_memory
from tilewire.trace import Trace

# Communicators of this process that are not closed. A strong reference: `init()` alone must be enough to make calls.
_open: list[Communicator] = []
_were_made = False


@dataclass(frozen=True)
class CallReport:
    """What the last call of a communicator did on this rank."""

    seconds: float  # 0 on GPU ranks, where a call ends behind its return
    predicted_s: float  # by the plan's cost model
    bytes_by_link: Mapping[
        str, int
    ]  # payload: "copy" inside this rank, "node" to local peers, "network" to other nodes
    plan_json: str


class Communicator:
    """The ranks of one job. Made by `tilewire.init()`; a context manager that closes it.

    One call at a time: threads take turns in the order in which they come, also for `empty()` and the trace;
    `DeadlineError` when one call of another thread takes longer than deadline_s. `close()` and the properties may
    be used from any thread and wait for none. In a child made by fork every call is `Closed` at once. After a
    failed call the communicator is dead: every later call raises what it died of, `close()` needs no peer, and
    `init()` may make a new one.

    A rank that leaves by an exception, out of its `with` or, without one, out of the whole program, ends the
    communicator on all ranks: the others get `Aborted` that names the rank and quotes the exception.
    """

    def __init__(self, core: _core.Communicator) -> None:
        self._core = core
        self._pid = os.getpid()
        self._earlier_error = _uncaught_error()  # of an interactive session, say: not what ended this communicator
        self._last_call: _core.CallReport | None = None
        self._begun: str | None = None  # the operation of the main thread's call, from its checks to its last word
        # Read once, so that they can be asked for after close().
        self._rank, self._world_size = core.rank, core.world_size
        self._node, self._local_rank, self._nodes = core.node, core.local_rank, core.nodes
        self._layout, self._transport = core.layout, core.transport
        self._gpu_rank = _gpu_rank(core)

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        return self._world_size

    @property
    def node(self) -> int:
        """Number of this rank's node."""
        return self._node

    @property
    def local_rank(self) -> int:
        """Number of this rank within its node."""
        return self._local_rank

    @property
    def nodes(self) -> int:
        return self._nodes

    @property
    def layout(self) -> str:
        """Ranks of each node: "2+2"."""
        return self._layout

    @property
    def transport(self) -> str:
        """Name of what moves chunks between nodes; "none" on one node."""
        return self._transport

    @property
    def device(self) -> str:
        """Where this rank's arrays lie: "cpu", or its GPU as torch has it, "cuda:0"."""
        return "cpu" if self._gpu_rank is None else f"cuda:{self._gpu_rank.gpu}"

    @property
    def is_closed(self) -> bool:
        return self._core.is_closed

    @property
    def last_call(self) -> CallReport:
        """What the last call did on this rank; `InvalidArgument` before the first one."""
        report = self._last_call
        if report is None:
            raise InvalidArgument("no call was made yet", where=f"rank {self._rank}")
        moved = {"copy": report.copy_bytes, "node": report.node_bytes, "network": report.network_bytes}
        return CallReport(report.seconds, report.predicted_s, moved, report.plan_json)

    def option(self, name: str) -> str:
        """The text of an option by its name; "(set)" or "" for a secret."""
        return self._core.option(utf8("name", str(name)))

    def barrier(self) -> None:
        """Waits for all ranks. Over the control connection: for set-up and tests, not for speed.

        Raises `DeadlineError` that lists the ranks that did not come, and what the communicator died of.
        """
        self._core.barrier()

    def all_gather_bytes(self, mine: bytes) -> list[bytes]:
        """Every rank's bytes, by rank; lengths may differ. Over the control connection, as `barrier`.

        What is no bytes-like object, or too large (64 MiB of all ranks together, as many for each), is an
        `InvalidArgument` that ends the communicator: the others may wait for it.
        """
        try:
            data = bytes(memoryview(mine))
        except TypeError:
            error = InvalidArgument(
                "what is to be gathered is no bytes",
                where=f"rank {self._rank}, all_gather_bytes",
                values=f"mine is a {type(mine).__name__}",
                limit="must be bytes or a like object",
                advice="pass mine.encode()" if isinstance(mine, str) else "",
            )
            if self._world_size > 1:
                self._core.abort(str(error))
            raise error from None
        return self._core.all_gather_bytes(data)

    def check(self) -> None:
        """Raises what the communicator died of, or `Closed`."""
        self._core.check()

    def synchronize(self) -> None:
        """Waits for calls in flight (on CPU ranks a call has ended when it returns; on GPU ranks for all but replays of
        graphs), then does what `check` does."""
        self._core.synchronize()

    def close(self) -> None:
        """Ends this rank's part of the communicator. Idempotent, needs no peer, takes below a second.

        A call of another thread ends with an error. Arrays of `empty()` stay readable.
        """
        if self._pid == os.getpid():
            self._core.close()
        with suppress(ValueError):  # another thread may close it, too
            _open.remove(self)

    def empty(self, shape: int | Sequence[int], dtype: Any = "bf16") -> Any:
        """An uninitialised array in the communicator's arena: as the `a` of a call it is sent from where it lies.

        `dtype` is bf16, fp16 or fp32 as a name, a numpy dtype (gives a numpy array) or a torch dtype (gives a torch
        tensor). On a GPU rank it is a tensor of torch on that GPU, or, where the program has not imported torch, an
        array of CuPy; `Unavailable` where it has imported neither. The array keeps its memory and may outlive the
        communicator. Its memory may be given out again as soon as the array is gone: on a GPU rank keep it until the
        calls that use it have ended. Raises `ResourceError` when user_arena_reserve_bytes has no room for it.
        """
        from tilewire.arrays import arena_array, arena_gpu_array

        lengths = one_or_more_counts("shape", shape)
        if any(one < 0 for one in lengths):
            raise InvalidArgument("shape has a bad length", values=f"shape = {shape}", limit="none may be negative")
        return (arena_array if self._gpu_rank is None else arena_gpu_array)(self._core, lengths, dtype)

    def trace(self) -> Trace:
        """The timeline of calls: `with comm.trace() as timeline: ...`, or `start()` and `stop()`; then `.events`, or
        `.write("name.json")` for ui.perfetto.dev and `tilewire trace`, `.write("name.svg")` for a picture."""
        return Trace(self._core)

    def _tell_refusal(self, op: str, error: Exception, exchanges_rows: bool) -> None:
        # What is captured in a graph is no call yet: nobody waits for it.
        if self._gpu_rank is not None and is_capturing():
            return
        self._core.refuse_call(op, error, exchanges_rows)
        self._note_refused()

    def _note_refused(self) -> None:
        if self._gpu_rank is not None:
            self._gpu_rank.note_refused()

    def _tell_interrupt(self, op: str) -> None:
        # Ctrl-C: this call is lost, and the next one must not take its place on the ranks that wait in it.
        if self._world_size > 1 and not self.is_closed and (self._gpu_rank is None or not is_capturing()):
            self._core.abort(f"interrupted in {op}")

    # Ctrl-C comes between any two steps of the interpreter, so also between a call's checks and what tells of it: then
    # the call is found lost when the next one begins.
    def _begin_call(self, op: str) -> None:
        if get_ident() != main_thread().ident:  # which alone gets Ctrl-C
            return
        lost, self._begun = self._begun, op
        if lost is not None and self._world_size > 1 and not self.is_closed:
            self._core.abort(f"interrupted in {lost}")

    def _end_call(self) -> None:
        if get_ident() == main_thread().ident:
            self._begun = None

    def _place(self, error: Exception, where: str = "") -> None:
        """Names this rank in an error of its own checks, which know of none."""
        if isinstance(error, Error) and "rank " not in error.where:
            error.where = ", ".join(filter(None, (f"rank {self._rank}", error.where or where)))

    def _tell_lost_call(self, error: BaseException) -> None:
        # Of a short call Ctrl-C is seen at its end: the others have its result, and this rank would make it again. What
        # is an Exception the core has told.
        if isinstance(error, Exception):
            self._note_refused()
        else:
            self._tell_interrupt("a call")
        self._end_call()

    def _note(self, report: _core.CallReport) -> None:
        self._last_call = report
        self._end_call()

    def _memory(self, example: Any, stream: Any) -> Memory:
        """For the arrays of a call of which `example` is one."""
        if self._gpu_rank is None:
            return host_memory(stream)
        return GpuMemory(self._gpu_rank, example, stream)

    def _again(self, shared: Hashable, given: tuple[Any, Any, Any, Any], stream: Any) -> Again | None:
        """For calls on GPU ranks with nothing special about them: see `tilewire.gpu.repeats`."""
        if self._gpu_rank is None or stream is not None:
            return None
        return self._gpu_rank.again(shared, given)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        leaves_in_order = error is None or isinstance(error, (SystemExit, GeneratorExit))
        if not leaves_in_order and not self.is_closed and self._pid == os.getpid():
            # The others may be in a call that this rank will never make: tell them why instead of leaving silently.
            self._core.abort(f"left by an exception: {_text_of(error)}")
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.is_closed else ""
        nodes = "1 node" if self._nodes == 1 else f"{self._nodes} nodes of {self._layout}"
        return f"<tilewire.Communicator rank {self._rank} of {self._world_size} on {nodes}{state}>"


def _gpu_rank(core: _core.Communicator) -> GpuRank | None:
    return GpuRank(core) if core.gpu >= 0 else None


def opened(core: _core.Communicator) -> Communicator:
    """The communicator of a job that was joined."""
    global _were_made
    comm = Communicator(core)
    _were_made = True
    _open.append(comm)
    return comm


def open_communicators() -> list[Communicator]:
    """Of this process; the one that was made first comes first."""
    return list(_open)


def default_communicator() -> Communicator:
    """The only open communicator; `InvalidArgument` when there is none or more than one."""
    if len(_open) == 1:
        return _open[0]
    if _open:
        advice = "pass comm="
    else:
        advice = "make a new one by tilewire.init()" if _were_made else "call tilewire.init() first"
    raise InvalidArgument(
        "there is no default communicator",
        values="the one that there was is closed" if _were_made and not _open else f"{len(_open)} are open",
        limit="must be 1 that is open",
        advice=advice,
    )


def _text_of(error: BaseException | None) -> str:
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ").encode(errors="backslashreplace").decode()
    except Exception:  # of a user's class
        return type(error).__name__


def _uncaught_error() -> BaseException | None:
    """The exception that ends the program: Python notes it before it shows it, and shows it before it ends. None while
    a prompt is open, where it is any that was shown."""
    found = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    return found if isinstance(found, BaseException) else None


@atexit.register
def _close_all() -> None:
    error = _uncaught_error()
    for comm in list(_open):
        comm._leave(None if error is comm._earlier_error else error)


def _forget_all() -> None:
    """In a forked child: the communicators are the parent's, whose threads and peers are not here."""
    for comm in _open:
        comm._core.forget()
    _open.clear()


os.register_at_fork(after_in_child=_forget_all)
