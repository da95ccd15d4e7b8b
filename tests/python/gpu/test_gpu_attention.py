"""Calls of Python on GPU ranks of ring attention."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_claims import expect_disagreements, expect_none_wrong, expect_of_cupy, expect_refusals
from gpu_places import ATTENTION_PLACES

at_each = pytest.mark.parametrize("place", ATTENTION_PLACES)


def run_of(shared_run: Any, program: str, place: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = shared_run(f"gpu_attention_programs.{program}", place)
    return results


@at_each
def test_ring_attention_of_every_kind_of_call(place: str, shared_run: Any) -> None:
    expect_none_wrong(run_of(shared_run, "values", place))


@at_each
def test_ring_attention_is_in_the_order_of_its_streams(place: str, shared_run: Any) -> None:
    expect_none_wrong(run_of(shared_run, "streams", place))


@at_each
def test_graphs_of_ring_attention_have_the_bits_of_eager_calls(place: str, shared_run: Any) -> None:
    for found in run_of(shared_run, "graphs", place):
        for name in ("capture of a new shape", "capture of new documents", "capture of given positions"):
            refused = found.pop(name)
            assert refused["error"] == "InvalidArgument" and "before the capture" in refused["text"], refused
        expect_none_wrong([found])


REFUSALS: dict[str, list[str]] = {
    "host tensor": ["q is not in GPU memory"],
    "fp32": ["must be bf16 or fp16"],
    "result of another dtype": ["the result has a dtype of its own"],
    "scale of 0": ["scale is not a positive number"],
    "three axes": ["q has the wrong number of dimensions"],
    "host out": ["out is not in GPU memory"],
    "out has the wrong shape": ["out has the wrong shape"],
    "out overlaps q": ["out overlaps q"],
    "plan of CPU ranks": ["plan"],
    "positions of 32 bits": ["a position is too large for a kernel"],
}


@at_each
def test_ring_attention_that_all_ranks_refuse_leaves_the_communicator_usable(place: str, shared_run: Any) -> None:
    expect_refusals(run_of(shared_run, "refusals", place), REFUSALS)


DISAGREEMENTS: dict[str, list[str]] = {
    "causal": ["full", "causal"],
    "documents": ["0, 8, 20", "0, 9, 20"],
    "refused by one": ["q has shape"],
}


@at_each
def test_disagreement_about_ring_attention_is_an_error_of_all_ranks(place: str, shared_run: Any) -> None:
    expect_disagreements(run_of(shared_run, "disagreements", place), DISAGREEMENTS, operand="q")


@at_each
def test_ring_attention_of_cupy_arrays(place: str, shared_run: Any) -> None:
    expect_of_cupy(run_of(shared_run, "cupy_arrays", place))
