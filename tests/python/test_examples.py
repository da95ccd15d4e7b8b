"""The Python examples run as their first lines say, and the README shows what runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "up_projection.py"


def run(*command: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tilewire", *command]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


# 128 rows of 2048 bf16 columns go to one other node.
MOVED = [f"[{rank}] rank {rank} of 4: y is (512, 2048), 524288 bytes sent to other nodes" for rank in range(4)]


def test_the_up_projection_runs_on_two_nodes_of_two_and_says_what_it_checked() -> None:
    done = run(*re.search(r"tilewire (run .*)", EXAMPLE.read_text()).group(1).split())
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sorted(line for line in lines if "bytes sent" in line) == MOVED
    compared = re.findall(
        r"^\[\d\] all 1048576 elements of y compared .*: worst error 0\.\d+ where", done.stdout, re.MULTILINE
    )
    assert len(compared) == 4 and len(lines) == 8, lines


@pytest.mark.parametrize("damage", ["y[3, 5] += 1", "y[3, 5] = np.nan", "y[[0, 1]] = y[[1, 0]]"])
def test_the_check_of_the_up_projection_can_fail(damage: str, tmp_path: Path) -> None:
    call = "y = tw.all_gather_matmul(x, w)"
    text = EXAMPLE.read_text()
    assert text.count(call) == 1
    (tmp_path / "damaged.py").write_text(text.replace(call, f"{call}; {damage}"))
    done = run("run", str(tmp_path / "damaged.py"))
    assert done.returncode == 1 and "y is not the plain product: worst error" in done.stderr, done.stdout + done.stderr


def test_the_python_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) > 1
    for number, block in enumerate(blocks):
        (tmp_path / f"block{number}.py").write_text(block)
        done = run("run", "-n", "4", "--nodes", "2", f"block{number}.py", folder=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        if number == 0:
            assert sorted(done.stdout.splitlines()) == MOVED
    traces = sorted(path.name for path in tmp_path.glob("trace.*.json"))
    done = run("trace", *traces, "--picture", "all.svg", folder=tmp_path)
    assert len(traces) == 4 and done.returncode == 0 and (tmp_path / "all.svg").exists(), done.stderr


def test_the_readme_shows_lines_of_the_example_in_their_order() -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    lines = iter(EXAMPLE.read_text().splitlines())
    for line in filter(None, block.splitlines()):
        assert line in lines, f"not in the example, or in another order: {line}"
