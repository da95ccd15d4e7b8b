"""What the demo runs of `matmul_reduce_scatter` and `matmul_all_reduce`, and its checker, without processes."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fake_cluster import FakeCluster
from tilewire import all_reduce_cases, reduce_scatter_cases
from tilewire.checker import check_matmul_sum
from tilewire.demo_cases import run_case
from tilewire.linear import Array

BF16 = np.dtype(ml_dtypes.bfloat16)
OPERATIONS = pytest.mark.parametrize("cases_of", [all_reduce_cases, reduce_scatter_cases])


@OPERATIONS
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_odd_cases_pass_on_what_numpy_gives(cases_of: Any, world_size: int) -> None:
    for case in cases_of.odd_cases(world_size):
        for result in FakeCluster(world_size).run(partial(run_case, case)):
            assert result.ok, f"{case.name}: {result.message}"


def lose_a_rank(rank: int, parts: list[Array]) -> list[Array]:
    return [np.zeros_like(parts[0]), *parts[1:]]


def swap_rows(rank: int, parts: list[Array]) -> list[Array]:
    return [parts[0][::-1], *parts[1:]]


def spoil_one(rank: int, parts: list[Array]) -> list[Array]:
    parts[-1][:, :1] += 40
    return parts


@OPERATIONS
@pytest.mark.parametrize("tamper", [lose_a_rank, swap_rows, spoil_one])
def test_a_damaged_sum_fails_every_case_that_it_touches(cases_of: Any, tamper: Any) -> None:
    cases = [case for case in cases_of.odd_cases(4) if min(case.rows) > 1 and case.k[0] > 0 and case.n > 0]
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
