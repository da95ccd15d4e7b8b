"""`matmul_reduce_scatter` from Python: its cases and their checker without processes, its arguments, its plans."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewire as tw
from fake_cluster import FakeCluster
from rank_run import run_ranks
from tilewire.checker import check_matmul_sum
from tilewire.demo_cases import run_case
from tilewire.linear import Array
from tilewire.reduce_scatter_cases import odd_cases

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_odd_cases_pass_on_what_numpy_gives(world_size: int) -> None:
    for case in odd_cases(world_size):
        for result in FakeCluster(world_size).run(partial(run_case, case)):
            assert result.ok, f"{case.name}: {result.message}"


def lose_a_rank(rank: int, parts: list[Array]) -> list[Array]:
    return [np.zeros_like(parts[0]), *parts[1:]]


def swap_rows(rank: int, parts: list[Array]) -> list[Array]:
    return [parts[0][::-1], *parts[1:]]


def spoil_one(rank: int, parts: list[Array]) -> list[Array]:
    parts[-1][:, :1] += 40
    return parts


@pytest.mark.parametrize("tamper", [lose_a_rank, swap_rows, spoil_one])
def test_a_damaged_sum_fails_every_case_that_it_touches(tamper: Any) -> None:
    cases = [case for case in odd_cases(4) if min(case.rows) > 1 and case.k[0] > 0 and case.n > 0]
    assert len(cases) > 6
    for case in cases:
        results = FakeCluster(4, tamper).run(partial(run_case, case))
        assert not all(result.ok for result in results), case.name


def test_the_checker_allows_the_listed_roundings_and_no_more() -> None:
    generator = np.random.default_rng(1)
    parts = [(generator.standard_normal((9, 30)), generator.standard_normal((30, 7))) for _ in range(4)]
    parts = [(a.astype(np.float32), b.astype(np.float32)) for a, b in parts]
    rounded = sum(((a @ b).astype(BF16).astype(np.float32) for a, b in parts), start=np.zeros((9, 7), np.float32))
    assert check_matmul_sum(rounded, parts, wire_dtype=BF16).ok
    assert not check_matmul_sum(rounded, parts, wire_dtype=np.dtype(np.float32)).ok
    assert not check_matmul_sum(rounded * np.float32(1.2), parts, wire_dtype=BF16).ok
    wrong = rounded.copy()
    wrong[4, 3] += 1
    report = check_matmul_sum(wrong, parts, wire_dtype=BF16)
    assert not report.ok and report.worst is not None and report.worst.index == (4, 3)


def test_whole_numbers_that_fit_the_wire_have_to_be_right_to_the_bit() -> None:
    parts = [(np.full((2, 3), r, np.float32), np.ones((3, 2), np.float32)) for r in range(4)]
    right = np.full((2, 2), 18, np.float32)
    assert check_matmul_sum(right, parts, wire_dtype=BF16).ok
    assert not check_matmul_sum(np.nextafter(right, np.float32(100)), parts, wire_dtype=BF16).ok
    bias, residual = np.array([1, 2], np.float32), np.array([[5, 6], [7, 8]], np.float32)
    added = right + bias + residual
    assert check_matmul_sum(added, parts, wire_dtype=BF16, bias=bias, residual=residual).ok
    assert not check_matmul_sum(added, parts, wire_dtype=BF16, bias=bias).ok


def test_options_of_a_call(tmp_path: Path) -> None:
    for checks in run_ranks("reduce_scatter_programs:options", tmp_path, "2,1").all_results():
        assert len(checks) > 8 and [name for name, ok in checks.items() if not ok] == []


def test_plans_say_what_they_are_for() -> None:
    plan = tw.plan_matmul_reduce_scatter(512, 2048, 2048, nodes=[2, 2], timeline=True)
    numbers = plan.as_dict()
    assert numbers["op"] == "matmul_reduce_scatter" and numbers["window"] == 0
    assert {event.role for event in plan.timeline} >= {"compute", "reduce", "send", "finish"}
    assert plan.predicted_s >= plan.compute_s
    given = tw.plan_matmul_reduce_scatter(512, 2048, 2048, nodes=[2, 2], plan={**numbers, "window": 4})
    assert "a window of 4" in str(given)
    wide = tw.plan_matmul_reduce_scatter(512, 2048, 2048, nodes=[2, 2], wire_dtype="fp32", plan=numbers)
    assert "takes 6" in str(wide) and "takes 3" in str(plan)  # MiB
    with pytest.raises(tw.InvalidArgument, match="n is no count"):
        tw.plan_matmul_reduce_scatter(512, 2048, [64, 64], nodes=[2, 2])
    with pytest.raises(tw.InvalidArgument, match="wire_dtype"):
        tw.plan_matmul_reduce_scatter(512, 2048, 64, nodes=[2, 2], wire_dtype="int8")
