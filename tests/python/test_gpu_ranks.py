"""GPU ranks as processes over the fake driver: joining, which GPU a rank gets, and refusals on all ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tilewire as tw
from rank_run import run_ranks
from tilewire import _core

FOLDER = Path(os.environ.get("FAKE_GPU_FOLDER", Path(__file__).resolve().parents[2] / "build/dev/fake_gpu"))
needs_fake = pytest.mark.skipif(
    not (_core.has_gpu_ranks() and (FOLDER / "libcuda.so.1").exists()),
    reason=f"no CUDA part, or no fake driver in {FOLDER}",
)
SOON_S = 20


def run(program: str, tmp_path: Path, *arguments: str) -> list[dict[str, Any]]:
    # Its own folder first: the launcher runs in this process, which must not find the fake one.
    library_path = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {"LD_LIBRARY_PATH": library_path}
    outcome = run_ranks(f"gpu_rank_programs:{program}", tmp_path, "2", arguments, environment)
    found: list[dict[str, Any]] = outcome.all_results()
    return found


@needs_fake
def test_a_rank_gets_the_gpu_that_is_said_or_chosen_or_its_turn(tmp_path: Path) -> None:
    for rank, found in enumerate(run("places", tmp_path, str(tmp_path))):
        own, other = f"cuda:{rank}", f"cuda:{1 - rank}"
        assert found.pop("cpu") == ["cpu", "cpu", "-1", "none"]
        assert found.pop("in turn") == [own, "cuda", "-1", "none"]
        assert found.pop("chosen in torch") == [other, "cuda", str(1 - rank), "none"]
        assert found.pop("variable") == [other, "cuda", str(1 - rank), "none"]
        assert found.pop("argument over variable") == ["cpu", "cpu", "-1", "none"]
        for name in ("cuda_device", "number behind the device", "variable of the number"):
            assert found.pop(name) == [own, "cuda", str(rank), "none"], name
        refused = {
            "bad device": ("InvalidArgument", ["device", "gpu", "cpu"]),
            "two numbers": ("InvalidArgument", ["device = cuda:1, cuda_device = 0"]),
            "no such GPU": ("Unavailable", ["CUDA device 7"]),
        }
        for name, (error, pieces) in refused.items():
            got = found.pop(name)
            assert got["error"] in (error, "Refused") and got["seconds"] < SOON_S, f"{name}: {got}"
            assert all(piece in got["text"] for piece in pieces), f"{name}: {got}"
        assert not found


REFUSED: dict[str, list[str]] = {
    "numpy": ["a is not in GPU memory", "host memory"],
    "host tensor": ["a is not in GPU memory"],
    "other GPU": ["a is on another GPU"],
    "weight on another GPU": ["b is on another GPU"],
    "DLPack on another GPU": ["a is on another GPU"],
    "stream of another GPU": ["stream is of another GPU"],
    "fp32": ["a has elements of 32 bits", "convert a and b"],
    "sums of fp32": ["a has elements of 32 bits", "convert a and b"],
    "rows is too short": ["rows = [8]", "2 ranks"],
    "rows exchanged": ["b is on another GPU"],
    "plan of CPU ranks": ["plan"],
    "out has the wrong shape": ["out is [15, 24]", "must be [16, 24]"],
    "out overlaps a": ["out overlaps a"],
    "queries of the host": ["q is not in GPU memory"],
    "out of another shape": ["out has the wrong shape", "[1, 8, 2, 64]"],
    "handle": [],
    "x has four dimensions": ["x has shape [1, 8, 2, 64]", "must have 2"],
}


@needs_fake
def test_what_all_ranks_refuse_is_named_and_the_next_call_is_tried(tmp_path: Path) -> None:
    for rank, found in enumerate(run("calls", tmp_path)):
        for name, pieces in REFUSED.items():
            got = found.pop(name)
            assert got["error"] == "InvalidArgument", f"rank {rank}, {name}: {got}"
            assert all(piece in got["text"] for piece in pieces), f"rank {rank}, {name}: {got}"
        assert found.pop("arena") == [f"cuda:{rank}", [3, 16], "torch.bfloat16"]
        assert found.pop("arena, freed") == "Tensor"
        assert "USER_ARENA_RESERVE_BYTES" in found.pop("arena, no room")["text"]
        assert found.pop("arena outlives it") is True
        none = found.pop("no kernel")
        assert none["error"] and "CUDA" in none["text"], none
        assert found.pop("later")["error"] == none["error"]
        assert not found


@needs_fake
def test_what_one_rank_refuses_all_hear(tmp_path: Path) -> None:
    results = run("one_refuses", tmp_path)
    pieces = {"host tensor": "a is not in GPU memory", "fp32": "a has elements of 32 bits", "stream": "stream is a str"}
    for rank, found in enumerate(results):
        for name, piece in pieces.items():
            got = found[name]
            assert got["error"] == ("InvalidArgument" if rank == 1 else "Refused"), f"rank {rank}, {name}: {got}"
            assert bool(got["later"]) or rank == 1, "the news may be on its way"
            assert piece in got["text"] and got["seconds"] < SOON_S, f"rank {rank}, {name}: {got}"
    # A refusal in a capture stays with its rank, and does no harm there.
    assert results[1]["in a capture"]["error"] == "InvalidArgument" and results[1]["in a capture"]["later"] == ""
    assert results[0]["in a capture"]["error"] not in ("", "Refused"), results[0]


@pytest.mark.skipif(_core.has_gpu_ranks(), reason="this build has the CUDA part")
def test_a_package_without_cuda_says_how_to_get_one() -> None:
    with pytest.raises(tw.Unavailable, match=r"built without CUDA.*cmake\.define\.TILEWIRE_CUDA=ON"):
        tw.init(rank=0, world_size=1, device="cuda")
