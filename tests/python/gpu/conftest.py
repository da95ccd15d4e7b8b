"""Tests on a GPU: ranks are processes that share it under an MPS daemon of their own. Skipped where that cannot be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_places import MOST_RANKS, SHARED_RUNS, launch_of, program_environment, rank_environment, why_not

from rank_run import Outcome, run_ranks
from tilewire.errors import Unavailable
from tilewire.gpu.mps import find_control, private_daemon
from tilewire.virtual_cluster import virtual_layout

RunGpuRanks = Callable[..., list[Any]]


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def mps() -> Iterator[dict[str, str]]:
    """The variables of a client: of the daemon that the environment names, else of a new one."""
    if os.environ.get("CUDA_MPS_PIPE_DIRECTORY"):
        yield {}
        return
    try:
        with private_daemon(MOST_RANKS) as variables:
            yield variables
    except Unavailable as error:
        pytest.skip(f"no MPS daemon: {error}")


def run_at(
    request: pytest.FixtureRequest,
    folder: Path,
    place: str,
    program: str,
    *arguments: str,
    environment: dict[str, str] | None = None,
    **options: Any,
) -> Outcome:
    """Runs a function of `gpu_programs`, or MODULE.FUNCTION, on the ranks of a place."""
    nodes = virtual_layout(place)
    module, _, function = program.rpartition(".")
    variables = {**program_environment(), **(environment or {})}
    if len(nodes) > 1:
        if os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or find_control() is None:
            pytest.skip("a virtual cluster has an MPS daemon of its own, which cannot be had here")
        options["virtual"] = True
    else:
        variables |= rank_environment(nodes[0], request.getfixturevalue("mps")) | (environment or {})
    layout = ",".join(map(str, nodes))
    return run_ranks(f"{module or 'gpu_programs'}:{function}", folder, layout, arguments, variables, **options)


@pytest.fixture
def gpu_ranks(request: pytest.FixtureRequest, tmp_path: Path) -> RunGpuRanks:
    """Runs a program in a launch of its own, and gives what each rank returned."""

    def run(program: str, place: str, *arguments: str, code: int = 0, **options: Any) -> list[Any]:
        outcome = run_at(request, tmp_path, place, program, *arguments, **options)
        assert outcome.code == code, outcome.output
        print(outcome.output)
        return outcome.results

    return run


@pytest.fixture(scope="session")
def shared_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunGpuRanks:
    """What each rank returned of a program of SHARED_RUNS."""
    made: dict[tuple[str, str], Outcome] = {}

    def results(program: str, place: str) -> list[Any]:
        key = launch_of(program), place
        if key not in made:
            alike = [
                name for name, places in SHARED_RUNS.items() if (launch_of(name), place) == key and place in places
            ]
            made[key] = run_at(request, tmp_path_factory.mktemp(place), place, "one_after_the_other", *alike)
            print(made[key].output)
        outcome = made[key]
        assert outcome.code == 0, outcome.output
        found = [rank[program] for rank in outcome.results]
        raised = [f"rank {rank}: {one['raised']}" for rank, one in enumerate(found) if "raised" in one]
        assert not raised, "\n".join(raised)
        return found

    return results
