"""MoE dispatch + grouped GEMM: each token goes to the ranks of its experts, and each expert multiplies what it gets."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewire import _core, arrays
from tilewire.argument_checks import INT32_MOST, count, counts, is_single
from tilewire.calling import calling
from tilewire.communicator import Communicator
from tilewire.op_calls import Call, Handle, runner
from tilewire.operand_memory import Memory
from tilewire.operands import dtypes_of
from tilewire.plans import AnyPlan, Plan, answered, describe_machine, plan_text, shared_rows

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tilewire.arrays import Array
    from tilewire.plans import Machine

_OP = "moe_dispatch_matmul"
MOST_EXPERTS = 1 << 20  # that are shared out here; how many may be in a call is the core's to judge

# What `tilewire plan` says of the shape that `plan_moe_dispatch_matmul` takes.
PLAN_SHAPE: Mapping[str, str] = {
    "t": "T: tokens of each rank.",
    "e": "E: experts of all ranks together, or the rank of each as in 0,0,1,3.",
    "k": "k: experts of each token.",
    "h": "H: columns of x, rows of each weight.",
    "i": "I: columns of each weight.",
}


@dataclass(frozen=True)
class DispatchHandle:
    """Where each row of a result of `moe_dispatch_matmul` came from; -1 behind the last row."""

    origins: Array  # [rows, 3] int32

    @property
    def rank(self) -> Array:
        """Whose token it is."""
        return self.origins[:, 0]

    @property
    def token(self) -> Array:
        """Which of that rank's tokens."""
        return self.origins[:, 1]

    @property
    def slot(self) -> Array:
        """Which of the token's k experts it is for."""
        return self.origins[:, 2]


class Dispatched(NamedTuple):
    """What `moe_dispatch_matmul` gives: the rows of this rank's experts after their product, and which they are."""

    y: Any  # [rows, I]
    offsets: Array  # [own experts + 1] int64: rows of y before each own expert's, and all that came
    handle: DispatchHandle


def moe_dispatch_matmul(
    x: Any,
    topk_ids: Any,
    w1: Any,
    *,
    max_tokens: int | None = None,
    max_source_tokens: int | None = None,
    experts: Sequence[int] | None = None,
    comm: Communicator | None = None,
    out: Any = None,
    plan: AnyPlan = None,
    out_dtype: Any = None,
    stream: Any = None,
) -> Dispatched:
    """Each token's row to the experts that it is routed to, wherever they are, times their weights, with the way of
    the rows hidden under the products. Collective. On CPU ranks it blocks; on GPU ranks it returns when it is in the
    stream, as `all_gather_matmul` does, if max_tokens is given, and else when all ranks' rows have been counted.

    x: [T_r, H], this rank's tokens; T_r is its own and may be 0. bf16 or fp16 in host memory, any strides: a numpy
        array (bf16 by ml_dtypes), a torch tensor, or anything with `__dlpack__`. On GPU ranks all arrays are there, and
        what a kernel cannot follow is copied in each call, with a warning.
    topk_ids: [T_r, k] int32 or int64, any strides: of each token the numbers of its experts among those of all ranks.
        -1 is no expert; the same expert twice gives two rows. On GPU ranks a number of no expert counts as -1, and is
        an `InvalidArgument` of this rank's next `comm.check()` or `comm.synchronize()`.
    w1: [own experts, H, I] of x's dtype, any strides: the weights of the experts that lie on this rank, by their
        numbers. [0, H, I] where there are none.
    max_tokens: rows that a rank may get, the same on all ranks: y has so many rows, and zeros behind the last one that
        came. More for any rank are a `ResourceError` with both numbers on all ranks: nothing has moved, y is NaN, and
        the communicator can be used. On GPU ranks `comm.check()` or `comm.synchronize()` raises it, once, and no call;
        the call is one launch, and in a graph it has to be given. None: a call of its own counts the rows first, and y
        is as large as it has to be.
    max_source_tokens: tokens that a rank may bring, the same on all ranks; max_tokens unless given. Only with it. What
        goes to other nodes has memory for so many.
    experts: the rank of each expert, the same list on all ranks. None: every rank has as many as this one, in the
        order of ranks.
    comm: a communicator; None takes the only open one.
    out: where the rows go, [max_tokens, I] or as many as come, of out_dtype, C-contiguous. It must not overlap an
        input.
    plan: a `Plan`, a dict or JSON text with the keys that `plan_moe_dispatch_matmul` describes; None lets the planner
        choose. block_tokens, window, chunk_tokens, pieces and local_first must be equal on all ranks.
    out_dtype: dtype of the result; None takes out's or else x's, which it is on GPU ranks.
    stream: of GPU ranks, as for `all_gather_matmul`.

    Gives a `Dispatched`, a named tuple of three: y, [max_tokens, I] or as many rows as came: rows by expert, then by
    rank, token and slot, the same bits by any plan. offsets, [own experts + 1] int64: own expert e's rows are
    y[offsets[e]:offsets[e + 1]], and offsets[-1] is how many came. handle, a `DispatchHandle`: handle.rank,
    handle.token and handle.slot say of each row whose token it is, which of that rank's, and for which of its k
    experts, -1 behind the last row; a combine needs them. y is a torch tensor when x is one, else a numpy array;
    offsets and origins are numpy arrays. On GPU ranks all three are arrays of x's library. A given `out` is given
    back. Accumulates in fp32. There `comm.last_call` has no bytes: the kernel alone knows what it moves.

    Raises `InvalidArgument`, `ResourceError`, `Refused`, `Mismatch`, `DeadlineError`, `PeerLost`, `Aborted`, `Closed`,
    each where `all_gather_matmul` does, and leaves `out` NaN where that does.
    """
    with calling(_OP, comm) as comm:
        operands = _Operands(comm._memory(x, stream), x, topk_ids, w1, out=out, out_dtype=out_dtype)
        call = _Call(operands)
        arguments = call.arguments
        arguments.max_tokens = most = None if max_tokens is None else count("max_tokens", max_tokens)
        if max_source_tokens is not None:
            arguments.max_source_tokens = count("max_source_tokens", max_source_tokens)
        arguments.experts = placed = [] if experts is None else counts("experts", experts, most=INT32_MOST)
        arguments.plan_json = plan_text(plan)
        call.settle(_OP, (most, arguments.max_source_tokens, tuple(placed), arguments.plan_json), most)
        run = runner(comm, call)
    result: Dispatched = run(partial(_core.moe_dispatch_matmul, comm._core))
    return result


