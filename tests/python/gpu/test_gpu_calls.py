"""Calls of Python on GPU ranks: values, streams, graphs, and errors with a name on all ranks."""

from __future__ import annotations

from typing import Any

import pytest

SOON_S = 15


def expect_none_wrong(results: list[dict[str, Any]], numbers: tuple[str, ...] = ()) -> None:
    for rank, found in enumerate(results):
        wrong = {name: text for name, text in found.items() if text and name not in numbers}
        assert not wrong, f"rank {rank}: {wrong}"


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_values_of_every_kind_of_call(ranks: int, gpu_ranks: Any) -> None:
    expect_none_wrong(gpu_ranks("values", ranks))


def test_calls_are_in_the_order_of_their_streams(gpu_ranks: Any) -> None:
    expect_none_wrong(gpu_ranks("streams", 2), numbers=("us to enqueue",))


@pytest.mark.parametrize("ranks", [2, 3])
def test_graphs_replay_with_inputs_changed_in_place(ranks: int, gpu_ranks: Any) -> None:
    for rank, found in enumerate(gpu_ranks("graphs", ranks)):
        refused = found.pop("capture of a new shape")
        assert refused["error"] == "InvalidArgument" and "before the capture" in refused["text"], refused
        if rank == 0:
            alone = found.pop("refusal in a capture")
            assert alone["error"] == "InvalidArgument" and "a has shape [64]" in alone["text"], alone
        expect_none_wrong([found])


REFUSALS: dict[str, list[str]] = {
    "host tensor": ["a is not in GPU memory", "a is in host memory", "cuda:0"],
    "numpy array": ["a is not in GPU memory", "a is in host memory"],
    "host weight": ["b is not in GPU memory"],
    "host bias": ["bias is not in GPU memory"],
    "host out": ["out is not in GPU memory"],
    "a list": ["a is a list"],
    "fp32": ["a has elements of 32 bits", "bf16 or fp16 on a GPU"],
    "fp32 result": ["out has another dtype than a", "fp32"],
    "int8": ["a is torch.int8"],
    "dtypes differ": ["a is bf16, b is fp16"],
    "gathered rows": ["return_gathered"],
    "K = 0": ["k is 0"],
    "b as [N, K]": ["looks like a weight stored as [N, K]", "pass b.T"],
    "K differs": ["b does not fit a"],
    "requires grad": ["a requires grad"],
    "out overlaps a": ["out overlaps a"],
    "out has the wrong shape": ["out is [5, 320]"],
    "out by DLPack": ["out is read-only"],
    "stream is a word": ["stream is a str"],
    "result is too large": ["does not fit into memory"],
    "empty: no room": ["USER_ARENA_RESERVE_BYTES"],
}
OTHER_CLASSES = {"empty: no room": "ResourceError", "result is too large": "ResourceError"}


def test_calls_that_all_ranks_refuse_leave_the_communicator_usable(gpu_ranks: Any) -> None:
    for rank, found in enumerate(gpu_ranks("refusals", 2)):
        assert found.pop("after") == ""
        assert sorted(found) == sorted(REFUSALS)
        for name, pieces in REFUSALS.items():
            got = found[name]
            assert got["error"] == OTHER_CLASSES.get(name, "InvalidArgument"), f"rank {rank}, {name}: {got}"
            assert all(piece in got["text"] for piece in pieces), f"rank {rank}, {name}: {got}"


def test_a_timeline_shows_what_kernels_did(gpu_ranks: Any) -> None:
    for rank, found in enumerate(gpu_ranks("timeline", 2)):
        assert found["wrong"] == "" and found["in order"] and found["later"] == 0, f"rank {rank}: {found}"
        assert found["roles"] == ["compute", "push"], f"rank {rank}: {found}"


DISAGREEMENTS: dict[str, list[str]] = {
    "K": ["K = 256", "K = 248"],
    "refused by one": ["a has shape [256]"],
    "host tensor on one": ["a is not in GPU memory"],
    "fp32 on one": ["a has elements of 32 bits"],
}


def test_disagreement_is_an_error_of_all_ranks(gpu_ranks: Any) -> None:
    results = gpu_ranks("disagreements", 2)
    for rank, found in enumerate(results):
        on_cpu = found.pop("GPU tensor on CPU ranks")
        assert on_cpu["error"] == "InvalidArgument" and "a is not in host memory" in on_cpu["text"], on_cpu
        no_stream = found.pop("stream on CPU ranks")
        assert no_stream["error"] == "InvalidArgument" and "takes no stream" in no_stream["text"], no_stream
        assert found.pop("CPU ranks") == "cpu"
        assert sorted(found) == sorted(DISAGREEMENTS)
        for name, pieces in DISAGREEMENTS.items():
            got = found[name]
            wanted = "Mismatch" if name == "K" else "InvalidArgument" if rank == 1 else "Refused"
            assert got["error"] == wanted, f"rank {rank}, {name}: {got}"
            assert all(piece in got["text"] for piece in pieces), f"rank {rank}, {name}: {got}"
            assert got["seconds"] < SOON_S and got["later"] and got["check"], f"rank {rank}, {name}: {got}"


def test_a_rank_that_dies_is_named_and_results_are_nan(gpu_ranks: Any) -> None:
    results = gpu_ranks("dead_rank", 3, code=128 + 9, grace_s=60)
    for rank, found in enumerate(results[:2]):
        assert found["error"] == "PeerLost" and "rank 2" in found["text"], f"rank {rank}: {found}"
        assert found["seconds"] < SOON_S and found["NaN"] and found["next"] == "PeerLost", f"rank {rank}: {found}"
        assert found["close"]["error"] == "" and found["close"]["seconds"] < 5, f"rank {rank}: {found}"


def test_launches_that_block(gpu_ranks: Any) -> None:
    expect_none_wrong(gpu_ranks("blocking_launches", 2, environment={"CUDA_LAUNCH_BLOCKING": "1"}))


def test_cupy_arrays(gpu_ranks: Any) -> None:
    results = gpu_ranks("cupy_arrays", 2)
    if "absent" in results[0]:
        pytest.skip("CuPy is not installed")
    expect_none_wrong(results)


def test_torch_compile_breaks_its_graph_at_a_call(gpu_ranks: Any) -> None:
    expect_none_wrong(gpu_ranks("compiled", 2))


def test_a_call_costs_python_little(gpu_ranks: Any) -> None:
    for found in gpu_ranks("latency", 2, "5"):
        print(found)
        assert found["all_gather_matmul"] < 200, found
