"""The list of operations: one entry, and an operation is exported, listed and planned."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tilewire
from tilewire import op_list

FAKE_OP = """
from tilewire.plans import Plan

PLAN_SHAPE = {"lanes": "Lanes of the road."}

def fake_matmul_x():
    return "called"

class FakeMatmulX:
    pass

def plan_fake_matmul_x(lanes, *, nodes, dtype, **machine):
    return Plan("{}", f"lanes {lanes} of {dtype} on nodes {nodes}", 0.0, 0.0, 0.0, 1e-6, [])
"""
FAKE_CASES = """
from tilewire.checker import Report

class FakeCase:
    op, name, shape, calls = "fake_matmul_x", "a fake case", "3 lanes", 2

    def prepare(self, rank, seed):
        return self

    def run(self, machine):
        return machine.call(self.op)

    def check(self, result):
        return Report("" if result == "called" else "was not called", 1)

def real_cases(world_size):
    return [FakeCase()]

def odd_cases(world_size):
    return [FakeCase()]
"""
# The list with one more entry, in the place of the real one: before anything else of the package is imported.
WITH_FAKE_OP = """
import importlib.util, sys

sys.path.insert(0, sys.argv.pop(1))
spec = importlib.util.spec_from_file_location("tilewire.op_list", sys.path[0] + "/op_list.py")
module = importlib.util.module_from_spec(spec)
sys.modules["tilewire.op_list"] = module
spec.loader.exec_module(module)
"""


def with_fake_op(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program on a package whose list has the entry of a second operation."""
    entries = "OPS = [\n"
    text = Path(op_list.__file__).read_text()
    assert text.count(entries) == 1
    (folder / "op_list.py").write_text(text.replace(entries, entries + '    Op("fake_matmul_x", "fake_op"),\n'))
    (folder / "fake_op.py").write_text(FAKE_OP)
    (folder / "fake_op_cases.py").write_text(FAKE_CASES)
    command = [sys.executable, "-c", WITH_FAKE_OP + program, str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_one_entry_exports_an_operation_without_importing_it(tmp_path: Path) -> None:
    done = with_fake_op(
        tmp_path,
        """
import tilewire
assert "fake_op" not in sys.modules and "numpy" not in sys.modules
names = {"FakeMatmulX", "fake_matmul_x", "plan_fake_matmul_x"}
assert names < set(tilewire.__all__) and names < set(dir(tilewire)), dir(tilewire)
assert tilewire.fake_matmul_x() == "called" and "fake_op" in sys.modules
from tilewire import *
assert FakeMatmulX.__module__ == "fake_op" and all_gather_matmul.__module__ == "tilewire.all_gather"
""",
    )
    assert done.returncode == 0, done.stderr


def test_one_entry_makes_a_subcommand_of_plan(tmp_path: Path) -> None:
    program = "import tilewire.cli; tilewire.cli.main()"
    listed = with_fake_op(tmp_path, program, "plan", "--help")
    assert "fake_matmul_x" in listed.stdout and "all_gather_matmul" in listed.stdout, listed.stdout + listed.stderr
    own = with_fake_op(tmp_path, program, "plan", "fake_matmul_x", "--help").stdout
    assert "--lanes" in own and "Lanes of the road." in own and "--nodes" in own and "--k" not in own, own
    done = with_fake_op(tmp_path, program, "plan", "fake_matmul_x", "--lanes", "3,4", "--nodes", "2")
    assert "lanes [3, 4] of bf16 on nodes [1, 1]" in done.stdout, done.stdout + done.stderr


def test_one_entry_brings_its_cases_into_the_demo(tmp_path: Path) -> None:
    done = with_fake_op(
        tmp_path,
        """
import tilewire
from tilewire.demo_cases import CallStats, odd_cases, real_cases, run_case

class Machine:
    rank, world_size, on_gpu = 0, 2, False
    def barrier(self): pass
    def last_call(self): return CallStats({}, [])
    def call(self, op, *arguments): return getattr(tilewire, op)(*arguments)

for cases in (real_cases(2), odd_cases(2)):
    own = [case for case in cases if case.op == "fake_matmul_x"]
    assert len(own) == 1 and len(cases) > 2, cases
result = run_case(own[0], Machine())
assert result.ok and (result.op, result.name) == ("fake_matmul_x", "a fake case"), result
""",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("op", op_list.OPS, ids=lambda op: op.name)
def test_every_operation_has_what_its_entry_promises(op: op_list.Op) -> None:
    module = sys.modules[getattr(tilewire, op.name).__module__]
    assert module.__name__ == op.module
    assert all(getattr(tilewire, name).__doc__ for name in op.exports)
    cases_module = importlib.import_module(op.cases_module)
    for cases in (cases_module.real_cases(2), cases_module.odd_cases(2)):
        assert cases and all(case.op == op.name for case in cases)
    taken = list(inspect.signature(getattr(module, op.plan_name)).parameters)
    assert taken[: len(module.PLAN_SHAPE)] == list(module.PLAN_SHAPE)


def test_every_entry_is_there_for_type_checkers_too() -> None:
    text = Path(op_list.__file__).read_text()
    for op in op_list.OPS:
        names = sorted(op.exports, key=lambda name: (name.islower(), name))  # as the linter wants them
        assert f"from {op.module} import {', '.join(names)}  # noqa" in text
