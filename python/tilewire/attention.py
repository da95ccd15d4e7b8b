"""Ring attention, forward: rows of queries on each rank against the keys and values of all ranks."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewire import _core, arrays
from tilewire.argument_checks import count, counts, is_single, number, switch
from tilewire.calling import calling
from tilewire.communicator import Communicator
from tilewire.errors import InvalidArgument
from tilewire.gpu.views import is_contiguous
from tilewire.op_calls import Call, Handle, runner
from tilewire.operand_memory import Memory
from tilewire.operands import choose_rows, dtypes_of
from tilewire.plans import AnyPlan, Plan, answered, describe_machine, plan_text, shared_rows
from tilewire.sequence import POSITIONS, shard_rows

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tilewire.plans import Machine

_OP = "ring_attention"

# What `tilewire plan` says of the shape that `plan_ring_attention` takes.
PLAN_SHAPE: Mapping[str, str] = {
    "s": "S: rows of q, k and v of all ranks together, or of each rank as in 512,0,37.",
    "heads": "Heads of q, or of q and of k and v as in 32,8.",
    "d": "D: the head dimension, 64 or 128.",
}
# And what else it may be told.
PLAN_WORDS: Mapping[str, tuple[Any, str]] = {
    "causal": (False, "Rows see the keys up to their own place."),
    "positions": ("contiguous", "How the sequence is cut: contiguous or zigzag."),
}


def ring_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    positions: Any = "contiguous",
    cu_seqlens: Any = None,
    rows: Sequence[int] | str | None = None,
    kv_rows: Sequence[int] | str | None = None,
    comm: Communicator | None = None,
    out: Any = None,
    out_dtype: Any = None,
    plan: AnyPlan = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Attention of this rank's queries over the keys and values of all ranks, which move while it computes. Collective.
    On CPU ranks it blocks; on GPU ranks it returns when it is in the stream, as `all_gather_matmul` does.

    q: [B, S_r, Hq, D], this rank's rows of the sequence; S_r may be 0. bf16 or fp16 in host memory, any strides: an
        array laid out as [B, H, S, D] is passed as its view with two axes swapped, which copies nothing. A numpy array
        (bf16 by ml_dtypes), a torch tensor, or anything with `__dlpack__`; on GPU ranks there, and copied where the
        last axis is not contiguous, or others begin at no multiples of 16 bytes. D is 64 or 128.
    k, v: [B, S_kv_r, Hkv, D] of q's dtype; Hq is a multiple of Hkv, and keys are not copied for each head of q.
    causal: a query at position p sees the keys up to p + (all keys - all queries): the last query sees the last key.
    scale: of the scores; None takes 1 / sqrt(D). On GPU ranks above 0.
    positions: where this rank's rows are in the whole sequence; masks look at nothing else. "contiguous": rank after
        rank. "zigzag": as `tilewire.shard(..., positions="zigzag")` cuts it, so that causal ranks have as much to do.
        Or a list of S_r positions from 0 on, in any order, or a pair of lists, of queries and of keys: these are told
        to all ranks in every call, one round trip over the control connection. On GPU ranks such a call cannot be part
        of a graph.
    cu_seqlens: several documents in one sequence: where each begins and, last, where the last one ends; the same on all
        ranks. A row sees its own document alone, where causal as above. Documents may cross ranks and be empty; rows
        behind the last one are pads, which see nothing and are not seen. A pair of lists where queries and keys have
        different ones. Part of a graph on GPU ranks are documents that a call has had before.
    rows: of q: None when all ranks bring as many; a list of every rank's S_r, the same on all ranks; or "exchange":
        counts travel over the control connection in each call. `tilewire.shard_rows` makes the list.
    kv_rows: of k and v, likewise; None: known as `rows` are, and the same list.
    comm: a communicator; None takes the only open one.
    out: where o goes, [B, S_r, Hq, D] of out_dtype, C-contiguous. It must not overlap an input.
    out_dtype: dtype of o; None takes out's or else q's, which it is on GPU ranks. lse is fp32.
    plan: a `Plan`, a dict or JSON text with the keys that `plan_ring_attention` describes; None lets the planner
        choose. is_step_major, chunk_rows and window must be equal on all ranks.
    stream: of GPU ranks, as for `all_gather_matmul`.

    Gives (o, lse): o [B, S_r, Hq, D], lse [B, Hq, S_r], the logarithm of each row's sum of exponentials. A row that
    sees no key has o = 0 and lse = -inf. On CPU ranks torch tensors when q is one, else numpy arrays; on GPU ranks as
    `all_gather_matmul` does. A given `out` is given back. All sums are fp32, and keys are added in one order of ranks:
    the bits depend on the layout of ranks, not on plan or timing.

    Raises `InvalidArgument`, `ResourceError`, `Refused`, `Mismatch`, `DeadlineError`, `PeerLost`, `Aborted`, `Closed`,
    each where `all_gather_matmul` does, and leaves results NaN where that does.
    """
    told = "exchange" if _exchanges(positions, rows, kv_rows) else None
    with calling(_OP, comm, told) as comm:
        operands = AttentionOperands(comm._memory(q, stream), q, k, v, out=out, out_dtype=out_dtype)
        call = Call(_core.RingAttentionArguments(), operands)
        arguments = call.arguments
        arguments.causal = switch("causal", causal)
        arguments.scale = None if scale is None else number("scale", scale)
        arguments.plan_json = plan_text(plan)
        documents = _pair("cu_seqlens", cu_seqlens)
        arguments.cu_seqlens, arguments.kv_cu_seqlens = documents
        call.own = _own(*documents)
        _place(arguments, positions)
        choose_rows(arguments, rows)
        _choose_kv_rows(arguments, kv_rows)
        if told is None:  # else it waits for the other ranks
            lists = [None if one is None else tuple(one) for one in (rows, kv_rows)]
            is_packed = call.own is not None
            call.settle(_OP, (arguments.plan_json, arguments.causal, arguments.placement, is_packed, *lists))
        run = runner(comm, call)
    result: tuple[Any, Any] = run(partial(_core.ring_attention, comm._core))
    return result


