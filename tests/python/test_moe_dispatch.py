"""`moe_dispatch_matmul` from Python: its arguments, its plans, its cases without processes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewire as tw
from fake_cluster import FakeCluster
from rank_run import run_ranks
from tilewire.demo_cases import run_case
from tilewire.linear import Array
from tilewire.moe_dispatch_cases import odd_cases


def test_options_of_a_call(tmp_path: Path) -> None:
    for checks in run_ranks("moe_dispatch_programs:options", tmp_path, "2,1").all_results():
        assert len(checks) > 20 and [name for name, ok in checks.items() if not ok] == []


# Real words are far from uniform, by whichever router.
def test_words_of_a_real_text_come_to_their_experts(tmp_path: Path) -> None:
    for routers in run_ranks("moe_dispatch_programs:real_text", tmp_path, "2,1").all_results():
        assert len(routers) == 2
        for found in routers:
            assert found["rows"] > 1500 and found["skew"] > 1.5 and found["worst"] < 1e-3, found


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_odd_cases_pass_on_what_numpy_gives(world_size: int) -> None:
    for case in odd_cases(world_size):
        for result in FakeCluster(world_size).run(partial(run_case, case)):
            assert result.ok, f"{case.name}: {result.message}"


def lose_a_rank(rank: int, tokens: list[Array]) -> list[Array]:
    return [*tokens[:-1], np.zeros_like(tokens[-1])]


def turn_rows(rank: int, tokens: list[Array]) -> list[Array]:
    return [one[::-1] for one in tokens]


@pytest.mark.parametrize("tamper", [lose_a_rank, turn_rows])
def test_damaged_rows_fail_every_case_that_they_touch(tamper: Any) -> None:
    cases = [case for case in odd_cases(4) if case.tokens[-1] > 1 and case.skew != "none" and case.h * case.i > 0]
    assert len(cases) > 8
    for case in cases:
        results = FakeCluster(4, tamper).run(partial(run_case, case))
        assert not all(result.ok for result in results), case.name


def test_plans_say_what_they_are_for() -> None:
    plan = tw.plan_moe_dispatch_matmul(256, 16, 4, 512, 512, nodes=[2, 2], timeline=True)
    numbers = plan.as_dict()
    assert numbers["op"] == "moe_dispatch_matmul"
    roles = {event.role for event in plan.timeline}
    assert roles >= {"count", "route", "push", "pack", "send", "forward", "compute"}
    assert plan.predicted_s >= plan.compute_s
    given = tw.plan_moe_dispatch_matmul(
        256, 16, 4, 512, 512, nodes=[2, 2], plan={**numbers, "block_tokens": 32, "window": 3}
    )
    assert "rounds of 32 tokens a rank" in str(given) and "room for 3 rounds" in str(given)
    placed = tw.plan_moe_dispatch_matmul(64, [0, 0, 0, 1], 2, 64, 64, nodes=[1, 1])
    assert placed.predicted_s > 0
    for wrong, text in (
        ({"k": 0}, "k = 0"),
        ({"e": [0, 4]}, r"experts\[1\] = 4"),
        ({"t": -1}, "tokens"),
        ({"dtype": "fp32"}, "bf16 or fp16"),
    ):
        sizes: dict[str, Any] = {"t": 64, "e": 8, "k": 2, "h": 64, "i": 64, "nodes": [2, 2], **wrong}
        with pytest.raises(tw.InvalidArgument, match=text):
            tw.plan_moe_dispatch_matmul(**sizes)
