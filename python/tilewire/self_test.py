"""A tiny call between two processes: does a transport work here? `python -m tilewire.self_test` is one rank of it."""

from __future__ import annotations

import io
import sys
import time

from tilewire.launcher import Launch, launch

MODULE = "tilewire.self_test"
LIMIT_S = 15


def run_self_test(layout: list[int], transport: str = "auto") -> tuple[float, str]:
    """Seconds that it took, start-up included, and "" or what went wrong. Ends within about twice LIMIT_S."""
    out = io.StringIO()
    environment = {
        "TILEWIRE_TRANSPORT": transport,
        "TILEWIRE_DEADLINE_S": str(LIMIT_S),
        "TILEWIRE_CONNECT_DEADLINE_S": str(LIMIT_S),
    }
    begin = time.monotonic()
    code = launch(Launch([sys.executable, "-m", MODULE], layout, environment, prefix=False), out, out)
    lines = [line for line in out.getvalue().splitlines() if line.strip()]
    # The last line of a traceback says what it was; after it the launcher speaks.
    causes = [line for line in lines if not line.startswith("tilewire run:")] or lines or [f"exit code {code}"]
    return time.monotonic() - begin, causes[-1] if code else ""


def main() -> None:
    import numpy as np

    import tilewire as tw

    with tw.init() as comm:
        a = np.full((8, 16), comm.rank + 1, np.float32)
        y = tw.all_gather_matmul(a, np.ones((16, 4), np.float32))
        want = np.repeat(np.arange(1, comm.world_size + 1, dtype=np.float32) * 16, 8)[:, None]
        if not (y == want).all():
            raise SystemExit(f"rank {comm.rank}: the result of the self-test is wrong")


if __name__ == "__main__":
    main()