class RingAttention(Handle[_core.RingAttentionShape]):
    """`ring_attention` with its shapes fixed once, for many calls. Creation is collective.

    rows: of q on every rank, the same list on all ranks. heads: of q, or (of q, of k and v). d: the head dimension.
    kv_rows: of k and v; None takes rows. batch, dtype, out_dtype, causal, positions (a word), cu_seqlens and plan as
    there. Raises what that call raises; agreement, plan and memory are settled here, so calls have less to do.
    """

    def __init__(
        self,
        rows: Sequence[int],
        heads: int | Sequence[int],
        d: int,
        *,
        comm: Communicator | None = None,
        kv_rows: Sequence[int] | None = None,
        batch: int = 1,
        dtype: Any = "bf16",
        out_dtype: Any = None,
        causal: bool = False,
        positions: str = "contiguous",
        cu_seqlens: Any = None,
        plan: AnyPlan = None,
    ) -> None:
        def shape() -> _core.RingAttentionShape:
            shape = _shape(counts("rows", rows), heads, d, dtypes_of(dtype, out_dtype), plan)
            shape.kv_rows = [] if kv_rows is None else counts("kv_rows", kv_rows)
            return _with_mask(shape, batch, causal, positions, cu_seqlens)

        super().__init__(_OP, comm, shape, _core.RingAttention)
        self._documents = _own(self._shape.cu_seqlens, self._shape.kv_cu_seqlens)

    def __call__(
        self, q: Any, k: Any, v: Any, *, scale: float | None = None, out: Any = None, stream: Any = None
    ) -> tuple[Any, Any]:
        """One call with the handle's shapes; arguments and results as for `ring_attention`."""

        def make() -> Any:
            memory = self._comm._memory(q, stream)
            operands = AttentionOperands(memory, q, k, v, out=out, out_dtype=self._shape.out_dtype)
            call = Call(_core.RingAttentionArguments(), operands)
            call.arguments.scale = None if scale is None else number("scale", scale)
            call.own = self._documents
            call.settle(_OP, self._token)
            return runner(self._comm, call)

        result: tuple[Any, Any] = self._run(make)
        return result


