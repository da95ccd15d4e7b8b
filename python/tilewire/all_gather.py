"""AllGather+GEMM: the rows of all ranks' `a`, one below the other, times this rank's own weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewire import _core
from tilewire.argument_checks import counts, switch
from tilewire.calling import calling
from tilewire.communicator import Communicator
from tilewire.operands import Operands, choose_rows, dtypes_of
from tilewire.plans import AnyPlan, Plan, answered, describe_machine, plan_text, shared_rows
from tilewire.weight_calls import Given, WeightCall, WeightHandle, fill_shape, prepare

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tilewire.plans import Machine

_OP = "all_gather_matmul"

# What `tilewire plan` says of the shape that `plan_all_gather_matmul` takes.
PLAN_SHAPE: Mapping[str, str] = {
    "m": "M: rows of all ranks together, or of each rank as in 512,0,37.",
    "k": "K: columns of a.",
    "n": "N: columns of one rank's weight, or of each of its weights as in 64,64.",
}


def all_gather_matmul(
    a: Any,
    b: Any,
    *,
    comm: Communicator | None = None,
    out: Any = None,
    plan: AnyPlan = None,
    rows: Sequence[int] | str | None = None,
    bias: Any = None,
    return_gathered: bool = False,
    out_dtype: Any = None,
    stream: Any = None,
) -> Any:
    """`all_gather(a) @ b + bias` on every rank, with the gather hidden under the product. Collective. On CPU ranks it
    blocks; on GPU ranks it returns when it is in the stream, and the first call of a shape waits for the other ranks.

    a: [M_r, K], this rank's rows; M_r may be 0. bf16, fp16 or fp32 in host memory, any strides: a numpy array (bf16 by
        ml_dtypes), a torch tensor, or anything with `__dlpack__`. Made by `comm.empty()` it is sent from where it lies.
        On GPU ranks bf16 or fp16 in the memory of this rank's GPU: a torch tensor, an array of CuPy, or anything with
        `__dlpack__`. What a kernel cannot follow (rows that do not begin at multiples of 16 bytes) is copied in each
        call, and a RuntimeWarning says so; docs/python-on-gpus.md has all of it.
    b: [K, N] of a's dtype, this rank's weight (N may differ between ranks). A weight that is stored as [N, K] is passed
        as its view `w.T`, which copies nothing. A list of 1 to 8 weights shares one gather and gives a list of results.
    comm: a communicator; None takes the only open one.
    out: where the result goes, [sum M_r, N] of out_dtype, C-contiguous; a list for a list of weights. It must not
        overlap an input.
    plan: a `Plan`, a dict or JSON text with the keys that `plan_all_gather_matmul` describes; None lets the planner
        choose. chunk_rows must be equal on all ranks.
    rows: None when all ranks bring the same number of rows; a list of every rank's M_r, the same on all ranks; or
        "exchange": counts travel over the control connection, one round trip a call, and one more where these counts
        are new.
    bias: [N] values (bf16, fp16 or fp32), added in fp32 before the one rounding; a list (with None where there is none)
        for a list of weights.
    return_gathered: also give the gathered rows, [sum M_r, K] of a's dtype, in memory of the caller's own.
    out_dtype: dtype of the result; None takes out's or else a's.
    stream: of GPU ranks: a stream of torch or CuPy, an object with `__cuda_stream__`, or a cudaStream_t as an integer;
        None takes the current one of the library of a. Calls of a communicator follow each other on any streams. A call
        that was made before may be captured in a graph.

    Gives y [sum M_r, N], or (y, gathered). Results are torch tensors when a is one, else numpy arrays, and CuPy arrays
    where a is one; a given `out` is given back. Accumulates in fp32.

    Raises `InvalidArgument` for what this rank's checks refuse, `ResourceError` when a result does not fit into memory
    (the other ranks get `Refused` with the same text; when all refuse, the communicator stays usable), `Mismatch`
    naming the ranks and both values, `DeadlineError`, `PeerLost`, `Aborted`, `ResourceError`, `Closed`. After any but a
    refusal by all the communicator is dead and the results are NaN; a call on a communicator that is dead already
    leaves `out` as it is. On GPU ranks what goes wrong once the call is in its stream is raised by the next call,
    `comm.check()`, `comm.synchronize()` or at `close()`.
    """
    with calling(_OP, comm, rows) as comm:
        memory, ranks = comm._memory, comm.world_size

        def make() -> _Call:
            operands = Operands(memory(a, stream), a, b, bias=bias, out=out, out_dtype=out_dtype)
            call = _Call(operands, switch("return_gathered", return_gathered))
            listed = choose_rows(call.arguments, rows)
            call.arguments.plan_json = text = plan_text(plan)
            shared = (text, call.arguments.return_gathered)
            if rows is None:
                call.settle(_OP, shared, operands.a.shape[0] * ranks)
            elif listed is not None:
                call.settle(_OP, (*shared, *listed), sum(listed))
            return call

        is_plain = rows is None and plan is None and return_gathered is False and out_dtype is None
        run = prepare(comm, _OP, Given(a, b, bias, out, stream), is_plain, make)
    return run(partial(_core.all_gather_matmul, comm._core))


class AllGatherMatmul(WeightHandle[_core.AllGatherGemmArguments, _core.AllGatherGemmShape]):
    """`all_gather_matmul` with its shapes fixed once, for many calls. Creation is collective.

    rows: the rows of every rank, the same list on all ranks. k: columns of a. n: columns of this rank's weight, or a
    list of those of several weights that share one gather. dtype, out_dtype, return_gathered and plan as there.
    Raises what that call raises; agreement, plan and memory are settled here, so calls have less to do.
    """

    def __init__(
        self,
        rows: Sequence[int],
        k: int,
        n: int | Sequence[int],
        *,
        comm: Communicator | None = None,
        dtype: Any = "bf16",
        out_dtype: Any = None,
        return_gathered: bool = False,
        plan: AnyPlan = None,
    ) -> None:
        def shape() -> _core.AllGatherGemmShape:
            return _shape(counts("rows", rows), k, n, dtypes_of(dtype, out_dtype), return_gathered, plan)

        super().__init__(_OP, comm, n, shape, _core.AllGatherGemm)

    def _make_call(self, operands: Operands) -> _Call:
        return _Call(operands, self._shape.return_gathered)

    def _result_rows(self, rank: int) -> int:
        return sum(self._shape.rows)


def plan_all_gather_matmul(
    m: int | Sequence[int],
    k: int,
    n: int | Sequence[int],
    *,
    dtype: Any = "bf16",
    out_dtype: Any = None,
    return_gathered: bool = False,
    plan: AnyPlan = None,
    **machine: Unpack[Machine],
) -> Plan:
    """What `all_gather_matmul` would do on some cluster, worked out without one.

    m: rows of each rank; one number is shared out over the ranks as evenly as they go. k: columns of a.
    n: columns of this rank's weight, or of each weight of a list. dtype, out_dtype and return_gathered as there.
    plan: ask about this plan instead of the planner's choice. The keys of a plan, all of them needed:

        op              "all_gather_matmul"
        chunk_rows      1 to 2**40: rows of a that travel together; equal on all ranks. More means fewer messages of
                        which the first comes later. No rank's rows may make more than max_chunks_per_source chunks.
        is_fused        true: a tile is computed as soon as its rows are there; false: gather all, then multiply
        tile_rows       1 to 4096: rows of the result that a worker computes at a time
        tile_cols       1 to 4096: columns of it
        raster_rows     1 to 2**20: blocks of tile_rows that are walked together, column block by column block
        workers         1 to 4096: compute threads of the rank
        push_workers    1 to 256: threads that copy its rows to the ranks of its node; the planner takes 1
        load_ahead      0 to 64: steps of a role whose inputs are waited for before the current one is done
        publish_behind  0 to 64: steps of a role that may be done before the others are told

    nodes, rank, machine, workers, worker_tflops, copy_gb_per_s, node_gb_per_s, node_latency_us, network_gbit_per_s,
    network_latency_us, step_us, command_us and timeline describe the machine: `tilewire.plans.Machine` says what each
    means, `tilewire.plans.machines()` which have a name.

    Raises `InvalidArgument` naming the number that cannot be, `ResourceError` when no plan fits the arena.
    """
    query = _core.AllGatherGemmQuery()
    ranks = describe_machine(query, machine)
    query.shape = _shape(shared_rows("m", m, ranks), k, n, dtypes_of(dtype, out_dtype), return_gathered, plan)
    return answered(_core.plan_all_gather_matmul(query))


def _shape(
    rows: list[int], k: Any, n: Any, dtypes: tuple[Any, Any], return_gathered: Any, plan: AnyPlan
) -> _core.AllGatherGemmShape:
    shape = fill_shape(_core.AllGatherGemmShape(), rows=rows, k=k, n=n, dtypes=dtypes, plan=plan)
    shape.return_gathered = switch("return_gathered", return_gathered)
    return shape


class _Call(WeightCall[_core.AllGatherGemmArguments]):
    """Its results may have the gathered rows with them."""

    def __init__(self, operands: Operands, return_gathered: bool) -> None:
        super().__init__(_core.AllGatherGemmArguments(), operands)
        self._gathered: Any = None
        self.arguments.return_gathered = return_gathered
        self.is_repeatable = not return_gathered

    def make_results(self, rows: int) -> tuple[list[_core.Matrix], _core.Matrix | None]:
        results = super().make_results(rows)
        if not self.arguments.return_gathered:
            return results, None
        self._gathered = self.operands.new_like_a("the gathered rows", rows)
        memory = self.operands.memory
        return results, memory.matrix(memory.view_result(self._gathered, "gathered"))

    @staticmethod
    def pack_results(views: list[_core.Matrix]) -> tuple[list[_core.Matrix], None]:
        return views, None

    def result(self) -> Any:
        y = super().result()
        return (y, self._gathered) if self.arguments.return_gathered else y
