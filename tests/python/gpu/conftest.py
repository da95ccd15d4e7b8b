"""Tests on a GPU: ranks are processes that share it under an MPS daemon of their own. Skipped where that cannot be."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rank_run import run_ranks
from tilewire import _core
from tilewire.errors import Unavailable
from tilewire.gpu.driver import NoDriver, gpus
from tilewire.gpu.mps import private_daemon, shares

RunGpuRanks = Callable[..., list[Any]]
MOST_RANKS = 3


def why_not() -> str:
    if not _core.has_gpu_ranks():
        return "this build of tilewire has no CUDA part"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    try:
        return "" if gpus() else "CUDA sees no GPU"
    except NoDriver as error:
        return f"no GPU: {error}"


def rank_environment(ranks: int, mps: dict[str, str]) -> dict[str, str]:
    """The variables of ranks of one node that share GPU 0."""
    return {
        "TILEWIRE_DEVICE": "cuda",
        "TILEWIRE_CUDA_DEVICE": "0",
        "TILEWIRE_SMS": str(shares(gpus()[0].sms, ranks)),
        "TILEWIRE_ARENA_INITIAL_BYTES": "2MiB",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])),
        **mps,
    }


@pytest.fixture(scope="session")
def mps() -> Iterator[dict[str, str]]:
    """The variables of a client: of the daemon that the environment names, else of a new one."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    if os.environ.get("CUDA_MPS_PIPE_DIRECTORY"):
        yield {}
        return
    try:
        with private_daemon(MOST_RANKS) as variables:
            yield variables
    except Unavailable as error:
        pytest.skip(f"no MPS daemon: {error}")


@pytest.fixture
def gpu_ranks(mps: dict[str, str], tmp_path: Path) -> RunGpuRanks:
    """Runs a function of `gpu_programs` on ranks of one node that share GPU 0, and gives what each returned."""

    def run(program: str, ranks: int, *arguments: str, **options: Any) -> list[Any]:
        environment = {**rank_environment(ranks, mps), **options.pop("environment", {})}
        expected_code = options.pop("code", 0)
        outcome = run_ranks(f"gpu_programs:{program}", tmp_path, str(ranks), arguments, environment, **options)
        assert outcome.code == expected_code, outcome.output
        print(outcome.output)
        return outcome.results

    return run
