"""Arrays of GPU ranks, up to the compiled core: their library and stream, what is copied, what is refused by name."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fake_torch
import tilewire as tw
from fake_torch import Foreign, Stream, bfloat16, float16, float32, int8, int32, int64, placed, tensor
from tilewire import InvalidArgument, ResourceError, Unavailable
from tilewire.calling import calling
from tilewire.gpu.imported import chosen_gpu
from tilewire.gpu.memory import GpuMemory
from tilewire.gpu.rank import GpuRank
from tilewire.gpu.views import GpuView, is_n_major
from tilewire.moe_dispatch import _Operands as Dispatch
from tilewire.operands import Operands
from tilewire.reduction import ReductionCall
from tilewire.weight_calls import WeightCall

BF16 = fake_torch._NUMPY[bfloat16]


@pytest.fixture
def torch() -> Iterator[Any]:
    before = sys.modules.get("torch")
    yield fake_torch.install()
    sys.modules.pop("torch")
    if before is not None:
        sys.modules["torch"] = before


@pytest.fixture
def rank() -> GpuRank:
    core: Any = SimpleNamespace(gpu=0, world_size=2, is_idle=False, waits=0)
    core.synchronize = lambda: setattr(core, "waits", core.waits + 1)
    return GpuRank(core)


class Ran:
    """In the place of the compiled call: notes what it was given."""

    def __init__(self, operands: Operands, rank: GpuRank, key: Any = "same") -> None:
        self.call = WeightCall(SimpleNamespace(), operands)
        self.call.settle("op", key, 2 * operands.a.shape[0])
        self.streams: list[Any] = []
        self.asked = self.early = 0
        operands.memory.run(self.call, self._run)

    def _run(self, arguments: Any, make_results: Callable[[int], Any], stream: int, results: Any = None) -> Any:
        self.streams.append(stream)
        self.early += results is not None
        if results is None:
            self.asked += 1
            make_results(2 * self.call.operands.a.shape[0])


def operands(rank: GpuRank, a: Any, b: Any, stream: Any = None, **options: Any) -> Operands:
    return Operands(GpuMemory(rank, a, stream), a, b, **options)


def test_tensors_are_taken_where_they_lie(torch: Any, rank: GpuRank) -> None:
    a, b = tensor((6, 16)), tensor((16, 24))
    o = operands(rank, a, b)
    assert (o.a.address, o.a.strides, o.a.dtype) == (a.data_ptr(), (16, 1), "bf16")
    assert (o.b[0].address, o.b[0].strides) == (b.data_ptr(), (24, 1))
    o = operands(rank, a[1:3], tensor((24, 16)).T)
    assert o.a.address == a.data_ptr() + 32 and o.b[0].strides == (1, 16)
    assert torch.allocations == [] and torch.fills == []


def test_results_are_tensors_of_the_gpu_with_rows_that_a_kernel_can_write(torch: Any, rank: GpuRank) -> None:
    with pytest.warns(RuntimeWarning, match=r"b\[1\]"):
        o = operands(rank, tensor((6, 16)), [tensor((16, 24)), tensor((16, 5))])
    o.make_results(12)
    wide, narrow = o.result()
    assert wide.shape == (12, 24) and wide.stride() == (24, 1) and wide.get_device() == 0
    assert narrow.shape == (12, 5) and narrow.stride() == (8, 1)


def test_what_a_kernel_cannot_follow_is_copied_and_told(torch: Any, rank: GpuRank) -> None:
    a, b = tensor((6, 5)), tensor((5, 7))
    a.array[...] = np.arange(30).reshape(6, 5)
    with pytest.warns(RuntimeWarning, match=r"a \[6, 5\].*is copied in each such call") as told:
        o = operands(rank, a, b)
    assert {one.filename for one in told} == {__file__}, "the place is that of the caller"
    assert o.a.address != a.data_ptr() and o.a.strides == (8, 1) and o.a.address % 16 == 0
    assert (o.a.owner.array == a.array).all()
    assert o.b[0].strides == (8, 1) and len(torch.allocations) == len(torch.fills) == 2
    with pytest.warns(RuntimeWarning, match="b "):
        o = operands(rank, tensor((6, 5))[:1], tensor((7, 5)).T)  # one row needs no pitch
    assert o.b[0].strides == (1, 8) and o.b[0].shape == (5, 7)


def test_misplaced_and_broadcast_operands_are_copied(torch: Any, rank: GpuRank) -> None:
    good = tensor((8, 16))
    flat = fake_torch.Tensor(np.broadcast_to(placed((1, 16), BF16), (8, 16)))
    for a in (good[:, 1:9], flat, good[::-1], good[:, ::2]):
        with pytest.warns(RuntimeWarning):
            o = operands(rank, a, tensor((a.shape[1], 8)))
        assert o.a.owner is not a and o.a.strides[1] == 1 and o.a.strides[0] > 0


def test_weights_of_a_list_are_brought_into_one_order(torch: Any, rank: GpuRank) -> None:
    first, second = tensor((16, 24)), tensor((24, 16)).T
    none, one = tensor((16, 0)), tensor((16, 1))
    with pytest.warns(RuntimeWarning):
        o = operands(rank, tensor((6, 16)), [none, first, second, one])
    assert [is_n_major(view) for view in o.b] == [True] * 4
    with pytest.warns(RuntimeWarning):
        o = operands(rank, tensor((6, 16)), [none, second, first, one])
    assert [is_n_major(view) for view in o.b] == [False] * 4
    assert o.b[1].address == second.data_ptr() and o.b[3].address == one.data_ptr()


def test_bias_is_taken_as_it_is_or_becomes_fp32(torch: Any, rank: GpuRank) -> None:
    a, b = tensor((6, 16)), tensor((16, 24))
    for dtype, kept in ((bfloat16, "bf16"), (float32, "fp32"), (float16, "fp32")):
        bias = tensor((24,), dtype)
        o = operands(rank, a, b, bias=bias)
        assert o._bias_dtype == kept and (o._bias[0].address == bias.data_ptr()) == (dtype is not float16)  # type: ignore[index]
    o = operands(rank, a, [b, b, b], bias=[tensor((24,), float32), None, tensor((24,), bfloat16)])
    assert o._bias_dtype == "fp32" and [v and v.dtype for v in o._bias or []] == ["fp32", None, "fp32"]
    o = operands(rank, a, b, bias=tensor((48,), float32)[::2])
    assert o._bias[0].strides == (1,)  # type: ignore[index]


def test_out_is_written_in_place_unless_a_kernel_would_write_beside_it(torch: Any, rank: GpuRank) -> None:
    a, b = tensor((6, 16)), tensor((16, 24))
    out = tensor((12, 24))
    o = operands(rank, a, b, out=out)
    Ran(o, rank)
    assert o.result() is out and o._out_views[0].address == out.data_ptr() and torch.fills == []
    narrow = tensor((12, 8))[:, :7]
    o = operands(rank, a, b[:, :7].T.T, out=narrow)
    view = o._out_views[0]
    assert view.address != narrow.data_ptr() and view.strides == (8, 1)
    view.owner.array[...] = 3
    Ran(o, rank)
    assert o.result() is narrow and (narrow.array == 3).all() and torch.fills[-1] == 0
    o = operands(rank, a, b, out=tensor((24, 12)).T)  # the core says why not
    assert o._out_views[0].strides == (1, 12)


def test_rows_of_results_are_as_long_as_their_own_type_asks(torch: Any, rank: GpuRank) -> None:
    a, b = tensor((6, 16)), tensor((16, 24))[:, :9]
    for dtype, pitch in (("bf16", 16), ("fp16", 16), ("fp32", 12)):
        o = operands(rank, a, b, out_dtype=dtype)
        Ran(o, rank)
        assert (o.result().shape, o.result().stride()) == ((12, 9), (pitch, 1)), dtype
    whole = tensor((12, 12), float32)
    o = operands(rank, a, tensor((16, 16))[:, :12], out=whole)
    assert o.out_dtype == "fp32" and o._out_views[0].address == whole.data_ptr()
    o = operands(rank, a, tensor((16, 16))[:, :10], out=whole[:, :10])
    assert o._out_views[0].address != whole.data_ptr(), "what lies beside it is in the last 16 bytes of a row"
    gathered = o.new_like_a("the gathered rows", 12)
    assert gathered.shape == (12, 16) and str(gathered.dtype) == "torch.bfloat16"


def test_the_call_runs_on_the_current_stream_or_the_one_given(torch: Any, rank: GpuRank) -> None:
    a, b = tensor((6, 16)), tensor((16, 24))
    ran = Ran(operands(rank, a, b), rank)
    assert (ran.streams, ran.asked, ran.early) == ([0], 1, 0)
    with torch.cuda.stream(Stream(77)):
        assert Ran(operands(rank, a, b), rank).streams == [77]
    assert torch.recorded == []
    for given in (
        Stream(99),
        99,
        SimpleNamespace(ptr=99, device_id=-1),
        SimpleNamespace(__cuda_stream__=lambda: (0, 99)),
    ):
        torch.recorded.clear()
        torch.allocations.clear()
        ran = Ran(operands(rank, a, b, stream=given), rank)
        assert ran.streams == [99] and torch.allocations == [99], "results belong to the stream that writes them"
        assert torch.recorded == [(a, 99), (b, 99)], "inputs of another stream are kept for this one"
        assert torch.cuda.current == 0


def test_the_default_stream_is_one_like_any_other(torch: Any, rank: GpuRank) -> None:
    a, b = tensor((6, 16)), tensor((16, 24))
    ran = Ran(operands(rank, a, b), rank)  # the core asks for the results on a thread of its own
    assert ran.streams == [0] and torch.allocations == [0], "the results belong to another stream than the call"
    torch.allocations.clear()
    with torch.cuda.stream(Stream(77)), pytest.warns(RuntimeWarning):
        ran = Ran(operands(rank, tensor((6, 5)), tensor((5, 8)), stream=0), rank)
    assert ran.streams == [0] and set(torch.allocations) == {0} and torch.fills == [0], "a copy on another stream"
    assert {stream for _, stream in torch.recorded} == {0}, "inputs are kept for another stream"


def test_a_call_that_was_made_before_has_its_results_early(torch: Any, rank: GpuRank) -> None:
    a, b = tensor((6, 16)), tensor((16, 24))
    for key, early in (("one", 0), ("one", 1), ("other", 0), ("one", 1), ("other", 1)):
        ran = Ran(operands(rank, a, b), rank, key)
        assert (ran.early, ran.asked) == (early, 1 - early), key
        assert ran.call.result().shape == (12, 24)
    assert Ran(operands(rank, a[:4], b), rank, "one").early == 0
    assert Ran(operands(rank, a, tensor((24, 16)).T), rank, "one").early == 0
    assert Ran(operands(rank, a, tensor((16, 24))), rank, "one").early == 1


def test_the_call_behind_a_refusal_may_wait_and_so_does_not_run_on_the_callers_thread(
    torch: Any, rank: GpuRank
) -> None:
    arrays = (tensor((6, 16)), tensor((16, 24)), None, None)

    def ran() -> tuple[int, bool]:
        again = again_of(rank, *arrays)
        early = Ran(operands(rank, *arrays[:2]), rank).early
        return early, again.repeat is not None

    rank.note_repeat(again_of(rank, *arrays).key, SimpleNamespace())  # type: ignore[arg-type]
    ran()
    assert ran() == (1, True)
    comm = tw.Communicator(refusing_core())
    comm._gpu_rank = rank
    for refuse in (lambda: refused_by_checks(comm), lambda: comm._tell_lost_call(InvalidArgument("of the core"))):
        refuse()
        torch.cuda.is_captured = True
        assert ran() == (1, True), "what is captured waits for nobody"
        refused_by_checks(comm)
        torch.cuda.is_captured = False
        assert ran() == (0, False)
        assert ran() == (1, True)
    torch.cuda.is_captured = True
    refused_by_checks(comm)
    torch.cuda.is_captured = False
    assert ran() == (1, True), "a refusal in a capture is told to nobody"


def test_attention_with_documents_that_no_call_had_lately_may_wait_for_room(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    was_early: list[bool] = []

    def run(core: Any, arguments: Any, make_results: Any, stream: int, early: Any = None) -> Any:
        was_early.append(early is not None)
        return None if early is not None else make_results()

    monkeypatch.setattr("tilewire._core.ring_attention", run)
    core = refusing_core()
    core.gpu = 0
    comm = tw.Communicator(core)
    q = tensor((1, 6, 2, 64))

    def is_early(*documents: int) -> bool:
        tw.ring_attention(q, q, q, rows=[6, 6], cu_seqlens=list(documents) or None, comm=comm)
        return was_early[-1]

    assert [is_early(), is_early()] == [False, True], "one document"
    one, two, three = (0, 12), (0, 5, 12), (0, 6, 12)
    assert [is_early(*one), is_early(*one), is_early()] == [False, True, True], (
        "its tables are not those of one document"
    )
    assert [is_early(*two), is_early(*one), is_early(*three), is_early(*one)] == [False, True, False, True]
    torch.cuda.is_captured = True
    assert is_early(*two), "a capture takes no room"
    torch.cuda.is_captured = False
    assert [is_early(*three), is_early(*two)] == [False, True]


def refusing_core() -> Any:
    names = ("rank", "world_size", "node", "local_rank", "nodes", "layout", "transport")
    return SimpleNamespace(gpu=-1, refuse_call=lambda *told: None, **dict.fromkeys(names, 0))


def refused_by_checks(comm: tw.Communicator) -> None:
    with pytest.raises(InvalidArgument), calling("op", comm):
        raise InvalidArgument("of this rank's own checks")


@pytest.mark.parametrize(
    ("stream", "pieces"),
    [
        ("side", ["stream is no stream", "stream is a str"]),
        (True, ["stream is no stream"]),
        (-1, ["stream is no stream"]),
        (Stream(5, device=1), ["stream is of another GPU", "cuda:1", "cuda:0"]),
        (SimpleNamespace(ptr=5, device_id=1), ["stream is of another GPU"]),
        (SimpleNamespace(__cuda_stream__=lambda: 5), ["stream is no stream"]),
    ],
)
def test_a_stream_that_is_none_is_refused(stream: Any, pieces: list[str], torch: Any, rank: GpuRank) -> None:
    with pytest.raises(InvalidArgument) as raised:
        operands(rank, tensor((6, 16)), tensor((16, 24)), stream=stream)
    assert all(piece in str(raised.value) for piece in pieces), raised.value


def grown(x: fake_torch.Tensor, **changes: Any) -> fake_torch.Tensor:
    for name, value in changes.items():
        setattr(x, name, value)
    return x


A, B = (6, 16), (16, 24)
REFUSED: dict[str, tuple[Callable[[], tuple[Any, Any, dict[str, Any]]], list[str]]] = {
    "host tensor": (lambda: (tensor(A, gpu=-1), tensor(B), {}), ["a is not in GPU memory", 'a.to("cuda:0")']),
    "host weight": (lambda: (tensor(A), tensor(B, gpu=-1), {}), ["b is not in GPU memory", "host memory"]),
    "other GPU": (lambda: (tensor(A, gpu=1), tensor(B), {}), ["a is on cuda:1", "GPU is cuda:0", "cuda_device=1"]),
    "weight on another GPU": (lambda: (tensor(A), [tensor(B), tensor(B, gpu=3)], {}), ["b[1] is on cuda:3"]),
    "out on another GPU": (lambda: (tensor(A), tensor(B), {"out": tensor((12, 24), gpu=1)}), ["out is on cuda:1"]),
    "bias on the host": (lambda: (tensor(A), tensor(B), {"bias": np.zeros(24, BF16)}), ["bias is not in GPU memory"]),
    "numpy": (lambda: (np.zeros(A, BF16), tensor(B), {}), ["a is not in GPU memory", "host memory"]),
    "list": (lambda: ([[1.0]], tensor(B), {}), ["a is no array", "a is a list", "on cuda:0"]),
    "one dimension": (lambda: (tensor((6,)), tensor(B), {}), ["a has shape [6]", "must have 2"]),
    "int8": (lambda: (grown(tensor(A), dtype=int8), tensor(B), {}), ["a is torch.int8"]),
    "sparse": (lambda: (grown(tensor(A), layout="sparse_coo"), tensor(B), {}), ["a is not dense", "a.to_dense()"]),
    "requires grad": (lambda: (grown(tensor(A), requires_grad=True), tensor(B), {}), ["a requires grad", "a.detach()"]),
    "[N, K]": (lambda: (tensor(A), tensor((24, 16)), {}), ["looks like a weight stored as [N, K]", "pass b.T"]),
    "bias length": (lambda: (tensor(A), tensor(B), {"bias": tensor((23,))}), ["bias has 23 values", "24 columns"]),
    "out by DLPack": (lambda: (tensor(A), tensor(B), {"out": Foreign(placed((12, 24), BF16))}), ["out is read-only"]),
    "pinned": (lambda: (Foreign(placed(A, BF16), kind=3), tensor(B), {}), ["a is on DLPack device (3, 0)"]),
    "DLPack, other GPU": (lambda: (Foreign(placed(A, BF16), gpu=2), tensor(B), {}), ["a is on cuda:2"]),
    "DLPack, fp64": (lambda: (Foreign(placed(A, np.float64), code_bits=(2, 64)), tensor(B), {}), ["a is fp64"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_taken_is_named(name: str, torch: Any, rank: GpuRank) -> None:
    arguments, pieces = REFUSED[name]
    a, b, options = arguments()
    with pytest.raises(InvalidArgument) as raised:
        operands(rank, a, b, **options)
    assert all(piece in str(raised.value) for piece in pieces), raised.value


def test_memory_that_runs_out_is_an_error_with_the_bytes(torch: Any, rank: GpuRank) -> None:
    o = operands(rank, tensor(A), tensor(B))
    with pytest.raises(ResourceError, match=rf"the result does not fit.*{2**40 * 24 * 2} bytes.*CUDA out of memory"):
        o.make_results(2**40)


def test_dlpack_gets_the_stream_and_is_kept_until_the_call_has_ended(torch: Any, rank: GpuRank) -> None:
    a, b = Foreign(placed(A, BF16)), Foreign(placed((24, 16), BF16).T)
    with torch.cuda.stream(Stream(77)):
        o = operands(rank, a, b)
    assert a.streams == b.streams == [77] and o.b[0].strides == (1, 16) and o.b[0].dtype == "bf16"
    Ran(o, rank)
    assert type(o.result()).__name__ == "Tensor"
    del o
    assert a.given_back == b.given_back == 0, "the kernel may still read it"
    rank._core.is_idle = True  # type: ignore[misc]
    late = Foreign(placed(A, BF16))
    Ran(operands(rank, late, tensor(B)), rank)
    assert (a.given_back, b.given_back) == (1, 1)
    none = operands(rank, Foreign(placed(A, BF16)), tensor(B))
    assert none.a.owner is not None


def test_the_default_stream_has_a_number_of_its_own_in_dlpack(torch: Any, rank: GpuRank) -> None:
    a = Foreign(placed(A, BF16))
    operands(rank, a, tensor(B))
    assert a.streams == [1]


def test_dlpack_arrays_do_not_pile_up(torch: Any, rank: GpuRank) -> None:
    given = [Foreign(placed(A, BF16)) for _ in range(300)]
    for a in given:
        Ran(operands(rank, a, tensor(B)), rank)
    assert rank._core.waits >= 1 and len(rank._held) <= 256  # type: ignore[attr-defined]


def test_without_a_library_results_cannot_be_made_and_it_is_said(rank: GpuRank) -> None:
    if {"torch", "cupy"} & sys.modules.keys():
        pytest.skip("one is imported")
    o = operands(rank, Foreign(placed(A, BF16)), Foreign(placed(B, BF16)))
    with pytest.raises(Unavailable, match="neither torch nor cupy is imported"):
        o.make_results(12)


def test_the_gpu_that_the_program_has_chosen(torch: Any) -> None:
    torch.cuda.gpu = 3
    assert chosen_gpu() == 3
    torch.cuda.is_ready = False  # it would be the first one, for every rank
    assert chosen_gpu() == -1


def test_good_operands_are_taken_without_a_word(torch: Any, rank: GpuRank) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        o = operands(rank, tensor(A), [tensor(B), tensor((16, 0))], bias=[tensor((24,)), None])
    assert isinstance(o.a, GpuView) and o.out_dtype == "bf16"


def again_of(rank: GpuRank, a: Any, b: Any, bias: Any = None, out: Any = None) -> Any:
    found = rank.again("op", (a, b, bias, out))
    assert found is not None
    return found


class Noted:
    """In the place of the core's matrices and arguments: what they were given."""

    def __init__(self, *what: Any) -> None:
        self.what = what


