"""Tilewire: fused compute-and-communication operations over several ranks.

    import tilewire as tw

    with tw.init() as comm:                # rank and size from torchrun, mpirun, srun or tilewire run
        y = tw.all_gather_matmul(a, w)     # all_gather(a) @ w

Importing this package is cheap: the compiled core and numpy are loaded with the first name that needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilewire.op_list import OPS

if TYPE_CHECKING:
    from tilewire.communicator import CallReport, Communicator
    from tilewire.errors import (
        Aborted,
        Closed,
        DeadlineError,
        Error,
        InternalError,
        InvalidArgument,
        Mismatch,
        PeerLost,
        Refused,
        ResourceError,
        Unavailable,
    )
    from tilewire.joining import init
    from tilewire.moe_dispatch import Dispatched, DispatchHandle
    from tilewire.op_list import *  # noqa: F403
    from tilewire.plans import Plan
    from tilewire.sequence import shard, shard_rows, unshard
    from tilewire.trace import Trace

__version__ = "0.1.0"

__all__ = [
    "Aborted",
    "CallReport",
    "Closed",
    "Communicator",
    "DeadlineError",
    "DispatchHandle",
    "Dispatched",
    "Error",
    "InternalError",
    "InvalidArgument",
    "Mismatch",
    "PeerLost",
    "Plan",
    "Refused",
    "ResourceError",
    "Trace",
    "Unavailable",
    "init",
    "shard",
    "shard_rows",
    "unshard",
]
__all__ += [name for op in OPS for name in op.exports]

_HOMES = {
    "tilewire.communicator": ("CallReport", "Communicator"),
    "tilewire.joining": ("init",),
    "tilewire.moe_dispatch": ("DispatchHandle", "Dispatched"),
    "tilewire.plans": ("Plan",),
    "tilewire.sequence": ("shard", "shard_rows", "unshard"),
    "tilewire.trace": ("Trace",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULE_OF |= {name: op.module for op in OPS for name in op.exports}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tilewire' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF.get(name, "tilewire.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
