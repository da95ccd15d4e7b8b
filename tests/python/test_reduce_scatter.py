"""`matmul_reduce_scatter` from Python: its arguments, its plans."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewire as tw
from rank_run import run_ranks


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
