"""GEMM+ReduceScatter: the sum over all ranks of `a @ b`, whose rows are dealt out to the ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewire import _core
from tilewire.argument_checks import count, counts
from tilewire.calling import calling
from tilewire.communicator import Communicator
from tilewire.errors import InvalidArgument
from tilewire.operands import choose_rows, dtypes_of
from tilewire.plans import AnyPlan, Plan, answered, describe_machine, plan_text, shared_rows
from tilewire.reduction import ReductionCall, ReductionHandle, dtype_word, one_weight
from tilewire.weight_calls import Given, fill_shape, prepare

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tilewire.plans import Machine

_OP = "matmul_reduce_scatter"

# What `tilewire plan` says of the shape that `plan_matmul_reduce_scatter` takes.
PLAN_SHAPE: Mapping[str, str] = {
    "m": "M: rows of every rank's a, or of the result on each rank as in 512,0,37.",
    "k": "K: columns of one rank's a.",
    "n": "N: columns of every rank's weight, and of the result.",
}


def matmul_reduce_scatter(
    a: Any,
    b: Any,
    *,
    comm: Communicator | None = None,
    out: Any = None,
    plan: AnyPlan = None,
    rows: Sequence[int] | None = None,
    bias: Any = None,
    residual: Any = None,
    out_dtype: Any = None,
    wire_dtype: Any = None,
    stream: Any = None,
) -> Any:
    """This rank's rows of the sum of all ranks' `a @ b`, `+ bias + residual`, with the sums and their way hidden under
    the products. Collective. On CPU ranks it blocks; on GPU ranks it returns when it is in the stream, as
    `all_gather_matmul` does.

    a: [M, K_r]; M is the same on all ranks, K_r is this rank's own and may be 0: then it adds zeros. bf16, fp16 or fp32
        in host memory, any strides: a numpy array (bf16 by ml_dtypes), a torch tensor, or anything with `__dlpack__`;
        on GPU ranks bf16 or fp16 there.
    b: [K_r, N] of a's dtype; N is the same on all ranks. A weight that is stored as [N, K_r] is passed as its view
        `w.T`, which copies nothing.
    comm: a communicator; None takes the only open one.
    out: where the result goes, [own rows, N] of out_dtype, C-contiguous. It must not overlap an input.
    plan: a `Plan`, a dict or JSON text with the keys that `plan_matmul_reduce_scatter` describes; None lets the planner
        choose. chunk_rows, chunk_cols and window must be equal on all ranks.
    rows: how many rows of the sum each rank gets, the same list on all ranks, M in all. None: as evenly as they go; the
        first M mod R of R ranks get one more.
    bias: [N] values (bf16, fp16 or fp32) that are added to this rank's rows; pass it on every rank.
    residual: [own rows, N] of bf16, fp16 or fp32, any strides, added behind the bias.
    out_dtype: dtype of the result; None takes out's or else a's.
    wire_dtype: what products are rounded to on their way to where they are added; None takes a's dtype. The same on all
        ranks.
    stream: of GPU ranks, as for `all_gather_matmul`.

    What is rounded, all else being fp32: each rank's product to wire_dtype; where there are several nodes, each node's
    sum to bf16 over bf16, and not at all over fp16 (a sum of fp16 numbers may be too large for fp16) and fp32; the
    result to out_dtype. Products are added by rank within a node, then the nodes' sums by node, then bias, then
    residual: the bits of a result depend on the layout of ranks and on wire_dtype, and not on timing or plan, nor on
    who owns a row.

    Gives y [own rows, N], a torch tensor when a is one, else a numpy array; a given `out` is given back.

    Raises `InvalidArgument`, `ResourceError`, `Refused`, `Mismatch`, `DeadlineError`, `PeerLost`, `Aborted`, `Closed`,
    each where `all_gather_matmul` does, and leaves `out` NaN where that does.
    """
    with calling(_OP, comm, rows) as comm:
        here = comm

        def make() -> ReductionCall[_core.GemmReduceScatterArguments]:
            operands = one_weight(here, a, b, stream, bias=bias, out=out, out_dtype=out_dtype)
            call = ReductionCall(_core.GemmReduceScatterArguments(), operands, residual)
            if isinstance(rows, str):
                raise InvalidArgument("rows is unknown", values=f"rows = {rows!r}", limit="None or a list")
            listed = choose_rows(call.arguments, rows)
            call.arguments.wire_dtype = wire = dtype_word("wire_dtype", wire_dtype)
            call.arguments.plan_json = text = plan_text(plan)
            # Of a list that does not fit the core says so.
            each = listed or shared_rows("a", operands.a.shape[0], here.world_size)
            own = each[here.rank] if here.rank < len(each) else None
            call.settle(_OP, (text, wire, residual is None, bias is None, *each), own)
            return call

        is_plain = all(one is None for one in (plan, rows, residual, out_dtype, wire_dtype))
        run = prepare(comm, _OP, Given(a, b, bias, out, stream), is_plain, make)
    return run(partial(_core.matmul_reduce_scatter, comm._core))


class MatmulReduceScatter(ReductionHandle[_core.GemmReduceScatterArguments, _core.GemmReduceScatterShape]):
    """`matmul_reduce_scatter` with its shapes fixed once, for many calls. Creation is collective.

    rows: the rows of the result on every rank, the same list on all ranks. k: columns of this rank's a. n: columns of
    the weights. dtype, out_dtype, wire_dtype and plan as there. Raises what that call raises; agreement, plan and
    memory are settled here, so calls have less to do.
    """

    _arguments = _core.GemmReduceScatterArguments

    def __init__(
        self,
        rows: Sequence[int],
        k: int,
        n: int,
        *,
        comm: Communicator | None = None,
        dtype: Any = "bf16",
        out_dtype: Any = None,
        wire_dtype: Any = None,
        plan: AnyPlan = None,
    ) -> None:
        def shape() -> _core.GemmReduceScatterShape:
            return _shape(counts("rows", rows), k, n, dtypes_of(dtype, out_dtype), wire_dtype, plan)

        super().__init__(_OP, comm, n, shape, _core.GemmReduceScatter)

    def _result_rows(self, rank: int) -> int:
        return self._shape.rows[rank]


def plan_matmul_reduce_scatter(
    m: int | Sequence[int],
    k: int,
    n: int,
    *,
    dtype: Any = "bf16",
    out_dtype: Any = None,
    wire_dtype: Any = None,
    plan: AnyPlan = None,
    **machine: Unpack[Machine],
) -> Plan:
    """What `matmul_reduce_scatter` would do on some cluster, worked out without one.

    m: rows of every rank's a, which are dealt out over the ranks as evenly as they go; or a list of the rows of the
    result on each rank. k: columns of this rank's a, and of the others', as far as the prediction goes. n: columns of
    the weights. dtype, out_dtype and wire_dtype as there.
    plan: ask about this plan instead of the planner's choice. The keys of a plan, all of them needed:

        op              "matmul_reduce_scatter"
        chunk_rows      1 to 2**40: rows of a chunk, all of them of one rank's result. A chunk is multiplied by one
                        worker, travels and is added up as one. Equal on all ranks, as are chunk_cols and window. The
                        chunks that a rank adds up for its rail (its own, and those of its partners on other nodes) may
                        not be more than max_chunks_per_source.
        chunk_cols      1 to 2**40: columns of a chunk
        window          0 to 2**20: so many chunks of each rank's result have memory for every source at a time; more
                        wait until others are added up. 0: all have. It bounds all memory but that of sums that are sent
        is_fused        true: a chunk is added up as soon as all ranks of the node have made it; false: this rank makes
                        all its chunks first. Not with a window
        workers         1 to 4096: compute threads of the rank
        reduce_workers  1 to 256: threads that add up for other nodes, and as many for its own rows
        load_ahead      0 to 64: steps of a role whose inputs are waited for before the current one is done
        publish_behind  0 to 64: steps of a role that may be done before the others are told

    nodes, rank, machine, workers, worker_tflops, copy_gb_per_s, node_gb_per_s, node_latency_us, network_gbit_per_s,
    network_latency_us, step_us, command_us and timeline describe the machine: `tilewire.plans.Machine` says what each
    means, `tilewire.plans.machines()` which have a name.

    Raises `InvalidArgument` naming the number that cannot be, `ResourceError` when no plan fits the arena.
    """
    query = _core.GemmReduceScatterQuery()
    ranks = describe_machine(query, machine)
    query.shape = _shape(shared_rows("m", m, ranks), k, n, dtypes_of(dtype, out_dtype), wire_dtype, plan)
    return answered(_core.plan_matmul_reduce_scatter(query))


def _shape(
    rows: list[int], k: Any, n: Any, dtypes: tuple[Any, Any], wire_dtype: Any, plan: AnyPlan
) -> _core.GemmReduceScatterShape:
    shape = fill_shape(_core.GemmReduceScatterShape(), rows=rows, k=k, n=count("n", n), dtypes=dtypes, plan=plan)
    shape.wire_dtype = dtype_word("wire_dtype", wire_dtype)
    return shape
