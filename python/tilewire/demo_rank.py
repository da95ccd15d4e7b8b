"""One rank of the demo: `python -m tilewire.demo_rank FOLDER`, started by `tilewire demo`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewire.demo import run_rank
from tilewire.demo_cases import CallStats
from tilewire.trace_events import as_events


class TilewireMachine:
    """The demo's machine over a Tilewire communicator."""

    def __init__(self, library: Any, comm: Any) -> None:
        self.comm = comm
        self.all_gather_matmul: Callable[..., Any] = library.all_gather_matmul

    @property
    def rank(self) -> int:
        return int(self.comm.rank)

    @property
    def world_size(self) -> int:
        return int(self.comm.world_size)

    def barrier(self) -> None:
        self.comm.barrier()

    def last_call(self) -> CallStats:
        return CallStats(self.comm.last_call_bytes(), as_events(self.comm.last_call_events()))


def main() -> None:
    library: Any = importlib.import_module("tilewire")
    with library.init() as comm:
        run_rank(TilewireMachine(library, comm), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
