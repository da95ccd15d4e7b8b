"""One rank of the demo: `python -m tilewire.demo_rank FOLDER [--without-encoder] [--on-gpu]`, for `tilewire demo`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import tilewire as tw
from tilewire.demo import all_work, gpu_work, run_rank
from tilewire.demo_cases import CallStats
from tilewire.demo_progress import step_line

WITHOUT_ENCODER, ON_GPU = "--without-encoder", "--on-gpu"


class TilewireMachine:
    """The demo's machine over a Tilewire communicator; every call is traced."""

    on_gpu = False

    def __init__(self, comm: tw.Communicator) -> None:
        self.comm = comm
        self._trace = comm.trace()

    @property
    def rank(self) -> int:
        return self.comm.rank

    @property
    def world_size(self) -> int:
        return self.comm.world_size

    def barrier(self) -> None:
        self.comm.barrier()

    def call(self, op: str, *arguments: Any, **options: Any) -> Any:
        with self._trace:
            return getattr(tw, op)(*arguments, comm=self.comm, **options)

    def last_call(self) -> CallStats:
        return CallStats(self.comm.last_call.bytes_by_link, self._trace.events, self._trace.dropped)


def main() -> None:
    with tw.init() as comm:

        def tell(step: int, steps: int, name: str) -> None:
            if comm.rank == 0:
                print(step_line(step, steps, name), flush=True)

        folder, with_encoder = Path(sys.argv[1]), WITHOUT_ENCODER not in sys.argv
        if ON_GPU in sys.argv:
            from tilewire.gpu.demo_machine import GpuMachine

            warnings.simplefilter("ignore", RuntimeWarning)  # odd shapes are copied: that is what they are here for
            run_rank(GpuMachine(comm), folder, gpu_work(comm.world_size, with_encoder, tell))
        else:
            run_rank(TilewireMachine(comm), folder, all_work(comm.world_size, with_encoder, tell))


if __name__ == "__main__":
    main()
