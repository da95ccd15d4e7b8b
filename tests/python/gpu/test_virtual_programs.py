"""The scenarios of tests/gpu/gpu_ranks_test.cc that kill nobody, as programs under `tilewire run --virtual`."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from tilewire.gpu.mps import find_control
from tilewire.launcher import Launch, launch

PROGRAM = Path(os.environ.get("GPU_TEST_BUILD", "build/dev"), "tests/gpu/gpu_ranks_test")


@pytest.mark.parametrize(
    ("scenario", "personality"),
    [
        ("ag_gemm, nodes 2x2, lives", "rc"),
        ("ag_gemm, nodes 2x2, srd", "srd"),
        ("ag_gemm, nodes 2x2, mismatch", "rc"),
        ("ag_gemm, nodes 2x2, refused", "rc"),
    ],
)
def test_ranks_in_cpp(scenario: str, personality: str) -> None:
    if not PROGRAM.exists() or find_control() is None or os.environ.get("CUDA_MPS_PIPE_DIRECTORY"):
        pytest.skip(f"{PROGRAM} is not built, or an MPS daemon of its own cannot be had here")
    said = io.StringIO()
    environment = {"TILEWIRE_EMULATED_PERSONALITY": personality, "TILEWIRE_ARENA_INITIAL_BYTES": "2MiB"}
    plan = Launch([str(PROGRAM), "rank", scenario], [2, 2], environment, grace_s=15, virtual=True)
    code = launch(plan, said, said)
    assert code == 0 and said.getvalue().count("0 claims are not true") == 4, said.getvalue()
