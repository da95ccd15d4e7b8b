"""run_benches must keep rows, judge goals and fail when one is missed."""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent / "run_benches"
PROGRAM = """#!{python}
import json, sys
flags = dict(a[2:].split("=", 1) for a in sys.argv[1:] if "=" in a)
time = flags.get("benchmark_min_time")
if time is not None and time.endswith("s") != {has_suffix}:
    print("bad --benchmark_min_time", file=sys.stderr)
    sys.exit(1)
if "--benchmark_list_tests" not in sys.argv:
    open(flags["benchmark_out"], "w").write(json.dumps({{"benchmarks": {rows!r}}}))
sys.exit({code})
"""
LABEL = "unit=GB/s; baseline=memcpy; goal=>= 0.8 x baseline"


def entry(name: str = "BM_Move/bytes:64/iterations:5/real_time", **more: Any) -> dict[str, Any]:
    row = {"name": name, "run_type": "iteration", "ours": 9.0, "baseline": 10.0, "ratio": 0.9, "label": LABEL}
    return {**row, "meets_goal": 1.0, **more}


class Folder:
    def __init__(self, path: Path) -> None:
        self.build, self.results = path / "build", path / "results"
        self.build.mkdir()

    def program(self, name: str, rows: list[dict[str, Any]], code: int = 0, has_suffix: bool = False) -> None:
        path = self.build / name
        path.write_text(PROGRAM.format(python=sys.executable, rows=rows, code=code, has_suffix=has_suffix))
        path.chmod(0o755)
        (self.build / "benches.txt").write_text("\n".join(sorted(p.name for p in self.build.glob("*_bench"))) + "\n")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "RESULTS_DIR": str(self.results), "COMMIT": "0123456789"}
        command = [sys.executable, str(SCRIPT), str(self.build), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def kept(self) -> dict[str, Any]:
        (path,) = self.results.glob("*.json")
        assert path.name.endswith("-0123456-cpu.json")
        result: dict[str, Any] = json.loads(path.read_text())
        return result


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_rows_are_kept_with_their_shape(folder: Folder) -> None:
    folder.program("move_bench", [entry(), {"name": "BM_Bare", "run_type": "iteration"}])
    found = folder.run()
    assert found.returncode == 0, found.stderr
    assert folder.kept()["rows"] == [
        {
            "bench": "move_bench",
            "op": "BM_Move",
            "shape": "bytes:64",
            "ours": 9.0,
            "baseline": 10.0,
            "baseline_name": "memcpy",
            "unit": "GB/s",
            "ratio": 0.9,
            "goal": ">= 0.8 x baseline",
            "verdict": "met",
        }
    ]


def test_a_run_makes_one_file_and_leaves_the_page_to_who_asks_for_it(folder: Folder) -> None:
    folder.program("move_bench", [entry()])
    folder.results.mkdir()
    page = folder.results / "README.md"
    page.write_text("as it was")
    assert folder.run().returncode == 0
    assert page.read_text() == "as it was" and len(list(folder.results.iterdir())) == 2
    command = [sys.executable, str(SCRIPT), "--page"]
    subprocess.run(command, env={**os.environ, "RESULTS_DIR": str(folder.results)}, check=True)
    assert "| move_bench | BM_Move | bytes:64 |" in page.read_text()


def test_page_in_the_repository_is_that_of_its_results(tmp_path: Path) -> None:
    results = SCRIPT.parent.parent / "docs" / "results"
    command = ["git", "-C", str(results), "ls-files"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("there is no repository")
    for name in listed.stdout.split():
        shutil.copy(results / name, tmp_path)
    command = [sys.executable, str(SCRIPT), "--page"]
    subprocess.run(command, env={**os.environ, "RESULTS_DIR": str(tmp_path)}, check=True)
    assert (tmp_path / "README.md").read_text() == (results / "README.md").read_text(), "run scripts/run_benches --page"


def results_of(folder: Path, commit: str, time: str, ratios: list[float]) -> None:
    row = {"bench": "fused", "op": "ag_gemm", "ours": 1, "baseline": 1, "baseline_name": "cuBLAS <1>", "unit": "us"}
    rows = [{**row, "shape": f"{number}x8", "ratio": ratio} for number, ratio in enumerate(ratios)]
    kept = {"commit": commit, "date": "2026-01-01", "time": time, "machine": "one GPU", "rows": rows}
    (folder / f"2026-01-01-{commit}-gpu_bench.json").write_text(json.dumps(kept))


def test_the_page_shows_the_newest_of_a_day_with_its_picture(tmp_path: Path) -> None:
    results_of(tmp_path, "bbb", "09:00", [1.0])
    results_of(tmp_path, "aaa", "17:30", [0.5, 2.0, 0.0, 100.0])
    (tmp_path / "2026-01-01-old-gpu_bench.svg").write_text("of results that are not shown any more")
    command = [sys.executable, str(SCRIPT), "--page"]
    subprocess.run(command, env={**os.environ, "RESULTS_DIR": str(tmp_path)}, check=True)
    page = (tmp_path / "README.md").read_text()
    assert "## 2026-01-01, commit aaa" in page and "(2026-01-01-aaa-gpu_bench.svg)" in page
    assert page.rstrip().endswith("- [2026-01-01-bbb-gpu_bench.json](2026-01-01-bbb-gpu_bench.json)")
    assert [path.name for path in tmp_path.glob("*.svg")] == ["2026-01-01-aaa-gpu_bench.svg"]
    picture = xml.etree.ElementTree.parse(tmp_path / "2026-01-01-aaa-gpu_bench.svg").getroot()
    svg = "{http://www.w3.org/2000/svg}"
    dots = picture.findall(f"{svg}circle")
    assert [dot.find(f"{svg}title").text for dot in dots] == [
        "0x8, against cuBLAS <1>: 0.50",
        "1x8, against cuBLAS <1>: 2.00",
        "3x8, against cuBLAS <1>: 100.00",
    ]
    worse, better, beyond = (float(dot.get("cx")) for dot in dots)
    axis = next(line for line in picture.findall(f"{svg}line") if line.get("stroke") == "#334155")
    assert worse < float(axis.get("x1")) < better < beyond < float(picture.get("width"))
    assert "4.64, 0.50" in [text.text for text in picture.findall(f"{svg}text")], "mean and worst"


def test_an_operation_is_picked_by_its_folder_and_an_unknown_one_is_told(folder: Folder) -> None:
    folder.program("memory_bench", [entry()])
    folder.program("ag_gemm_bench", [entry()])
    assert folder.run("--op", "ag_gemm").returncode == 0
    assert [row["bench"] for row in folder.kept()["rows"]] == ["ag_gemm_bench"]
    found = folder.run("--op", "nosuch")
    assert found.returncode == 1 and "nothing is known of OP=nosuch; there are ag_gemm" in found.stderr


def test_missed_goal_fails_and_is_named(folder: Folder) -> None:
    folder.program("move_bench", [entry(meets_goal=0.0)])
    found = folder.run()
    assert found.returncode == 1 and "move_bench: BM_Move" in found.stderr
    assert folder.kept()["rows"][0]["verdict"] == "missed"


def test_goal_without_a_judgement_fails(folder: Folder) -> None:
    row = entry()
    del row["meets_goal"]
    folder.program("move_bench", [row])
    assert folder.run().returncode == 1


def test_goal_that_a_busy_machine_cannot_judge_is_told(folder: Folder) -> None:
    row = entry(label=LABEL + "; not judged: needs 9 free cores, had 0.3")
    del row["meets_goal"]
    folder.program("move_bench", [row])
    found = folder.run()
    assert found.returncode == 0 and "1 goals not judged" in found.stdout
    assert folder.kept()["rows"][0]["verdict"] == "not judged: needs 9 free cores, had 0.3"


@pytest.mark.parametrize(
    "rows",
    [
        [entry(error_occurred=True, error_message="the other side is gone")],
        [entry(), entry(ours=0.0, ratio=0.0)],
        [{"name": "BM_Bare"}],
        [],
    ],
)
def test_errors_and_runs_that_compare_nothing_fail(folder: Folder, rows: list[dict[str, Any]]) -> None:
    folder.program("move_bench", rows)
    assert folder.run().returncode == 1


def test_program_that_fails_is_named_and_the_others_run(folder: Folder) -> None:
    folder.program("a_bench", [], code=3)
    folder.program("b_bench", [entry()])
    found = folder.run()
    assert found.returncode == 1 and "a_bench: ended with an error" in found.stderr
    assert [row["bench"] for row in folder.kept()["rows"]] == ["b_bench"]


def test_later_run_replaces_the_rows_of_its_programs_only(folder: Folder) -> None:
    folder.program("a_bench", [entry()])
    folder.program("b_bench", [entry()])
    assert folder.run().returncode == 0
    folder.program("b_bench", [entry(ours=8.5)])
    assert folder.run("b_bench").returncode == 0
    assert {row["bench"]: row["ours"] for row in folder.kept()["rows"]} == {"a_bench": 9.0, "b_bench": 8.5}


@pytest.mark.parametrize("has_suffix", [False, True])
def test_time_of_a_row_is_spelt_as_the_library_wants_it(folder: Folder, has_suffix: bool) -> None:
    folder.program("move_bench", [entry()], has_suffix=has_suffix)
    found = folder.run("--min-time", "0.5")
    assert found.returncode == 0, found.stderr


def test_build_folder_without_benchmarks_fails(folder: Folder) -> None:
    (folder.build / "benches.txt").write_text("\n")
    assert folder.run().returncode != 0
