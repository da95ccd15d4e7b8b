"""Calls of Python on GPU ranks: values, streams, graphs, and errors with a name on all ranks."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_claims import SOON_S, expect_none_wrong, expect_of_cupy, expect_refusals
from gpu_places import places_of


@pytest.mark.parametrize("place", places_of("gpu_value_programs.values"))
def test_values_of_every_kind_of_call(place: str, shared_run: Any) -> None:
    expect_none_wrong(shared_run("gpu_value_programs.values", place))


@pytest.mark.parametrize("place", places_of("gpu_value_programs.odd_shapes"))
def test_odd_shapes_of_all_operations(place: str, shared_run: Any) -> None:
    results = shared_run("gpu_value_programs.odd_shapes", place)
    assert all(len(found) >= 17 for found in results), results
    expect_none_wrong(results)


@pytest.mark.parametrize("place", places_of("gpu_value_programs.same_bits_again"))
def test_bits_do_not_depend_on_timing_or_epoch(place: str, shared_run: Any) -> None:
    expect_none_wrong(shared_run("gpu_value_programs.same_bits_again", place))


@pytest.mark.parametrize("place", places_of("streams"))
def test_calls_are_in_the_order_of_their_streams(place: str, shared_run: Any) -> None:
    expect_none_wrong(shared_run("streams", place), numbers=("us to enqueue",))


@pytest.mark.parametrize("place", places_of("graphs"))
def test_graphs_replay_with_inputs_changed_in_place(place: str, shared_run: Any) -> None:
    for rank, found in enumerate(shared_run("graphs", place)):
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
    "fp32": ["a has elements of 32 bits", "bf16 or fp16 on a GPU", "convert a and b", "out_dtype"],
    "int8": ["a is torch.int8"],
    "dtypes differ": ["a is bf16, b is fp16"],
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


@pytest.mark.parametrize("place", places_of("refusals"))
def test_calls_that_all_ranks_refuse_leave_the_communicator_usable(place: str, shared_run: Any) -> None:
    expect_refusals(shared_run("refusals", place), REFUSALS, OTHER_CLASSES)


@pytest.mark.parametrize("place", places_of("timeline"))
def test_a_timeline_shows_what_kernels_did(place: str, shared_run: Any) -> None:
    roles = ["compute", "forward", "push", "send"] if "x" in place else ["compute", "push"]
    for rank, found in enumerate(shared_run("timeline", place)):
        assert found["wrong"] == "" and found["in order"] and found["later"] == 0, f"rank {rank}: {found}"
        assert found["roles"] == roles, f"rank {rank}: {found}"


DISAGREEMENTS: dict[str, list[str]] = {
    "K": ["K = 256", "K = 248"],
    "refused by one": ["a has shape [256]"],
    "host tensor on one": ["a is not in GPU memory"],
    "fp32 on one": ["a has elements of 32 bits"],
}


@pytest.mark.parametrize("place", places_of("disagreements"))
def test_disagreement_is_an_error_of_all_ranks(place: str, shared_run: Any) -> None:
    results = shared_run("disagreements", place)
    for rank, found in enumerate(results):
        on_cpu = found.pop("GPU tensor on CPU ranks")
        assert on_cpu["error"] == "InvalidArgument" and "a is not in host memory" in on_cpu["text"], on_cpu
        no_stream = found.pop("stream on CPU ranks")
        assert no_stream["error"] == "InvalidArgument" and "takes no stream" in no_stream["text"], no_stream
        assert found.pop("CPU ranks") == "cpu"
        assert sorted(found) == sorted(DISAGREEMENTS)
        for name, pieces in DISAGREEMENTS.items():
            got = found[name]
            last = rank == len(results) - 1
            wanted = "Mismatch" if name == "K" else "InvalidArgument" if last else "Refused"
            assert got["error"] == wanted, f"rank {rank}, {name}: {got}"
            assert all(piece in got["text"] for piece in pieces), f"rank {rank}, {name}: {got}"
            assert got["seconds"] < SOON_S and got["later"] and got["check"], f"rank {rank}, {name}: {got}"


@pytest.mark.parametrize("place", ["3", "2x2"])
def test_a_rank_that_dies_is_named_and_results_are_nan(place: str, gpu_ranks: Any) -> None:
    *results, dead = gpu_ranks("dead_rank", place, code=128 + 9, grace_s=60)
    assert dead is None
    for rank, found in enumerate(results):
        named = f"rank {len(results)}"
        assert found["error"] == "PeerLost" and named in found["text"], f"rank {rank}: {found}"
        assert found["seconds"] < SOON_S and found["NaN"] and found["next"] == "PeerLost", f"rank {rank}: {found}"
        assert found["close"]["error"] == "" and found["close"]["seconds"] < 5, f"rank {rank}: {found}"


@pytest.mark.parametrize("place", ["2", "2x2"])
def test_launches_that_block(place: str, gpu_ranks: Any) -> None:
    expect_none_wrong(gpu_ranks("blocking_launches", place, environment={"CUDA_LAUNCH_BLOCKING": "1"}))


@pytest.mark.parametrize("place", places_of("cupy_arrays"))
def test_cupy_arrays(place: str, shared_run: Any) -> None:
    expect_of_cupy(shared_run("cupy_arrays", place))


@pytest.mark.parametrize("place", places_of("compiled"))
def test_torch_compile_breaks_its_graph_at_a_call(place: str, shared_run: Any) -> None:
    expect_none_wrong(shared_run("compiled", place))


@pytest.mark.parametrize("place", places_of("latency:5"))
def test_a_call_costs_python_little(place: str, shared_run: Any) -> None:
    for found in shared_run("latency:5", place):
        print(found)
        assert found["all_gather_matmul"] < 200, found
