"""The Python examples run as their first lines say, and the README shows what runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "up_projection.py"


def test_the_up_projection_runs_on_two_nodes_of_two() -> None:
    command = re.search(r"tilewire (run .*)", EXAMPLE.read_text()).group(1).split()
    result = subprocess.run(
        [sys.executable, "-m", "tilewire", *command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    # 128 rows of 2048 bf16 columns go to one other node.
    assert sorted(result.stdout.splitlines()) == [
        f"[{rank}] rank {rank} of 4: y is (512, 2048), 524288 bytes sent to other nodes" for rank in range(4)
    ]


def test_the_readme_shows_lines_of_the_example_in_their_order() -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    lines = iter(EXAMPLE.read_text().splitlines())
    for line in filter(None, block.splitlines()):
        assert line in lines, f"not in the example, or in another order: {line}"
