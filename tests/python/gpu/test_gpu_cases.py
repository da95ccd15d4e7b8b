"""Faults that systems of this sort have had in the field, on GPU ranks: docs/cases.md names these tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_claims import expect_none_wrong
from gpu_places import places_of, rank_environment


@pytest.mark.parametrize("place", places_of("gpu_case_programs.read_at_once"))
def test_a_result_is_whole_for_what_reads_it_at_once(place: str, shared_run: Any) -> None:
    expect_none_wrong(shared_run("gpu_case_programs.read_at_once", place))


@pytest.mark.parametrize("place", places_of("gpu_case_programs.filled_memory"))
def test_memory_that_torch_fills_is_filled_before_the_call(place: str, shared_run: Any) -> None:
    expect_none_wrong(shared_run("gpu_case_programs.filled_memory", place))


@pytest.mark.parametrize("place", places_of("gpu_case_programs.graphs_in_turn"))
def test_graphs_of_one_handle_replay_in_turn(place: str, shared_run: Any) -> None:
    expect_none_wrong(shared_run("gpu_case_programs.graphs_in_turn", place))


@pytest.mark.parametrize("place", places_of("gpu_case_programs.opposite_orders"))
def test_handles_in_opposite_orders_are_a_mismatch(place: str, shared_run: Any) -> None:
    for rank, found in enumerate(shared_run("gpu_case_programs.opposite_orders", place)):
        assert found["error"] == "Mismatch" and found["next"] == "Mismatch", f"rank {rank}: {found}"
        assert "K = 256" in found["text"] and "K = 72" in found["text"], f"rank {rank}: {found}"
        assert found["after"] == "", f"rank {rank}: {found}"


@pytest.mark.parametrize("place", places_of("gpu_case_programs.deep_and_huge"))
def test_sizes_beyond_32_bits(place: str, shared_run: Any) -> None:
    expect_none_wrong(shared_run("gpu_case_programs.deep_and_huge", place))


@pytest.mark.parametrize("place", places_of("gpu_case_programs.lives"))
def test_many_lives_leave_nothing_behind(place: str, shared_run: Any) -> None:
    expect_none_wrong(shared_run("gpu_case_programs.lives", place))


def test_one_hardware_queue_and_memory_in_expandable_segments(gpu_ranks: Any) -> None:
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    expect_none_wrong(gpu_ranks("gpu_case_programs.queues", "2", environment=environment))


def test_a_process_that_does_not_close_ends_soon_with_its_own_exit_code(gpu_ranks: Any) -> None:
    assert gpu_ranks("gpu_case_programs.leaves_early", "2", code=7, limit_s=60) == [None, None]


def test_two_jobs_on_one_gpu_do_not_disturb_each_other(mps: dict[str, str], tmp_path: Path) -> None:
    """Each with half of the GPU's SMs, and other data."""
    environment = {**os.environ, **rank_environment(4, mps), "TILEWIRE_DEADLINE_S": "40"}
    script = str(Path(__file__).parents[1] / "rank_run.py")
    jobs = []
    for job in range(2):
        folder = tmp_path / str(job)
        folder.mkdir()
        words = ["-m", "tilewire", "run", "-n", "2", script, "gpu_case_programs:one_of_two_jobs", str(folder), str(job)]
        jobs.append(
            subprocess.Popen(
                [sys.executable, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    for job in jobs:
        output, _ = job.communicate(timeout=90)
        assert job.returncode == 0 and output.count("values: all right") == 2, output