class MoeDispatchMatmul(Handle[_core.MoeDispatchGemmShape]):
    """`moe_dispatch_matmul` with its shapes fixed once, for many calls. Creation is collective.

    experts: the rank of each expert, or how many there are, shared out over the ranks as evenly as it goes. k: experts
    of each token. h: columns of x. i: columns of the weights. max_tokens, max_source_tokens, dtype, out_dtype and plan
    as there. How many tokens a rank brings may differ from call to call. Raises what that call raises.
    """

    def __init__(
        self,
        experts: int | Sequence[int],
        k: int,
        h: int,
        i: int,
        *,
        max_tokens: int,
        max_source_tokens: int | None = None,
        comm: Communicator | None = None,
        dtype: Any = "bf16",
        out_dtype: Any = None,
        plan: AnyPlan = None,
    ) -> None:
        def shape() -> _core.MoeDispatchGemmShape:
            ranks = self._comm.world_size
            shape = _shape(_placement("experts", experts, ranks), (k, h, i), dtypes_of(dtype, out_dtype), plan)
            shape.max_tokens = count("max_tokens", max_tokens)
            if max_source_tokens is not None:
                shape.max_source_tokens = count("max_source_tokens", max_source_tokens)
            return shape

        super().__init__(_OP, comm, shape, _core.MoeDispatchGemm)

    def __call__(self, x: Any, topk_ids: Any, w1: Any, *, out: Any = None, stream: Any = None) -> Dispatched:
        """One call with the handle's shapes; the arguments and the result as for the operation's function."""

        def make() -> Any:
            memory, dtype = self._comm._memory(x, stream), self._shape.out_dtype
            call = _Call(_Operands(memory, x, topk_ids, w1, out=out, out_dtype=dtype))
            call.settle(_OP, self._token, self._shape.max_tokens)
            return runner(self._comm, call)

        result: Dispatched = self._run(make)
        return result


def plan_moe_dispatch_matmul(
    t: int,
    e: int | Sequence[int],
    k: int,
    h: int,
    i: int,
    *,
    dtype: Any = "bf16",
    out_dtype: Any = None,
    plan: AnyPlan = None,
    **machine: Unpack[Machine],
) -> Plan:
    """What `moe_dispatch_matmul` would do on some cluster, worked out without one, where every expert gets as many rows
    as the others.

    t: tokens of each rank. e: experts of all ranks together, shared out as evenly as it goes; or the rank of each. k:
    experts of each token. h: columns of x. i: columns of each weight. dtype and out_dtype as there.
    plan: ask about this plan instead of the planner's choice. The keys of a plan, all of them needed:

        op              "moe_dispatch_matmul"
        block_tokens    1 to 2**30: tokens of each rank that go in a round. A round has memory for all rows that its
                        tokens may be for any rank, so this and window bound what a call takes, however tokens are
                        routed. Equal on all ranks, as are window, chunk_tokens, pieces and local_first
        window          1 to 2**20: rounds that have memory at a time; the next one waits until the first is multiplied
        chunk_tokens    1 to 2**30: tokens that go to another node together
        pieces          1 to 4096: parts of a rank's experts; each rank says of each part when its rows are there, so
                        that the first experts are multiplied while rows for the last ones come
        local_first     true: rows of the own node are multiplied apart from those of other nodes, and before them
        is_fused        true: a tile is computed as soon as its rows are there; false: a round comes whole, then it is
                        multiplied
        tile_rows       1 to 4096: rows of an expert that a worker multiplies at a time. On a GPU 128 by 256: a kernel
                        has one form
        tile_cols       1 to 4096: columns of its weight
        raster_rows     1 to 2**20: blocks of tile_rows that are walked together, column block by column block
        workers         1 to 4096: compute threads of the rank; on a GPU its CTAs, in pairs
        load_ahead      0 to 64: not used by this operation, which waits for nothing ahead
        publish_behind  0 to 64: steps of a role that may be done before the others are told

    nodes, rank, machine, workers, worker_tflops, copy_gb_per_s, node_gb_per_s, node_latency_us, network_gbit_per_s,
    network_latency_us, step_us, command_us and timeline describe the machine: `tilewire.plans.Machine` says what each
    means, `tilewire.plans.machines()` which have a name.

    Raises `InvalidArgument` naming the number that cannot be, `ResourceError` when no plan fits the arena.
    """
    query = _core.MoeDispatchGemmQuery()
    ranks = describe_machine(query, machine)
    shape = _shape(_placement("e", e, ranks), (k, h, i), dtypes_of(dtype, out_dtype), plan)
    shape.tokens = shape.max_source_tokens = count("t", t)
    shape.max_tokens = min(max(shape.tokens, 0) * max(shape.k, 1) * max(ranks, 1), 2**62)
    query.shape = shape
    return answered(_core.plan_moe_dispatch_matmul(query))


