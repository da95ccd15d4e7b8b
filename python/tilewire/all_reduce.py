"""GEMM+AllReduce: the sum over all ranks of `a @ b`, all of it on every rank."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewire import _core
from tilewire.argument_checks import count
from tilewire.calling import calling
from tilewire.communicator import Communicator
from tilewire.operands import dtypes_of
from tilewire.plans import AnyPlan, Plan, answered, describe_machine, plan_text
from tilewire.reduction import ReductionCall, ReductionHandle, dtype_word, one_weight
from tilewire.weight_calls import Given, fill_shape, prepare

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tilewire.plans import Machine

_OP = "matmul_all_reduce"

# What `tilewire plan` says of the shape that `plan_matmul_all_reduce` takes.
PLAN_SHAPE: Mapping[str, str] = {
    "m": "M: rows of every rank's a, and of the result.",
    "k": "K: columns of one rank's a.",
    "n": "N: columns of every rank's weight, and of the result.",
}


def matmul_all_reduce(
    a: Any,
    b: Any,
    *,
    comm: Communicator | None = None,
    out: Any = None,
    plan: AnyPlan = None,
    bias: Any = None,
    residual: Any = None,
    out_dtype: Any = None,
    wire_dtype: Any = None,
    stream: Any = None,
) -> Any:
    """The sum of all ranks' `a @ b`, `+ bias + residual`, on every rank, with the sums and their way hidden under the
    products. Collective. On CPU ranks it blocks; on GPU ranks it returns when it is in the stream, as
    `all_gather_matmul` does.

    a: [M, K_r]; M is the same on all ranks, K_r is this rank's own and may be 0: then it adds zeros. bf16, fp16 or fp32
        in host memory, any strides: a numpy array (bf16 by ml_dtypes), a torch tensor, or anything with `__dlpack__`;
        on GPU ranks bf16 or fp16 there.
    b: [K_r, N] of a's dtype; N is the same on all ranks. A weight that is stored as [N, K_r] is passed as its view
        `w.T`, which copies nothing.
    comm: a communicator; None takes the only open one.
    out: where the result goes, [M, N] of out_dtype, C-contiguous. It must not overlap an input.
    plan: a `Plan`, a dict or JSON text with the keys that `plan_matmul_all_reduce` describes; None lets the planner
        choose. is_one_shot, chunk_rows, chunk_cols and window must be equal on all ranks.
    bias: [N] values (bf16, fp16 or fp32), added once. On all ranks or on none, and the same: which rank's are taken
        is the plan's to say.
    residual: [M, N] of bf16, fp16 or fp32, any strides, added behind the bias, likewise.
    out_dtype: dtype of the result, the same on all ranks; None takes out's or else a's.
    wire_dtype: what products are rounded to on their way to where they are added; None takes a's dtype. The same on all
        ranks.
    stream: of GPU ranks, as for `all_gather_matmul`.

    What is rounded is what `matmul_reduce_scatter` rounds. All ranks get the same bits, whatever the plan.

    Gives y [M, N], a torch tensor when a is one, else a numpy array; a given `out` is given back.

    Raises `InvalidArgument`, `ResourceError`, `Refused`, `Mismatch`, `DeadlineError`, `PeerLost`, `Aborted`, `Closed`,
    each where `all_gather_matmul` does, and leaves `out` NaN where that does.
    """
    with calling(_OP, comm) as comm:
        here = comm

        def make() -> ReductionCall[_core.GemmAllReduceArguments]:
            operands = one_weight(here, a, b, stream, bias=bias, out=out, out_dtype=out_dtype)
            call = ReductionCall(_core.GemmAllReduceArguments(), operands, residual)
            call.arguments.wire_dtype = wire = dtype_word("wire_dtype", wire_dtype)
            call.arguments.plan_json = text = plan_text(plan)
            call.settle(_OP, (text, wire, residual is None, bias is None), operands.a.shape[0])
            return call

        is_plain = all(one is None for one in (plan, residual, out_dtype, wire_dtype))
        run = prepare(comm, _OP, Given(a, b, bias, out, stream), is_plain, make)
    return run(partial(_core.matmul_all_reduce, comm._core))


class MatmulAllReduce(ReductionHandle[_core.GemmAllReduceArguments, _core.GemmAllReduceShape]):
    """`matmul_all_reduce` with its shapes fixed once, for many calls. Creation is collective.

    m: rows of every rank's a. k: columns of this rank's a. n: columns of the weights. has_bias and has_residual:
    whether calls bring them. dtype, out_dtype, wire_dtype and plan as there. Raises what that call raises; agreement,
    plan and memory are settled here, so calls have less to do.
    """

    _arguments = _core.GemmAllReduceArguments

    def __init__(
        self,
        m: int,
        k: int,
        n: int,
        *,
        comm: Communicator | None = None,
        dtype: Any = "bf16",
        out_dtype: Any = None,
        wire_dtype: Any = None,
        has_bias: bool = False,
        has_residual: bool = False,
        plan: AnyPlan = None,
    ) -> None:
        def shape() -> _core.GemmAllReduceShape:
            shape = _shape(m, k, n, dtypes_of(dtype, out_dtype), wire_dtype, plan)
            shape.has_bias, shape.has_residual = bool(has_bias), bool(has_residual)
            return shape

        super().__init__(_OP, comm, n, shape, _core.GemmAllReduce)

    def _result_rows(self, rank: int) -> int:
        return self._shape.rows[0]


def plan_matmul_all_reduce(
    m: int,
    k: int,
    n: int,
    *,
    dtype: Any = "bf16",
    out_dtype: Any = None,
    wire_dtype: Any = None,
    plan: AnyPlan = None,
    **machine: Unpack[Machine],
) -> Plan:
    """What `matmul_all_reduce` would do on some cluster, worked out without one.

    m: rows of every rank's a. k: columns of this rank's a, and of the others', as far as the prediction goes. n:
    columns of the weights. dtype, out_dtype and wire_dtype as there.
    plan: ask about this plan instead of the planner's choice. The keys of a plan, all of them needed:

        op              "matmul_all_reduce"
        is_one_shot     false: each chunk of the result is finished by one rank, its owner, which sends it to all
                        others; true: every rank finishes everything from what all ranks of its node and each other
                        node leave with it. For few rows, where the way of the data is shorter than its waits. Equal on
                        all ranks
        chunk_rows      1 to 2**40: rows of a chunk. A chunk is multiplied by one worker, travels and is added up as
                        one. Equal on all ranks, as are chunk_cols and window. The chunks that a rank adds up for its
                        rail, or in one shot all chunks, may not be more than max_chunks_per_source.
        chunk_cols      1 to 2**40: columns of a chunk
        window          0 to 2**20: so many chunks of each owner have memory for every source at a time; more wait until
                        others are added up. 0: all have. It bounds all memory but that of sums and results that this
                        rank sends. Not in one shot
        is_fused        true: a chunk is added up as soon as all ranks of the node have made it; false: this rank makes
                        all its chunks first. Not with a window
        workers         1 to 4096: compute threads of the rank
        reduce_workers  1 to 256: threads that add up for other nodes, as many for its own chunks, and as many that copy
                        results of other ranks
        gather_behind   0 to 2**20: results are sent so many rounds of chunks behind the sums for other nodes; under a
                        window fewer than that
        load_ahead      0 to 64: steps of a role whose inputs are waited for before the current one is done
        publish_behind  0 to 64: steps of a role that may be done before the others are told

    nodes, rank, machine, workers, worker_tflops, copy_gb_per_s, node_gb_per_s, node_latency_us, network_gbit_per_s,
    network_latency_us, step_us, command_us and timeline describe the machine: `tilewire.plans.Machine` says what each
    means, `tilewire.plans.machines()` which have a name.

    Raises `InvalidArgument` naming the number that cannot be, `ResourceError` when no plan fits the arena.
    """
    query = _core.GemmAllReduceQuery()
    describe_machine(query, machine)
    query.shape = _shape(m, k, n, dtypes_of(dtype, out_dtype), wire_dtype, plan)
    return answered(_core.plan_matmul_all_reduce(query))


def _shape(m: Any, k: Any, n: Any, dtypes: tuple[Any, Any], wire_dtype: Any, plan: AnyPlan) -> _core.GemmAllReduceShape:
    rows = [count("m", m)]
    shape = fill_shape(_core.GemmAllReduceShape(), rows=rows, k=k, n=count("n", n), dtypes=dtypes, plan=plan)
    shape.wire_dtype = dtype_word("wire_dtype", wire_dtype)
    return shape
