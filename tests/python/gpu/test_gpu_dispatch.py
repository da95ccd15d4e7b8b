"""Calls of Python on GPU ranks of `moe_dispatch_matmul`."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_claims import expect_none_wrong, expect_of_cupy, expect_refusals
from gpu_places import DISPATCH_PLACES

at_each_place = pytest.mark.parametrize("place", DISPATCH_PLACES, ids=lambda place: f"moe_dispatch_matmul-{place}")


def run_of(shared_run: Any, program: str, place: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = shared_run(f"gpu_dispatch_programs.{program}", place)
    return results


@at_each_place
def test_rows_origins_and_offsets_of_every_kind_of_call(place: str, shared_run: Any) -> None:
    expect_none_wrong(run_of(shared_run, "values", place))


@at_each_place
def test_a_graph_replays_with_changed_routes(place: str, shared_run: Any) -> None:
    for found in run_of(shared_run, "graphs", place):
        refused = found.pop("capture without max_tokens")
        assert refused["error"] == "InvalidArgument" and "pass max_tokens=" in refused["text"], refused
        expect_none_wrong([found])


@at_each_place
def test_what_a_kernel_finds_wrong_is_raised_behind_the_call_and_the_communicator_goes_on(
    place: str, shared_run: Any
) -> None:
    for rank, found in enumerate(run_of(shared_run, "remarks", place)):
        many, expert = found.pop("too many rows"), found.pop("no such expert")
        assert many["error"] == "ResourceError" and "max_tokens = 3" in many["text"], many
        wanted = "InvalidArgument" if rank == 0 else ""
        assert expert["error"] == wanted and (rank != 0 or "topk_ids[0, 0] = 7" in expert["text"]), expert
        expect_none_wrong([found])


REFUSALS: dict[str, list[str]] = {
    "host tokens": ["x is not in GPU memory"],
    "host ids": ["topk_ids is not in GPU memory"],
    "ids are no whole numbers": ["topk_ids has a dtype", "int32 or int64"],
    "x is of whole numbers": ["x has a dtype", "bf16, fp16 or fp32"],
    "fp32": ["x has the wrong dtype"],
    "results of another dtype": ["results have a dtype of their own", "bf16 on a GPU"],
    "a plan of CPU ranks": ["plan"],
    "out has the wrong shape": ["out is [5, 200]"],
}


@at_each_place
def test_what_all_ranks_refuse_leaves_the_communicator_usable(place: str, shared_run: Any) -> None:
    expect_refusals(run_of(shared_run, "refusals", place), REFUSALS)


@at_each_place
def test_arrays_of_cupy(place: str, shared_run: Any) -> None:
    expect_of_cupy(run_of(shared_run, "cupy_arrays", place))
