"""Calls of Python on GPU ranks of the operations that sum products over ranks."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_claims import expect_disagreements, expect_none_wrong, expect_of_cupy, expect_refusals
from gpu_places import SUM_OPS, SUM_PLACES

of_each = pytest.mark.parametrize(("op", "place"), [(op, place) for op in SUM_OPS for place in SUM_PLACES])


def run_of(shared_run: Any, program: str, op: str, place: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = shared_run(f"gpu_sum_programs.{program}:{op}", place)
    return results


@of_each
def test_sums_of_every_kind_of_call(op: str, place: str, shared_run: Any) -> None:
    expect_none_wrong(run_of(shared_run, "values", op, place))


@of_each
def test_sums_are_in_the_order_of_their_streams(op: str, place: str, shared_run: Any) -> None:
    expect_none_wrong(run_of(shared_run, "streams", op, place))


@of_each
def test_graphs_of_sums_have_the_bits_of_eager_calls(op: str, place: str, shared_run: Any) -> None:
    for found in run_of(shared_run, "graphs", op, place):
        refused = found.pop("capture of a new shape")
        assert refused["error"] == "InvalidArgument" and "before the capture" in refused["text"], refused
        expect_none_wrong([found])


@of_each
def test_bits_of_sums_do_not_depend_on_timing_and_those_of_an_all_reduce_are_alike(
    op: str, place: str, shared_run: Any
) -> None:
    results = run_of(shared_run, "bits", op, place)
    expect_none_wrong([{name: text for name, text in found.items() if name.startswith("repeat")} for found in results])
    seen = [{name: text for name, text in found.items() if name.startswith("bits")} for found in results]
    assert len(seen[0]) == 10
    if op == "matmul_all_reduce":
        assert all(bits == seen[0] for bits in seen), seen


REFUSALS: dict[str, list[str]] = {
    "host tensor": ["a is not in GPU memory"],
    "fp32": ["a has elements of 32 bits", "bf16 or fp16 on a GPU"],
    "a list of weights": ["b is a list"],
    "K differs": ["b does not fit a"],
    "host residual": ["residual is not in GPU memory"],
    "residual of another shape": ["residual"],
    "host bias": ["bias is not in GPU memory"],
    "out has the wrong shape": ["out is [5, 320]"],
    "plan of CPU ranks": ["plan"],
}


@of_each
def test_sums_that_all_ranks_refuse_leave_the_communicator_usable(op: str, place: str, shared_run: Any) -> None:
    expect_refusals(run_of(shared_run, "refusals", op, place), REFUSALS)


DISAGREEMENTS: dict[str, list[str]] = {
    "N": ["N = 320", "N = 312"],
    "wire_dtype": ["bf16 over bf16", "bf16 over fp32"],
    "refused by one": ["a has shape [136]"],
}


@of_each
def test_disagreement_about_a_sum_is_an_error_of_all_ranks(op: str, place: str, shared_run: Any) -> None:
    expect_disagreements(run_of(shared_run, "disagreements", op, place), DISAGREEMENTS, operand="a")


@of_each
def test_sums_of_cupy_arrays(op: str, place: str, shared_run: Any) -> None:
    expect_of_cupy(run_of(shared_run, "cupy_arrays", op, place))


@of_each
def test_a_gather_and_a_sum_replay_in_one_graph(op: str, place: str, shared_run: Any) -> None:
    expect_none_wrong(run_of(shared_run, "layers", op, place))
