"""The demo over ranks that are threads: every case passes, and a damaged gather on one rank fails it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fake_cluster import FakeCluster, FakeComm, Tamper
from synthetic_trace import make_trace
from tilewire import demo
from tilewire.demo_cases import Case, CaseResult, odd_cases, real_cases, run_case
from tilewire.encoder_weights import EncoderModel, load_model
from tilewire.linear import Array


@cache
def encoder_model() -> EncoderModel:
    return load_model()


def run_all(world_size: int, folder: Path, cases: list[Case], tamper: Tamper | None = None) -> demo.Summary:
    FakeCluster(world_size, tamper).run(lambda machine: demo.run_rank(machine, folder, cases, encoder_model()))
    return demo.read_results(folder, world_size)


def show(summary: demo.Summary) -> str:
    out = io.StringIO()
    demo.print_summary(summary, Console(file=out, width=150))
    return out.getvalue()


def test_real_layer_passes(tmp_path: Path) -> None:
    summary = run_all(4, tmp_path, [replace(case, calls=1) for case in real_cases(4)])
    assert summary.ok, show(summary)
    # Four ranks, each all 512 rows of its 2048 columns.
    assert [case.compared for case in summary.cases] == [512 * 8192] * 2


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_odd_shapes_pass_at_any_world_size(world_size: int, tmp_path: Path) -> None:
    cases = odd_cases(world_size)
    summary = run_all(world_size, tmp_path, cases)
    assert summary.ok, show(summary)
    for case, result in zip(cases, summary.cases, strict=True):
        expected = sum(case.rows) * (sum(map(sum, case.columns)) + world_size * case.k * case.gathered)
        assert result.compared == expected, case.name


def swap_shards(rank: int, shards: list[Array]) -> list[Array]:
    if rank == 1 and shards[0].shape == shards[1].shape:
        shards[0], shards[1] = shards[1], shards[0]
    return shards


def double_one_element(rank: int, shards: list[Array]) -> list[Array]:
    if rank == 2 and shards[0].size:
        # The last element that is not 0; where all are, there is nothing to double.
        places = np.argwhere(shards[0].astype(np.float32))
        shards[0][tuple(places[-1])] *= 2
    return shards


def swap_rows(rank: int, shards: list[Array]) -> list[Array]:
    if len(shards[0]) > 1:
        shards[0][[0, 1]] = shards[0][[1, 0]]
    return shards


@pytest.mark.parametrize("tamper", [swap_shards, double_one_element, swap_rows])
def test_a_damaged_gather_fails_every_case_that_it_touches(tamper: Tamper) -> None:
    cases = [case for case in odd_cases(4) if min(case.rows[:2]) > 1 and case.k > 0]
    even = [case for case in cases if case.rows[0] == case.rows[1]]
    assert len(cases) > 9 and len(even) > 4
    for case in even if tamper is swap_shards else cases:
        results = FakeCluster(4, tamper).run(partial(run_case, case))
        assert not all(result.ok for result in results), case.name


def test_failure_names_case_rank_and_element(tmp_path: Path) -> None:
    summary = run_all(4, tmp_path, [Case("even", [8] * 4, 64, [[16] * 4])], swap_shards)
    assert not summary.ok
    text = " ".join(show(summary).split())
    assert "FAILED" in text and "rank 1: elements are beyond their tolerance; worst element" in text


def test_wrong_dtype_of_the_result_fails() -> None:
    class WideComm(FakeComm):
        def all_gather_matmul(self, *arguments, **options):  # type: ignore[no-untyped-def]
            return super().all_gather_matmul(*arguments, **options).astype(np.float32)

    cluster = FakeCluster(1)
    result = run_case(Case("wide", [4], 8, [[8]]), WideComm(cluster, 0))
    assert not result.ok and "dtype float32, expected bfloat16" in result.message


def test_rank_that_left_no_results_is_named(tmp_path: Path) -> None:
    run_all(2, tmp_path, [Case("even", [8] * 2, 64, [[16] * 2])])
    (tmp_path / "rank1.json").unlink()
    with pytest.raises(FileNotFoundError, match="no results of rank 1"):
        demo.read_results(tmp_path, 2)


def test_encoder_that_differs_on_one_rank_fails_the_demo(tmp_path: Path) -> None:
    run_all(2, tmp_path, [Case("even", [8] * 2, 64, [[16] * 2])])
    content = json.loads((tmp_path / "rank1.json").read_text())
    content["encoder"]["difference"] = 0.1
    (tmp_path / "rank1.json").write_text(json.dumps(content))
    summary = demo.read_results(tmp_path, 2)
    assert not summary.ok and "NOT equal" in show(summary)


def test_no_case_at_all_is_no_success(tmp_path: Path) -> None:
    assert not run_all(1, tmp_path, []).ok


def test_timeline_files_of_the_first_case(tmp_path: Path) -> None:
    case = CaseResult("layer", "(4x128) x 2048 x 8192 bfloat16", True, "ok", 1, 0.001, {}, make_trace())
    paths = demo.write_timeline(demo.Summary([case], [], 4), tmp_path)
    assert [path.name for path in paths] == ["events.json", "perfetto.json", "timeline.svg", "timeline.png"]
    assert all(path.stat().st_size > 1000 for path in paths)
