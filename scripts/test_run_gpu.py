"""run_gpu must keep what each program found, tell which failed, and run nothing without a GPU."""

import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent / "run_gpu"
ROWS = {"rows": [{"bench": "b", "op": "ag_gemm", "shape": "1x1", "ours": 1, "baseline": 2, "ratio": 2.0, "unit": "us"}]}
LAUNCHED_ALONE = ("matmul_reduce_scatter", "matmul_all_reduce", "ring_attention", "moe_dispatch_matmul")
TESTS = [f"{name}_gpu_test" for name in ("pipeline", "wait", "gemm", "gated_gemm", "cuda_arena", "ag_gemm")]
TESTS += [
    "gemm_rs_gpu_test",
    "uncalled_gpu_test",
    *(f"gpu_ranks_test {part}" for part in ("ag_gemm", "gemm_rs", "link", "all ops")),
]
TESTS += [f"python_gpu {part}" for part in ("test", "virtual")]
TESTS += [f"python_gpu {op}" for op in LAUNCHED_ALONE]
SANITIZED = ["pipeline_gpu_test", "ag_gemm_gpu_test"]
LISTED = [("executor", "call"), ("ops/ag_gemm", "op"), ("ops/gemm_rs", "op")]


class Machine:
    """A build folder with programs that do as they are told, and a tool that lists GPUs."""

    def __init__(self, path: Path, gpus: int = 1) -> None:
        self.path, self.gpus = path, gpus
        for name in ("build", "bin", "scripts", "tests/gpu"):
            (path / name).mkdir(parents=True)
        for tool in ("run_gpu", "run_benches", "results_plot.py"):
            shutil.copy(SCRIPT.with_name(tool), path / "scripts" / tool)
        (path / "src/ops/no_kernel").mkdir(parents=True)
        for op in ("ag_gemm", "gemm_rs", "uncalled"):
            (path / "src/ops" / op).mkdir()
            (path / "src/ops" / op / "kernel.cuh").touch()
        includes = [f'#include "{name}/device_{what}.h"\n' for name, what in LISTED]
        (path / "src/ops/device_op_list.h").write_text("".join(includes))
        for op, part in (("ag_gemm", '"--sanitized"'), ("gemm_rs", '"faults"')):
            (path / "tests/gpu" / f"{op}_gpu_test.cu").write_text(f"if (part == {part}) {{")
        self.script("tests/gpu/python_gpu", "sys.exit(0)")
        self.script("bin/nvidia-smi", f"print('\\n'.join(['NVIDIA Test'] * {gpus}))")
        for name in TESTS:
            self.script(f"build/{name.split()[0]}", "sys.exit(0)")
        row = dict(ROWS["rows"][0], baseline_name="x")
        write = (
            f"open(sys.argv[-3], 'w').write(json.dumps({{'rows': [dict({row!r}, shape=' '.join(sys.argv[1:-3]))]}}))"
        )
        for name in ("gemm", "launch", "link", "ag_gemm", "gemm_rs", "uncalled"):
            self.script(f"build/{name}_gpu_bench", write)

    def script(self, name: str, body: str) -> None:
        path = self.path / name
        path.write_text(f"#!{sys.executable}\nimport json, sys\n{body}\n")
        path.chmod(0o755)

    def run(self, what: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PATH": f"{self.path / 'bin'}:{os.environ['PATH']}", "COMMIT": "abcdef0", **more}
        environment["RESULTS_DIR"] = str(self.path / "results")
        return subprocess.run(
            [sys.executable, self.path / "scripts" / SCRIPT.name, what, self.path / "build"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def rows(self, kind: str) -> list[dict[str, object]]:
        [path] = (self.path / "results").glob(f"*-abcdef0-gpu_{kind}.json")
        rows: list[dict[str, object]] = json.loads(path.read_text())["rows"]
        return rows


def test_nothing_runs_without_a_gpu(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpus=0)
    done = machine.run("test")
    assert done.returncode == 0
    assert "no GPU is here" in done.stdout
    assert not (tmp_path / "results").exists()


def test_every_test_is_a_row_and_a_failed_one_fails_the_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.script("build/wait_gpu_test", "sys.exit(3)")
    done = machine.run("test")
    assert done.returncode == 1
    assert "wait_gpu_test ended with 3" in done.stderr
    assert {row["shape"]: row["ratio"] for row in machine.rows("test")} == {
        name: 0.0 if name == "wait_gpu_test" else 1.0 for name in TESTS
    }
    (only,) = (tmp_path / "results").iterdir()
    assert only.name.endswith("-gpu_test.json")


def test_op_runs_one_operation_and_the_rows_of_others_stay(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.run("test").returncode == 0
    machine.script("build/wait_gpu_test", "sys.exit(3)")
    machine.script("build/ag_gemm_gpu_test", "sys.exit(4)")
    assert machine.run("test", OP="ag_gemm").returncode == 1
    ratios = {row["shape"]: row["ratio"] for row in machine.rows("test")}
    assert ratios["ag_gemm_gpu_test"] == 0.0
    assert ratios["wait_gpu_test"] == 1.0
    assert len(ratios) == len(TESTS)


def test_a_test_that_was_skipped_is_not_said_to_have_passed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.script("tests/gpu/python_gpu", "sys.exit(77 if sys.argv[1] == 'virtual' else 0)")
    assert machine.run("test").returncode == 0
    verdicts = {row["shape"]: row["verdict"] for row in machine.rows("test")}
    assert verdicts["python_gpu virtual"] == "skipped"
    assert verdicts["python_gpu test"] == "passed"


@pytest.mark.parametrize(
    ("tests", "status"), [("tests='5' skipped='5'", 77), ("tests='5' skipped='4'", 0), ("tests='0' skipped='0'", 77)]
)
def test_python_tests_of_which_none_ran_were_skipped(tests: str, status: int, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite {tests}/></testsuites>")
    path = SCRIPT.parents[1] / "tests" / "gpu" / "python_gpu"
    loader = importlib.machinery.SourceFileLoader("python_gpu", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("python_gpu", loader))
    loader.exec_module(module)
    assert module.status_of(0, report) == status
    assert module.status_of(1, report) == 1


def test_a_sanitizer_that_finds_something_fails_the_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.script("bin/compute-sanitizer", "sys.exit(9 * ('racecheck' in sys.argv and '--sanitized' in sys.argv))")
    done = machine.run("sanitize")
    assert done.returncode == 1
    assert "racecheck, ag_gemm_gpu_test ended with 9" in done.stderr
    assert {row["shape"]: row["ratio"] for row in machine.rows("sanitizer")} == {
        f"{tool}, {name}": 0.0 if (tool, name) == ("racecheck", "ag_gemm_gpu_test") else 1.0
        for tool in ("memcheck", "racecheck", "synccheck")
        for name in SANITIZED
    }


def test_a_soak_has_rows_and_a_limit_of_its_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.run("soak").returncode == 0
    (row,) = machine.rows("soak")
    assert row["bench"] == "gpu_soak" and row["shape"] == "gpu_ranks_test all ops 10000", row
    assert row["verdict"] == "passed" and row["baseline"] == 1800, row


def test_an_unknown_op_is_told(tmp_path: Path) -> None:
    done = Machine(tmp_path).run("bench", OP="nothing")
    assert done.returncode == 1
    assert "nothing is known of OP=nothing" in done.stderr


def test_what_needs_several_gpus_runs_where_there_are_some(tmp_path: Path) -> None:
    for gpus in (1, 2):
        folder = tmp_path / str(gpus)
        folder.mkdir()
        machine = Machine(folder, gpus)
        assert machine.run("bench").returncode == 0
        assert (["--gpus" in str(row["shape"]) for row in machine.rows("bench")].count(True) > 0) == (gpus == 2)
