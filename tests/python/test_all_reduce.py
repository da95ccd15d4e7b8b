"""`matmul_all_reduce` from Python: its arguments, its plans."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewire as tw
from rank_run import run_ranks


def test_options_of_a_call(tmp_path: Path) -> None:
    for checks in run_ranks("all_reduce_programs:options", tmp_path, "2,1").all_results():
        assert len(checks) > 8 and [name for name, ok in checks.items() if not ok] == []


def test_all_ranks_get_the_same_bits_by_both_forms_and_by_a_reduce_scatter(tmp_path: Path) -> None:
    found = run_ranks("all_reduce_programs:bits", tmp_path, "2,2").all_results()
    assert len({bits for of_rank in found for bits in of_rank["bits"].values()}) == 1, found
    assert all(of_rank["is_scatter"] for of_rank in found)


def test_plans_say_what_they_are_for() -> None:
    plan = tw.plan_matmul_all_reduce(512, 2048, 2048, nodes=[2, 2], timeline=True)
    numbers = plan.as_dict()
    assert numbers["op"] == "matmul_all_reduce" and numbers["window"] == 0
    assert {event.role for event in plan.timeline} >= {"compute", "reduce", "send", "finish", "forward"}
    assert plan.predicted_s >= plan.compute_s
    for is_one_shot, text in ((False, "two shots"), (True, "one shot")):
        given = tw.plan_matmul_all_reduce(512, 2048, 2048, nodes=[2, 2], plan={**numbers, "is_one_shot": is_one_shot})
        assert text in str(given)
    few = tw.plan_matmul_all_reduce(1, 512, 4096, nodes=[2, 2], machine="h200")
    assert few.as_dict()["is_one_shot"] is True
    with pytest.raises(tw.InvalidArgument, match="m is no count"):
        tw.plan_matmul_all_reduce([128, 128, 128, 128], 2048, 64, nodes=[2, 2])  # type: ignore[arg-type]
    with pytest.raises(tw.InvalidArgument, match="wire_dtype"):
        tw.plan_matmul_all_reduce(512, 2048, 64, nodes=[2, 2], wire_dtype="int8")