def plan_ring_attention(
    s: int | Sequence[int],
    heads: int | Sequence[int],
    d: int,
    *,
    kv_s: int | Sequence[int] | None = None,
    batch: int = 1,
    dtype: Any = "bf16",
    out_dtype: Any = None,
    causal: bool = False,
    positions: str = "contiguous",
    cu_seqlens: Any = None,
    plan: AnyPlan = None,
    **machine: Unpack[Machine],
) -> Plan:
    """What `ring_attention` would do on some cluster, worked out without one.

    s: rows of each rank; one number is cut as `tilewire.shard` cuts it. heads: of q, or (of q, of k and v). d: the
    head dimension. kv_s: rows of k and v; None takes s. batch, dtype, out_dtype, causal, positions (a word) and
    cu_seqlens as there.
    plan: ask about this plan instead of the planner's choice. The keys of a plan, all of them needed:

        op              "ring_attention"
        is_step_major   false: the keys of all ranks head after head; true: those of all heads, rank after rank, where
                        not even one head of the whole sequence fits, or there are too few heads to hide the first one.
                        Equal on all ranks
        chunk_rows      64 to 2**40, a multiple of 64: rows of a head's keys that travel together; equal on all ranks
        window          0 to 2**20: for how many heads, or ranks, there is memory at a time; 0 for all. Equal on all
                        ranks
        is_fused        true: a tile is computed as soon as its keys are there; false: gather all, then attend
        tile_rows       1 to 4096: rows of q that a worker computes at a time
        group_pairs     1 to 2**20: heads of k that are computed together, at most
        workers         1 to 4096: compute threads of the rank
        load_ahead      0 to 64: steps of a role whose inputs are waited for before the current one is done
        publish_behind  0 to 64: steps of a role that may be done before the others are told

    Those of GPU ranks have head after head, 5 or more SMs for workers, tile_rows of 128 and chunk_rows of multiples
    of 128 (both 192 where D is 64), and

        pace_clocks     0 to 2**20: clocks of the GPU from one piece that a copying warp loads to the next, at least

    nodes, rank, machine, workers, worker_tflops, copy_gb_per_s, node_gb_per_s, node_latency_us, network_gbit_per_s,
    network_latency_us, step_us, command_us and timeline describe the machine: `tilewire.plans.Machine` says what each
    means, `tilewire.plans.machines()` which have a name.

    Raises `InvalidArgument` naming the number that cannot be, `ResourceError` when no plan fits the arena.
    """
    query = _core.RingAttentionQuery()
    ranks = describe_machine(query, machine)
    query.shape = _shape(_rows_of("s", s, ranks, positions), heads, d, dtypes_of(dtype, out_dtype), plan)
    query.shape.kv_rows = [] if kv_s is None else _rows_of("kv_s", kv_s, ranks, positions)
    _with_mask(query.shape, batch, causal, positions, cu_seqlens)
    return answered(_core.plan_ring_attention(query))


