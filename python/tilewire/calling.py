"""Around a call's checks: what goes wrong in them is told to the other ranks."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from tilewire.communicator import Communicator, default_communicator, open_communicators
from tilewire.errors import InvalidArgument, ResourceError


class calling:
    """Around this rank's own checks of a collective call: gives `comm` or, for None, the only open communicator.

    An error within is told to the other ranks, which may wait for this one; so is a `comm` that is none. `rows`: the
    argument of that name, if the call has one.
    """

    __slots__ = ("_comm", "_exchanges_rows", "_op")

    def __init__(self, op: str, comm: Communicator | None, rows: Any = None) -> None:
        self._op = op
        self._exchanges_rows = isinstance(rows, str) and rows == "exchange"
        if comm is None:
            comm = default_communicator()
        elif not isinstance(comm, Communicator):
            error = InvalidArgument(
                "comm is no communicator",
                values=f"comm is a {type(comm).__name__}",
                limit="must be what tilewire.init() gave, or None",
            )
            others = open_communicators()
            if len(others) == 1:
                others[0]._tell_refusal(op, error, self._exchanges_rows)
            raise error
        self._comm = comm

    def __enter__(self) -> Communicator:
        self._comm._begin_call(self._op)
        return self._comm

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            try:
                self._tell(error)
            except Exception:
                self._comm._end_call()
                raise
            self._comm._end_call()

    def _tell(self, error: BaseException) -> None:
        if isinstance(error, MemoryError):
            where = f"rank {self._comm._rank}, {self._op}"
            refusal = ResourceError("there is no memory for the arguments", where=where, values=str(error))
            self._comm._tell_refusal(self._op, refusal, self._exchanges_rows)
            raise refusal from error
        if isinstance(error, Exception):
            self._comm._place(error, self._op)
            self._comm._tell_refusal(self._op, error, self._exchanges_rows)
        else:
            self._comm._tell_interrupt(self._op)