def _placement(name: str, experts: int | Sequence[int], ranks: int) -> list[int]:
    if not is_single(experts):
        return counts(name, experts, most=INT32_MOST)
    shares = shared_rows(name, count(name, experts, most=MOST_EXPERTS), ranks)
    return [rank for rank, share in enumerate(shares) for _ in range(share)]


def _shape(
    experts: list[int], sizes: tuple[Any, Any, Any], dtypes: tuple[Any, Any], plan: AnyPlan
) -> _core.MoeDispatchGemmShape:
    shape = _core.MoeDispatchGemmShape()
    shape.experts = experts
    shape.k = count("k", sizes[0], most=INT32_MOST)
    shape.h, shape.cols = count("h", sizes[1]), count("i", sizes[2])
    shape.dtype, shape.out_dtype = map(arrays.dtype_name, dtypes)
    shape.plan_json = plan_text(plan)
    return shape


class _Operands:
    """Tokens, their experts, the own experts' weights, and where the rows go. Keeps all of them alive."""

    def __init__(self, memory: Memory, x: Any, topk_ids: Any, w1: Any, *, out: Any, out_dtype: Any) -> None:
        self.memory = memory
        self._example = x
        self.x = memory.rows(x, "x")
        self.ids = memory.whole_numbers(topk_ids, "topk_ids")
        self.w1 = memory.slots(w1, "w1")
        self._out = out
        self._out_view = None if out is None else memory.outputs([out], ["out"])[0]
        self.out_dtype = self._choose_out_dtype(out_dtype)
        self._origins: Any = None
        self._offsets: Any = None

    def fill(self, arguments: _core.MoeDispatchGemmArguments) -> None:
        memory, (tokens, k) = self.memory, self.ids.shape
        arguments.x = memory.matrix(self.x)
        token_stride, slot_stride = memory.strides(self.ids)
        is_64_bit = memory.item_bytes(self.ids) == 8
        arguments.use_ids(memory.address(self.ids), (tokens, k), (token_stride, slot_stride), is_64_bit)
        arguments.w1 = memory.matrices(self.w1)
        arguments.cols = self.w1.shape[2]
        arguments.out_dtype = self.out_dtype

    def key(self) -> Hashable:
        """How many tokens there are the core does not tell calls by."""
        memory = self.memory
        weights = tuple(self.w1.shape), memory.strides(self.w1)
        return self.x.shape[1], memory.dtype_of(self.x), self.ids.shape[1], weights, self.out_dtype

    def make_results(self, rows: int) -> tuple[_core.Matrix, int, int]:
        """Memory for the results: what was given as `out`, or new."""
        memory, (own, _, cols) = self.memory, self.w1.shape
        if self._out_view is None:
            self._out = memory.new_like(self._example, (rows, cols), self.out_dtype, "the result")
            self._out_view = memory.view_result(self._out, "the result")
        self._origins, origins = memory.new_numbers(self._example, (rows, 3), "int32", "the origins of rows")
        self._offsets, offsets = memory.new_numbers(self._example, (own + 1,), "int64", "the offsets of experts")
        return memory.matrix(self._out_view), origins, offsets

    def result(self) -> Dispatched:
        return Dispatched(self._out, self._offsets, DispatchHandle(self._origins))

    def _choose_out_dtype(self, out_dtype: Any) -> str:
        if out_dtype is not None:
            return arrays.dtype_name(arrays.numpy_dtype(out_dtype, "out_dtype"))
        return self.memory.dtype_of(self.x if self._out_view is None else self._out_view)


class _Call(Call[_core.MoeDispatchGemmArguments, _Operands]):
    def __init__(self, operands: _Operands) -> None:
        super().__init__(_core.MoeDispatchGemmArguments(), operands)