class AttentionOperands:
    """The arrays of one call; keeps them alive."""

    def __init__(self, memory: Memory, q: Any, k: Any, v: Any, *, out: Any, out_dtype: Any) -> None:
        self.memory = memory
        self._like = q
        self.q, self.k, self.v = (memory.heads(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
        self._given = out
        self._out = None if out is None else self._checked_out(out)
        own = memory.dtype_of(self.q if self._out is None else self._out)
        self.out_dtype = own if out_dtype is None else arrays.dtype_name(arrays.numpy_dtype(out_dtype, "out_dtype"))
        self._results: tuple[Any, Any] = (None, None)

    def fill(self, arguments: _core.RingAttentionArguments) -> None:
        arguments.q, arguments.k, arguments.v = (self._heads(x) for x in (self.q, self.k, self.v))
        arguments.out_dtype = self.out_dtype

    def key(self) -> Hashable:
        memory = self.memory
        views = [(x.shape, memory.strides(x), memory.dtype_of(x)) for x in (self.q, self.k, self.v)]
        return tuple(views), self.out_dtype

    def make_results(self, *sizes: Any, **named: Any) -> tuple[_core.Matrix, _core.Matrix]:
        memory = self.memory
        batch, rows, heads, _ = self.q.shape
        o = self._given
        if o is None:
            o = memory.new_like(self._like, self.q.shape, self.out_dtype, "o")
            self._out = memory.view_result(o, "o", 4)
        lse = memory.new_like(self._like, (batch, heads, rows), "fp32", "lse")
        self._results = (o, lse)
        return self._lines(self._out), self._lines(memory.view_result(lse, "lse", 3))

    def result(self) -> tuple[Any, Any]:
        return self._results

    def _checked_out(self, out: Any) -> Any:
        [view] = self.memory.outputs([out], ["out"], 4)
        if tuple(view.shape) != tuple(self.q.shape):
            raise InvalidArgument(
                "out has the wrong shape",
                values=f"out has shape {list(view.shape)}",
                limit=f"must be {list(self.q.shape)}, as q is",
                advice="pass one that is so, or leave it away",
            )
        if not is_contiguous(view.shape, self.memory.strides(view)):
            raise InvalidArgument("out is not C-contiguous", advice="pass a C-contiguous array or leave out away")
        return view

    def _heads(self, view: Any) -> _core.Heads:
        memory = self.memory
        return _core.Heads(memory.address(view), list(view.shape), list(memory.strides(view)), memory.dtype_of(view))

    def _lines(self, view: Any) -> _core.Matrix:
        """A contiguous array of results as [B * S_r, Hq * D], or [B * Hq, S_r]."""
        memory, (first, second, *others) = self.memory, view.shape
        shape = first * second, math.prod(others)
        return _core.Matrix(memory.address(view), shape, (max(shape[1], 1), 1), memory.dtype_of(view))


def _exchanges(positions: Any, rows: Any, kv_rows: Any) -> bool:
    """Whether ranks tell each other something before the call."""
    return not isinstance(positions, str) or any(isinstance(x, str) and x == "exchange" for x in (rows, kv_rows))


def _word(positions: Any) -> str:
    if not isinstance(positions, str) or positions not in POSITIONS:
        raise InvalidArgument(
            "positions are unknown", values=f"positions = {positions!r}", limit=f"must be {' or '.join(POSITIONS)}"
        )
    return positions


def _place(arguments: _core.RingAttentionArguments, positions: Any) -> None:
    if isinstance(positions, str):
        arguments.placement = _word(positions)
        return
    arguments.placement = "given"
    arguments.positions, arguments.kv_positions = _pair("positions", positions)


def _choose_kv_rows(arguments: _core.RingAttentionArguments, rows: Any) -> None:
    if rows is None:
        return
    if not isinstance(rows, str):
        arguments.use_kv_rows(counts("kv_rows", rows))
        return
    if rows != "exchange":
        raise InvalidArgument("kv_rows is unknown", values=f"kv_rows = {rows!r}", limit='None, a list or "exchange"')
    arguments.exchange_kv_rows()


def _pair(name: str, values: Any) -> tuple[list[int], list[int]]:
    """Lists of queries and of keys; one list is that of both, and None an empty one."""
    if values is None:
        return [], []
    is_pair = isinstance(values, tuple) and len(values) == 2 and not any(is_single(one) for one in values)
    of_queries, of_keys = values if is_pair else (values, values)
    return counts(name, _plain(of_queries)), counts(name, _plain(of_keys))


def _own(of_queries: Sequence[int], of_keys: Sequence[int] | None) -> Hashable:
    """Documents, by which calls of one shape differ; None where there are none."""
    return (tuple(of_queries), tuple(of_keys or ())) if of_queries or of_keys else None


def _plain(values: Any) -> Any:
    """A tensor as a list, which spares an object of its library for each number."""
    return values.tolist() if hasattr(values, "tolist") else values


def _rows_of(name: str, rows: int | Sequence[int], ranks: int, positions: str) -> list[int]:
    if is_single(rows) and ranks > 0:
        return shard_rows(count(name, rows), ranks, positions=_word(positions))
    return shared_rows(name, rows, ranks)


def _shape(rows: list[int], heads: Any, d: Any, dtypes: tuple[Any, Any], plan: AnyPlan) -> _core.RingAttentionShape:
    shape = _core.RingAttentionShape()
    shape.rows = rows
    each = [count("heads", heads)] * 2 if is_single(heads) else counts("heads", heads)
    if len(each) != 2:
        raise InvalidArgument("heads has the wrong length", values=f"heads = {each}", limit="one number or two")
    shape.q_heads, shape.kv_heads = each
    shape.head_dim = count("d", d)
    shape.dtype, shape.out_dtype = map(arrays.dtype_name, dtypes)
    shape.plan_json = plan_text(plan)
    return shape


def _with_mask(
    shape: _core.RingAttentionShape, batch: Any, causal: Any, positions: Any, cu_seqlens: Any
) -> _core.RingAttentionShape:
    shape.batch = count("batch", batch)
    shape.causal = switch("causal", causal)
    shape.placement = _word(positions)
    shape.cu_seqlens, shape.kv_cu_seqlens = _pair("cu_seqlens", cu_seqlens)
    return shape
