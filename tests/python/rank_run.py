"""Runs a function of `rank_programs` on every rank of a small cluster of processes and gives what each returned.

PROGRAM may also be MODULE:FUNCTION. `python rank_run.py PROGRAM FOLDER ARGUMENTS...` is one rank. Start-up costs a
second or so: so a program checks a lot.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewire.launcher import Launch, launch

FAST_FAILURE = {"TILEWIRE_DEADLINE_S": "40", "TILEWIRE_CONNECT_DEADLINE_S": "40"}


@dataclass(frozen=True)
class Outcome:
    """What a launch came to. `results[r]` is what rank r returned, None when it returned nothing."""

    code: int
    results: list[Any]
    output: str
    seconds: float

    def all_results(self) -> list[Any]:
        """The results of a launch that went well; what the ranks said when it did not."""
        assert self.code == 0, self.output
        return self.results


def run_ranks(
    program: str,
    folder: Path,
    layout: str = "1,1",
    arguments: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    limit_s: float = 120,
    grace_s: float = 15,
    virtual: bool = False,
) -> Outcome:
    """Starts the ranks and waits for their end; ends them when it takes longer than `limit_s`. `virtual`: see
    `tilewire.launcher`."""
    counts = [int(count) for count in layout.split(",")]
    command = [sys.executable, __file__, program, str(folder), *arguments]
    out = io.StringIO()
    plan = Launch(command, counts, {**FAST_FAILURE, **(environment or {})}, grace_s=grace_s, virtual=virtual)
    timer = threading.Timer(limit_s, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    begin = time.monotonic()
    try:
        code = launch(plan, out, out)
    finally:
        timer.cancel()
    paths = [folder / f"{program}.{rank}.json" for rank in range(plan.world_size)]
    results = [json.loads(path.read_text()) if path.exists() else None for path in paths]
    for path in paths:
        path.unlink(missing_ok=True)
    return Outcome(code, results, out.getvalue(), time.monotonic() - begin)


def main() -> None:
    program, folder, *arguments = sys.argv[1:]
    module, _, function = program.rpartition(":")
    result = getattr(importlib.import_module(module or "rank_programs"), function)(*arguments)
    Path(folder, f"{program}.{os.environ['TILEWIRE_RANK']}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