def made_again(
    rank: GpuRank, arrays: tuple[Any, Any, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Any, Any]:
    """Such a call made once the long way, and then what its repetition gives the core, for other arrays."""
    a, b, bias, out = arrays
    call = WeightCall(SimpleNamespace(plan_json=""), operands(rank, a, b, bias=bias, out=out))
    call.arguments.bias_dtype = getattr(call.arguments, "bias_dtype", "fp32")
    call.again = again_of(rank, *arrays)
    assert call.again.repeat is None
    call.settle("op", "same", 2 * a.shape[0])
    call.operands.memory.run(call, lambda arguments, make, stream, results=None: make(2 * a.shape[0]))
    fresh = tuple(map(like, arrays))
    monkeypatch.setattr("tilewire._core.Matrix", Noted)
    found = again_of(rank, *fresh)
    assert found.repeat is not None
    arguments, views, results = found.prepare(fresh[3])
    return fresh, (arguments, views, results), call


def like(x: Any) -> Any:
    if isinstance(x, list):
        return [like(one) for one in x]
    if x is None:
        return None
    y = tensor((x.shape[0], x.stride()[0]) if len(x.shape) == 2 else x.shape, x.dtype)
    return y[:, : x.shape[1]] if len(x.shape) == 2 and x.stride()[1] == 1 else y


@pytest.mark.parametrize("has_out", [False, True])
def test_a_repeated_call_is_the_same_with_other_addresses(
    has_out: bool, torch: Any, rank: GpuRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = tensor((16, 32))
    out = [tensor((12, 24)), tensor((12, 8))] if has_out else None
    arrays = (tensor((6, 16)), [tensor((16, 24)), wide[:, :8]], [None, tensor((8,), float32)], out)
    (a, b, bias, given), (arguments, views, results), _ = made_again(rank, arrays, monkeypatch)
    assert arguments.a.what == (a.data_ptr(), (6, 16), (16, 1), "bf16")
    assert [one.what for one in arguments.b] == [
        (b[0].data_ptr(), (16, 24), (24, 1), "bf16"),
        (b[1].data_ptr(), (16, 8), (32, 1), "bf16"),
    ]
    assert arguments.bias == [0, bias[1].data_ptr()] and arguments.bias_dtype == "fp32"
    assert arguments.out_dtype == "bf16" and arguments.plan_json == ""
    assert [one.what for one in views] == [
        (y.data_ptr(), shape, (shape[1], 1), "bf16") for y, shape in zip(results, [(12, 24), (12, 8)], strict=True)
    ]
    assert not has_out or all(y is one for y, one in zip(results, given, strict=True))


def test_a_repeated_result_of_an_odd_width_is_part_of_a_wider_one(
    torch: Any, rank: GpuRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = (tensor((6, 16)), tensor((16, 8))[:, :5], None, None)
    _, (_, views, result), _ = made_again(rank, arrays, monkeypatch)
    assert result.shape == (12, 5) and result.stride() == (8, 1)
    assert views[0].what == (result.data_ptr(), (12, 5), (8, 1), "bf16")


def test_calls_that_take_a_closer_look_are_not_repeated(torch: Any, rank: GpuRank) -> None:
    a, b = tensor((6, 16)), tensor((16, 24))

    def learn(a: Any, b: Any, out: Any = None, stream: Any = None) -> Any:
        call = WeightCall(
            SimpleNamespace(plan_json="", bias_dtype="fp32"), operands(rank, a, b, stream=stream, out=out)
        )
        call.again = again_of(rank, a, b, None, out)
        call.settle("op", "same", 12)
        call.operands.memory.run(call, lambda arguments, make, stream, results=None: make(12))
        return again_of(rank, a, b, None, out).repeat

    with pytest.warns(RuntimeWarning):
        assert learn(tensor((6, 5)), tensor((5, 8))) is None, "what is copied is copied again"
    assert learn(a, b[:, :7].T.T, out=tensor((12, 8))[:, :7]) is None, "a result that goes another way"
    assert learn(a, b, stream=Stream(99)) is None, "another stream than the current one"
    assert learn(a, b) is not None
    for other in (tensor((7, 16)), tensor((6, 16), float16), tensor((6, 24))[:, :16], tensor((6, 16), gpu=1)):
        assert again_of(rank, other, b).repeat is None, "another shape, dtype, pitch or GPU"
    askew = fake_torch.Tensor(placed((97,), BF16)[1:].reshape(6, 16))
    assert again_of(rank, askew, b).repeat is None, "an address that a kernel cannot follow"
    assert rank.again("op", (grown(tensor((6, 16)), requires_grad=True), b, None, None)) is None
    assert rank.again("op", (Foreign(placed((6, 16), BF16)), b, None, None)) is None
    assert rank.again("op", (a, np.zeros((16, 24)), None, None)) is None


class Residual:
    """In the place of the compiled arguments of a reduction."""

    residual: Any = None


def test_a_residual_is_taken_where_it_lies_and_its_call_is_not_repeated(
    torch: Any, rank: GpuRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewire._core.Matrix", Noted)
    a, b, residual = tensor((6, 16)), tensor((16, 24)), tensor((3, 48), float32)[:, ::2]
    call = ReductionCall(Residual(), operands(rank, a, b), residual)
    assert call.arguments.residual.what == (residual.data_ptr(), (3, 24), (48, 2), "fp32") and not call.is_repeatable
    assert ReductionCall(Residual(), operands(rank, a, b), None).is_repeatable
    with pytest.raises(InvalidArgument, match="residual is not in GPU memory"):
        ReductionCall(Residual(), operands(rank, a, b), tensor((3, 24), gpu=-1))


def test_a_call_with_more_results_or_arrays_is_not_repeated(torch: Any, rank: GpuRank) -> None:
    a, b = tensor((6, 16)), tensor((16, 24))

    def learn(is_repeatable: bool) -> Any:
        call = WeightCall(SimpleNamespace(plan_json="", bias_dtype="fp32"), operands(rank, a, b))
        call.again, call.is_repeatable = again_of(rank, a, b), is_repeatable
        call.settle("op", "same", 12)
        call.operands.memory.run(call, lambda arguments, make, stream, results=None: make(12))
        return again_of(rank, a, b).repeat

    assert learn(False) is None and learn(True) is not None


@pytest.mark.parametrize(
    ("handle", "rows"), [(tw.AllGatherMatmul, 13), (tw.MatmulReduceScatter, 8), (tw.MatmulAllReduce, 5)]
)
def test_a_handle_makes_results_of_as_many_rows_as_its_operation_gives_this_rank(handle: Any, rows: int) -> None:
    made = object.__new__(handle)
    made._shape = SimpleNamespace(rows=[5, 8])
    assert made._result_rows(1) == rows


def test_a_repeated_call_without_memory_goes_the_long_way(
    torch: Any, rank: GpuRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = (tensor((6, 16)), tensor((16, 24)), None, None)
    made_again(rank, arrays, monkeypatch)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("out of memory")))
    assert again_of(rank, *arrays).prepare(None) is None


def dispatch(rank: GpuRank, x: Any, ids: Any, w1: Any, out: Any = None) -> Dispatch:
    return Dispatch(GpuMemory(rank, x, None), x, ids, w1, out=out, out_dtype=None)


def test_tokens_routes_and_experts_are_taken_where_they_lie(
    torch: Any, rank: GpuRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewire._core.Matrix", Noted)
    x, ids, w1 = tensor((6, 16)), tensor((12, 4), int64)[::2, ::2], tensor((3, 16, 24))
    o = dispatch(rank, x, ids, w1)
    assert (o.x.address, o.ids.address, o.w1.address) == (x.data_ptr(), ids.data_ptr(), w1.data_ptr())
    asked: dict[str, Any] = {}
    arguments: Any = SimpleNamespace(use_ids=lambda *all_: asked.update(ids=all_))
    o.fill(arguments)
    assert asked["ids"] == (ids.data_ptr(), (6, 2), (8, 2), True)
    assert arguments.cols == 24 and arguments.out_dtype == "bf16"
    matrices = [(w1.data_ptr() + 16 * 24 * 2 * expert, (16, 24), (24, 1), "bf16") for expert in range(3)]
    assert [one.what for one in arguments.w1] == matrices
    stored = tensor((3, 24, 16))
    turned = fake_torch.Tensor(stored.array.transpose(0, 2, 1))
    o = dispatch(rank, x, tensor((6, 2), int32), turned)
    assert o.w1.address == stored.data_ptr() and o.w1.strides == (384, 1, 16)
    assert torch.allocations == [] and torch.fills == []
    assert o.make_results(10)[1:] == (o.result().handle.origins.data_ptr(), o.result().offsets.data_ptr())
    origins, offsets = o.result().handle.origins, o.result().offsets
    assert (origins.shape, origins.stride(), origins.dtype) == ((10, 3), (3, 1), int32)
    assert (offsets.shape, offsets.dtype) == ((4,), int64)


def test_experts_that_a_kernel_cannot_follow_are_copied_and_told(torch: Any, rank: GpuRank) -> None:
    x, ids = tensor((6, 16)), tensor((6, 2), int32)
    narrow = tensor((3, 16, 5))
    narrow.array[...] = np.arange(240).reshape(3, 16, 5)
    uneven = fake_torch.Tensor(np.broadcast_to(placed((1, 16, 24), BF16), (3, 16, 24)))
    for w1, strides in ((narrow, (128, 8, 1)), (uneven, (384, 24, 1)), (tensor((3, 16, 48))[:, :, ::2], (384, 24, 1))):
        with pytest.warns(RuntimeWarning, match="w1 "):
            o = dispatch(rank, x, ids, w1)
        assert o.w1.strides == strides and (o.w1.owner.array == w1.array).all()
    assert dispatch(rank, x, ids, tensor((0, 16, 24))).w1.shape == (0, 16, 24)


@pytest.mark.parametrize(
    ("x", "ids", "text"),
    [
        (int32, int32, "x has a dtype.*torch.int32.*bf16, fp16 or fp32"),
        (bfloat16, bfloat16, "topk_ids has a dtype.*torch.bfloat16.*int32 or int64"),
        (bfloat16, int8, "topk_ids has a dtype.*int32 or int64"),
    ],
)
def test_what_is_no_token_and_no_route_is_refused_by_name(
    torch: Any, rank: GpuRank, x: Any, ids: Any, text: str
) -> None:
    ids = tensor((6, 2), ids) if ids is not int8 else fake_torch.Tensor(placed((6, 2), np.int8), 0, int8)
    with pytest.raises(InvalidArgument, match=text):
        dispatch(rank, tensor((6, 16), x), ids, tensor((3, 16, 24)))
