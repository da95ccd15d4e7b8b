"""The compute role of MoE dispatch on one GPU beside torch's `_grouped_mm`: `versus_grouped.py ROWS_FILE COMMIT DATE`.

Both multiply the same numbers of rows by the weights of as many experts, bf16, on random data, with rows that lie by
expert already. They take turns; the ratio is the median over rounds of torch's time by ours. Ours is asked of
moe_dispatch_gpu_bench, which keeps its data on the GPU meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import sample
from statistics import geometric_mean, median
from typing import Any

import torch
from gpu_places import why_not

SKIPPED = 77
ROUNDS, BLOCK_US = 7, 8_000
NAME = "torch._grouped_mm"


@dataclass(frozen=True)
class Size:
    h: int
    cols: int
    rows: list[int]  # of each expert

    def text(self) -> str:
        spread = "zipf" if max(self.rows) > 2 * min(self.rows) else "uniform"
        spread = "one" if max(self.rows) == sum(self.rows) else spread
        return f"{sum(self.rows)}x{self.cols}x{self.h}, {len(self.rows)} experts, {spread}"


class Ours:
    """The program, which is asked a line at a time."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, number: int, count: int) -> list[str]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{number} {count}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"the program has ended with {self.process.wait()}")
        return answer

    def size(self, number: int) -> Size | None:
        """None: there are no more."""
        answer = self.ask(number, 0)
        if answer == ["end"]:
            return None
        h, cols, *rows = map(int, answer)
        return Size(h, cols, rows)

    def us(self, number: int, count: int) -> float:
        return float(self.ask(number, count)[0])


def grouped_mm(size: Size) -> Callable[[int], float]:
    """A function of a number of launches that gives microseconds a launch."""
    x = torch.randn(sum(size.rows), size.h, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(len(size.rows), size.h, size.cols, device="cuda", dtype=torch.bfloat16)
    ends = torch.tensor(size.rows, device="cuda").cumsum(0).int()

    def us(count: int) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(count):
            torch._grouped_mm(x, w, offs=ends)
        end.record()
        end.synchronize()
        return float(1000 * begin.elapsed_time(end) / count)

    return us


def measured(ours: Ours, number: int, size: Size) -> dict[str, Any]:
    """A row; it has no ratio where torch refuses."""
    names = {"bench": "compute_role_vs_torch", "op": "moe_dispatch", "shape": size.text()}
    row = {**names, "baseline_name": NAME, "unit": "us"}
    ways = {"ours": lambda count: ours.us(number, count), "theirs": grouped_mm(size)}
    try:
        ways["theirs"](2)
    except RuntimeError as error:
        refusal = str(error).splitlines()[0]
        return {**row, "ours": ours.us(number, 5), "baseline": 0.0, "ratio": 0.0, "verdict": refusal}
    counts = {name: max(3, round(BLOCK_US / way(3))) for name, way in ways.items()}
    found = [{name: ways[name](counts[name]) for name in sample(sorted(ways), 2)} for _ in range(ROUNDS)]
    ratio = median(us["theirs"] / us["ours"] for us in found)
    ours_us, theirs_us = (median(us[name] for us in found) for name in ("ours", "theirs"))
    return {**row, "ours": round(ours_us, 1), "baseline": round(theirs_us, 1), "ratio": round(ratio, 3)}


def main() -> int:
    reason = why_not() or ("" if hasattr(torch, "_grouped_mm") else "torch has no _grouped_mm")
    build = Path(os.environ["GPU_TEST_BUILD"])
    programs = [path for path in build.rglob("moe_dispatch_gpu_bench") if path.is_file() and os.access(path, os.X_OK)]
    reason = reason or ("" if programs else f"there is no moe_dispatch_gpu_bench in {build}")
    if reason:
        print(f"versus_grouped: skipped: {reason}")
        return SKIPPED
    path, commit, date = sys.argv[1:]
    ours = Ours(programs[0])
    rows: list[dict[str, Any]] = []
    while (size := ours.size(len(rows))) is not None:
        rows.append(measured(ours, len(rows), size))
        print(*(rows[-1][key] for key in ("shape", "ours", "baseline", "ratio")), flush=True)
        torch.cuda.empty_cache()
        Path(path).write_text(json.dumps({"commit": commit, "date": date, "rows": rows}))
    ratios = [row["ratio"] for row in rows if row["ratio"] > 0]
    if ratios:
        print(f"geometric mean {geometric_mean(ratios):.4f}, worst {min(ratios):.3f} of {len(ratios)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
