"""check_ops must pass this repository, and name each place that an operation was forgotten in."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKER = Path(__file__).resolve().parent / "check_ops"
ROOT = CHECKER.parents[1]
READ = ["src/ops", "src/api", "include/tilewire", "python/src", "python/tilewire", "tests/gpu"]
READ += ["docs/architecture.md", "tests/python", "README.md", "CHANGELOG.md", "scripts/run_gpu"]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all that the checker reads."""
    root = tmp_path_factory.mktemp("tree")
    for name in READ:
        source, to = ROOT / name, root / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__", "*.so", "tilewire_wire"))
        else:
            shutil.copy(source, to)
    return root


class Tree:
    """The copy, of which a test may change files; they are as before behind it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.before: dict[Path, str] = {}

    def path(self, name: str) -> Path:
        path = self.root / name
        self.before.setdefault(path, path.read_text())
        return path

    def replace(self, name: str, old: str, new: str) -> None:
        path = self.path(name)
        assert old in self.before[path]
        path.write_text(self.before[path].replace(old, new))


@pytest.fixture
def tree(copy: Path) -> Iterator[Tree]:
    tree = Tree(copy)
    yield tree
    for path, text in tree.before.items():
        path.write_text(text)


def check(tree: Tree) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECKER), "--root", str(tree.root)], capture_output=True, text=True, check=False
    )


def test_this_repository_passes(tree: Tree) -> None:
    found = check(tree)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("name", "old", "complaint"),
    [
        ("src/ops/op_list.h", "gemm_ar::Op", "gemm_ar is included and not listed"),
        ("src/ops/op_list.h", '#include "ops/gemm_ar/gemm_ar.h"\n', "gemm_ar is a folder and not listed"),
        ("src/ops/device_op_list.h", "gemm_rs::DeviceOp", "gemm_rs is included and not listed"),
        ("src/ops/device_op_list.h", '#include "ops/gemm_rs/device_op.h"\n', "gemm_rs: src/ops/device_op_list.h and"),
        ("src/api/gemm_reduce_scatter.cc", "using DeviceOp = ", "so GPU ranks are refused"),
        ("python/src/reduce_scatter.cc", "kCallOn", "gemm_rs: python/src/reduce_scatter.cc has to have kCallOn"),
        ("python/tilewire/attention_cases.py", "def on_gpu", "attention_cases.py do not say def on_gpu"),
        ("python/tilewire/reduction_cases.py", "def on_gpu", "all_reduce_cases.py do not say def on_gpu("),
        ("src/ops/gemm_rs/problem.h", 'kCallName = "matmul', "gemm_rs: its problem.h has no kCallName"),
        ("src/ops/gemm_rs/CMakeLists.txt", "tilewire_bench(gemm_rs_bench", "has no tilewire_bench(gemm_rs_bench"),
        ("src/api/gemm_all_reduce.cc", '#include "ops/gemm_ar/', "gemm_ar: a source of src/api: found none"),
        ("include/tilewire/gemm_all_reduce.h", "matmul_all_reduce(", "declares no matmul_all_reduce(Communicator&"),
        ("include/tilewire/tilewire.h", "#include <tilewire/gemm_all_reduce.h>", "does not include gemm_all_reduce.h"),
        ("docs/architecture.md", "`include/tilewire/gemm_all_reduce.h`", "section 1, has no row of gemm_all_reduce.h"),
        ("docs/architecture.md", "src/ops/gemm_ar/README.md", "gemm_ar: docs/architecture.md does not name its README"),
        ("python/tilewire/op_list.py", 'Op("matmul_all_reduce"', "gemm_ar: python/tilewire/op_list.py has no matmul"),
        ("python/src/ops.h", "OP(all_reduce)", "gemm_ar: python/src/ops.h has no OP(all_reduce)"),
        ("python/src/all_reduce.cc", 'kName = "matmul_all_reduce"', "python/src/all_reduce.cc does not bind"),
        ("python/tilewire/_core.pyi", "matmul_all_reduce:", "gemm_ar: python/tilewire/_core.pyi has no"),
        ("python/tilewire/_core.pyi", "def plan_matmul_all_reduce(", "gemm_ar: python/tilewire/_core.pyi has no"),
        ("tests/python/fake_cluster.py", "def matmul_all_reduce(", "fake_cluster.py has no matmul_all_reduce"),
        ("tests/gpu/kernel_budget.json", "7gemm_rs12fused_kernel", "gemm_rs: tests/gpu/kernel_budget.json has no"),
        ("tests/gpu/CMakeLists.txt", "tilewire_cuda_test(gemm_rs_gpu_test", "gemm_rs: tests/gpu/CMakeLists.txt has no"),
        ("tests/gpu/rank_ops.h", "struct GemmRsRankOp", "gemm_rs: tests/gpu/rank_ops.h has no struct GemmRsRankOp"),
        ("tests/gpu/rank_tests.cc", "RankTests<GemmRsRankOp>", "rank_tests.cc has no RankTests<GemmRsRankOp>"),
        ("tests/gpu/rank_scenarios.cc", "<GemmRsRankOp>", "tests/gpu/rank_scenarios.cc has no <GemmRsRankOp>"),
        ("tests/gpu/rank_mix.cc", "<GemmRsRankOp>", "tests/gpu/rank_mix.cc has no <GemmRsRankOp>"),
        ("scripts/run_gpu", '("gemm_rs", "python_gpu"', "gemm_rs: scripts/run_gpu has no tests in Python of it"),
        ("src/ops/gemm_rs/CMakeLists.txt", " plan_test.cc", "gemm_rs: its CMakeLists.txt does not name plan_test.cc"),
        ("src/ops/gemm_rs/CMakeLists.txt", "problem.cc", "gemm_rs: its CMakeLists.txt does not name problem.cc"),
        (
            "tests/python/moe_dispatch_programs.py",
            "tw.moe_dispatch_matmul(",
            "no test of tests/python calls tw.moe_dispatch_matmul",
        ),
        ("README.md", "tw.matmul_all_reduce", "gemm_ar: README.md does not name tw.matmul_all_reduce"),
        ("CHANGELOG.md", "matmul_all_reduce", "gemm_ar: CHANGELOG.md does not name matmul_all_reduce"),
        ("README.md", "there are five operations", "README.md: says [] where there are five"),
        ("docs/architecture.md", "there are five", "docs/architecture.md: says [] where there are five"),
    ],
)
def test_a_forgotten_place_is_named(tree: Tree, name: str, old: str, complaint: str) -> None:
    tree.replace(name, old, "x")
    found = check(tree)
    assert found.returncode == 1 and complaint in found.stdout, found.stdout + found.stderr


# As of an operation whose kernel has come, or has gone.
@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("src/ops/gemm_rs/gemm_rs.h", "kName =", "kHasKernel = false, kName =", "gemm_rs: has a device_op.h and says"),
        (
            "python/tilewire/all_reduce_cases.py",
            "    plan: Any = None",
            "    on_gpu: ClassVar[bool] = False\n    plan: Any = None",
            "all_reduce_cases.py say on_gpu: ClassVar[bool] = False; GPU ranks call it",
        ),
    ],
)
def test_what_is_left_over_is_named(tree: Tree, name: str, old: str, new: str, complaint: str) -> None:
    tree.replace(name, old, new)
    found = check(tree)
    assert found.returncode == 1 and complaint in found.stdout, found.stdout + found.stderr


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("src/ops/gemm_ar/roles.h", "gemm_ar: there is no src/ops/gemm_ar/roles.h"),
        ("src/ops/gemm_ar/gemm_ar_bench.cc", "gemm_ar: there is no src/ops/gemm_ar/gemm_ar_bench.cc"),
        ("src/ops/gemm_rs/device_op.h", "gemm_rs: src/ops/device_op_list.h and"),
        ("src/ops/gemm_rs/device_op.h", "gemm_rs: has no device_op.h and does not say kHasKernel = false"),
        ("src/ops/gemm_rs/device_op.h", "gemm_rs: python/src/reduce_scatter.cc has to have kCallOn where there is"),
        ("src/ops/gemm_rs/device_op.h", "reduce_scatter_cases.py do not say on_gpu: ClassVar[bool] = False"),
        ("tests/gpu/gemm_rs_gpu_test.cu", "gemm_rs: there is no tests/gpu/gemm_rs_gpu_test.cu"),
        ("python/tilewire/all_reduce_cases.py", "gemm_ar: there is no python/tilewire/all_reduce_cases.py"),
        ("python/src/all_reduce.cc", "gemm_ar: a source of python/src: found none"),
    ],
)
def test_a_missing_file_is_named(tree: Tree, name: str, complaint: str) -> None:
    tree.path(name).unlink()
    found = check(tree)
    assert found.returncode == 1 and complaint in found.stdout, found.stdout + found.stderr


def test_an_operation_of_python_alone_is_named(tree: Tree) -> None:
    tree.replace("python/tilewire/op_list.py", "\nOPS = [\n", '\nOPS = [\n    Op("swim", "tilewire.swim"),\n')
    assert "swim is no operation of src/ops/op_list.h" in check(tree).stdout


def test_an_empty_list_does_not_pass(tree: Tree) -> None:
    tree.path("src/ops/op_list.h").write_text("#pragma once\n")
    found = check(tree)
    assert found.returncode == 1 and "names no operation" in found.stdout
