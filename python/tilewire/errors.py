"""The exceptions of Tilewire, one class for each kind of error.

All are `tilewire.Error`. Each says what failed, where, with which values, what the limit is and what to change.
"""

from __future__ import annotations

from typing import ClassVar


class Error(RuntimeError):
    """What every part of Tilewire raises. The attributes are the parts of the message; empty ones are left out."""

    kind: ClassVar[str] = "internal"

    def __init__(self, what: str, where: str = "", values: str = "", limit: str = "", advice: str = "") -> None:
        super().__init__(what, where, values, limit, advice)
        self.what = what  # what failed: "a has the wrong number of columns"
        self.where = where  # "rank 3, all_gather_matmul, call 17"
        self.values = values  # "k = 1028, b.rows = 1024"
        self.limit = limit  # "must be equal"
        self.advice = advice  # "pass b as [K, N]"

    def __str__(self) -> str:
        text = ", ".join(part for part in (": ".join(filter(None, (self.what, self.values))), self.limit) if part)
        where = f" [{self.where}]" if self.where else ""
        advice = f"; {self.advice}" if self.advice else ""
        return f"{text}{where}{advice} <{self.kind}>"


class InvalidArgument(Error, ValueError):
    """The caller passed something that this call cannot take. The communicator stays usable if all ranks refuse."""

    kind = "invalid argument"


class Mismatch(Error, ValueError):
    """Ranks disagree about a call or about the options; the message has both values."""

    kind = "mismatch between ranks"


class DeadlineError(Error, TimeoutError):
    """A wait ran past its limit."""

    kind = "deadline"


class PeerLost(Error, ConnectionError):
    """Another rank died or left; the message names it."""

    kind = "peer lost"


class Aborted(Error):
    """Another rank reported the error that is quoted."""

    kind = "aborted"


class Refused(Error):
    """Another rank's local checks refused this call."""

    kind = "refused"


class ResourceError(Error):
    """Memory, file descriptors, ports, queue entries or a device limit."""

    kind = "resource"


class Unavailable(Error):
    """A back end, a library or a device is not here."""

    kind = "unavailable"


class Closed(Error):
    """The communicator was closed or is dead."""

    kind = "closed"


class InternalError(Error):
    """A rule of Tilewire itself was broken: please report it."""

    kind = "internal"


_CLASSES: dict[str, type[Error]] = {
    one.kind: one
    for one in (
        InvalidArgument,
        Mismatch,
        DeadlineError,
        PeerLost,
        Aborted,
        Refused,
        ResourceError,
        Unavailable,
        Closed,
        InternalError,
    )
}


def make_error(kind: str, what: str, where: str, values: str, limit: str, advice: str) -> Error:
    """The exception of a kind by its name, as the compiled core has it."""
    return _CLASSES.get(kind, InternalError)(what, where, values, limit, advice)
