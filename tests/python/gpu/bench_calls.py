"""What a call costs on the side of Python, beside a plain product of torch: `bench_calls.py ROWS_FILE COMMIT DATE`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from gpu_places import rank_environment, why_not

from rank_run import run_ranks
from tilewire.gpu.mps import private_daemon

RANKS, GROUPS = 2, 30
SKIPPED = 77


def rows() -> list[dict[str, object]]:
    """A row for each way to call; times are the medians of the ranks."""
    with private_daemon(RANKS) as mps, tempfile.TemporaryDirectory() as folder:
        environment = rank_environment(RANKS, mps)
        results = run_ranks("gpu_programs:latency", Path(folder), str(RANKS), (str(GROUPS),), environment).all_results()
    times = {name: median(found[name] for found in results) for name in results[0]}
    plain = times.pop("torch.matmul")
    return [
        {
            "bench": "latency",
            "op": "ag_gemm",
            "shape": f"Python, {name}, {RANKS} ranks x 128 x 1024 x 512",
            "ours": round(us, 1),
            "baseline": round(plain, 1),
            "baseline_name": "torch.matmul, to enqueue",
            "unit": "us",
            "ratio": round(plain / us, 3),
        }
        for name, us in times.items()
    ]


def main() -> int:
    reason = why_not()
    if reason:
        print(f"bench_calls: skipped: {reason}")
        return SKIPPED
    path, commit, date = sys.argv[1:]
    Path(path).write_text(json.dumps({"commit": commit, "date": date, "rows": rows()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
