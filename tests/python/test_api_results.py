"""The API's results over real processes: every shape, layout, kind of input and option gives the bits it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rank_run import run_ranks


def failures(checks: list[dict[str, bool]]) -> list[str]:
    assert all(len(one) > 5 for one in checks)
    return [f"rank {rank}: {name}" for rank, one in enumerate(checks) for name, ok in one.items() if not ok]


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        ("1", {}),
        ("2", {}),
        ("1,1", {"TILEWIRE_EMULATED_PERSONALITY": "relaxed"}),
        ("3,1", {}),
        ("2,3", {"TILEWIRE_EMULATED_PERSONALITY": "srd"}),
        ("1,1,2", {"TILEWIRE_EMULATED_PERSONALITY": "srd", "TILEWIRE_EMULATED_LATENCY_US": "300"}),
    ],
)
def test_odd_shapes_are_right_on_every_layout(layout: str, options: dict[str, str], tmp_path: Path) -> None:
    for result in run_ranks("odd_shapes", tmp_path, layout, environment=options).all_results():
        assert len(result) == 1 and result[0].endswith(" cases, 0 failed"), result
        assert int(result[0].split()[0]) >= 18


def test_inputs_may_lie_in_memory_in_any_way(tmp_path: Path) -> None:
    assert failures(run_ranks("input_layouts", tmp_path, "1,1").all_results()) == []


def test_options_of_a_call(tmp_path: Path) -> None:
    assert failures(run_ranks("options_of_a_call", tmp_path, "2,1").all_results()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"TILEWIRE_TEST_DELAY_US": "2000"},
        {"TILEWIRE_FIRST_EPOCH": str(2**32 - 3), "TILEWIRE_TEST_DELAY_US": "300"},
    ],
)
def test_bits_do_not_depend_on_timing_or_epoch(options: dict[str, str], tmp_path: Path) -> None:
    results: list[dict[str, Any]] = run_ranks("same_bits_again", tmp_path, "2,1", environment=options).all_results()
    assert [one["wrong"] for one in results] == [0, 0, 0]
    assert results[0]["option"] == options.get("TILEWIRE_FIRST_EPOCH", "1")


def test_arena_grows_under_coded_data(tmp_path: Path) -> None:
    assert run_ranks("coded_inputs", tmp_path, "1,1").all_results() == [True, True]
