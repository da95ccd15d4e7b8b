"""AllGather+GEMM: the rows of all ranks' `a`, one below the other, times this rank's own weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewire import _core, arrays
from tilewire.communicator import Communicator, default_communicator
from tilewire.errors import InvalidArgument
from tilewire.plans import AnyPlan, plan_text

_OP = "all_gather_matmul"


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
) -> Any:
    """`all_gather(a) @ b + bias` on every rank, with the gather hidden under the product. Collective; blocks.

    a: [M_r, K], this rank's rows; M_r may be 0. bf16, fp16 or fp32 in host memory, any strides: a numpy array (bf16 by
        ml_dtypes), a torch tensor, or anything with `__dlpack__`. Made by `comm.empty()` it is sent from where it lies.
    b: [K, N] of a's dtype, this rank's weight (N may differ between ranks). A weight that is stored as [N, K] is passed
        as its view `w.T`, which copies nothing. A list of 1 to 8 weights shares one gather and gives a list of results.
    comm: a communicator; None takes the only open one.
    out: where the result goes, [sum M_r, N] of out_dtype, C-contiguous; a list for a list of weights. It must not
        overlap an input.
    plan: a `Plan`, a dict or JSON text; None lets the planner choose. chunk_rows must be equal on all ranks.
    rows: None when all ranks bring the same number of rows; a list of every rank's M_r, the same on all ranks; or
        "exchange": counts travel over the control connection, about one round trip a call.
    bias: [N] values (bf16, fp16 or fp32), added in fp32 before the one rounding; a list (with None where there is none)
        for a list of weights.
    return_gathered: also give the gathered rows, [sum M_r, K] of a's dtype.
    out_dtype: dtype of the result; None takes out's or else a's.

    Gives y [sum M_r, N], or (y, gathered). Results are torch tensors when a is one, else numpy arrays; a given `out` is
    given back. Accumulates in fp32.

    Raises `InvalidArgument` for what this rank's checks refuse (the other ranks get `Refused` with the same text; when
    all refuse, the communicator stays usable), `Mismatch` naming the ranks and both values, `DeadlineError`,
    `PeerLost`, `Aborted`, `ResourceError`, `Closed`. After any but `InvalidArgument` the communicator is dead and the
    results are NaN; a call on a communicator that is dead already leaves `out` as it is.
    """
    comm = default_communicator(comm)
    with comm._refusing(_OP):
        call = _Call(a, b, out, bias, return_gathered, out_dtype)
        _choose_rows(call.arguments, rows)
        call.arguments.plan_json = plan_text(plan)
    comm._note(_core.all_gather_matmul(comm._core, call.arguments, call.make_results))
    return call.result()


class AllGatherMatmul:
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
        self._comm = default_communicator(comm)
        self._is_list = not isinstance(n, int)
        with self._comm._refusing(_OP):
            shape = _core.AllGatherGemmShape()
            shape.rows = _integers("rows", rows)
            shape.k = k
            shape.cols = [n] if isinstance(n, int) else _integers("n", n)
            self._dtype = arrays.numpy_dtype(dtype, "dtype")
            self._out_dtype = self._dtype if out_dtype is None else arrays.numpy_dtype(out_dtype, "out_dtype")
            shape.dtype, shape.out_dtype = arrays.dtype_name(self._dtype), arrays.dtype_name(self._out_dtype)
            shape.return_gathered = return_gathered
            shape.plan_json = plan_text(plan)
        self._return_gathered = return_gathered
        self._handle = _core.AllGatherGemm(self._comm._core, shape)

    @property
    def plan(self) -> str:
        """The plan as JSON text, on this rank."""
        return self._handle.plan_json

    def explain(self) -> str:
        """For people: the plan, its predicted time, and why the other candidates lost."""
        return self._handle.explain()

    def __call__(self, a: Any, b: Any, *, out: Any = None, bias: Any = None) -> Any:
        """One call with the handle's shapes; `a`, `b`, `out`, `bias` and the result as for `all_gather_matmul`."""
        with self._comm._refusing(_OP):
            call = _Call(a, b, out, bias, self._return_gathered, self._out_dtype)
            if call.is_list != self._is_list:
                raise InvalidArgument("b does not fit the handle", limit="a list of weights if n is a list, else one")
        self._comm._note(self._handle(call.arguments, call.make_results))
        return call.result()


class _Call:
    """One call's arrays: keeps them alive, makes the results when their size is known, hands them back."""

    def __init__(self, a: Any, b: Any, out: Any, bias: Any, return_gathered: bool, out_dtype: Any) -> None:
        self.is_list = isinstance(b, (list, tuple))
        self._example = a
        self._a = arrays.as_input(a, "a")
        weights = list(b) if self.is_list else [b]
        self._b = [arrays.as_input(one, self._name("b", i)) for i, one in enumerate(weights)]
        self._check_weights()
        self._bias = self._biases(bias)
        self._out = self._outputs(out)
        self._out_dtype = self._choose_out_dtype(out_dtype)
        self._results: list[Any] = []
        self._gathered: Any = None
        self.arguments = self._arguments(return_gathered)

    def make_results(self, total_rows: int) -> tuple[list[_core.Matrix], _core.Matrix | None]:
        """Called by the core once the number of rows is known, before anything is sent."""
        if self._out is None:
            shapes = [(total_rows, one.shape[1]) for one in self._b]
            self._results = [arrays.new_like(self._example, shape, self._out_dtype) for shape in shapes]
        else:
            self._results = self._out
        views = [arrays.as_output(one, self._name("out", i)) for i, one in enumerate(self._results)]
        gathered = None
        if self.arguments.return_gathered:
            self._gathered = arrays.new_like(self._example, (total_rows, self._a.shape[1]), self._a.dtype)
            gathered = arrays.matrix(arrays.as_output(self._gathered, "gathered"))
        return [arrays.matrix(view) for view in views], gathered

    def result(self) -> Any:
        y = self._results if self.is_list else self._results[0]
        return (y, self._gathered) if self.arguments.return_gathered else y

    def _arguments(self, return_gathered: bool) -> _core.AllGatherGemmArguments:
        arguments = _core.AllGatherGemmArguments()
        arguments.a = arrays.matrix(self._a)
        arguments.b = [arrays.matrix(one) for one in self._b]
        if self._bias is not None:
            arguments.bias = [0 if one is None else arrays.address(one) for one in self._bias]
        arguments.out_dtype = arrays.dtype_name(self._out_dtype)
        arguments.return_gathered = bool(return_gathered)
        return arguments

    def _name(self, argument: str, index: int) -> str:
        return f"{argument}[{index}]" if self.is_list else argument

    def _check_weights(self) -> None:
        """A weight [N, K] given where [K, N] is meant deserves a better word than that the sizes differ."""
        k = self._a.shape[1]
        for i, one in enumerate(self._b):
            if one.shape[0] != k and one.shape[1] == k:
                name = self._name("b", i)
                raise InvalidArgument(
                    f"{name} looks like a weight stored as [N, K]",
                    values=f"a is {list(self._a.shape)}, {name} is {list(one.shape)}",
                    limit=f"{name} must be [K, N] with K = {k}",
                    advice=f"pass {name}.T, a view that copies nothing",
                )

    def _biases(self, bias: Any) -> list[arrays.Array | None] | None:
        if bias is None:
            return None
        each = self._one_a_weight(bias, "bias")
        return [
            None if one is None else arrays.bias_values(one, self._name("bias", i), self._b[i].shape[1])
            for i, one in enumerate(each)
        ]

    def _outputs(self, out: Any) -> list[Any] | None:
        if out is None:
            return None
        each = self._one_a_weight(out, "out")
        for i, one in enumerate(each):
            arrays.as_output(one, self._name("out", i))
        return each

    def _one_a_weight(self, given: Any, name: str) -> list[Any]:
        if isinstance(given, (list, tuple)) != self.is_list:
            raise InvalidArgument(
                f"{name} does not fit b", limit=f"{name} must be a list if b is one, and a single array if b is one"
            )
        each = list(given) if self.is_list else [given]
        if len(each) != len(self._b):
            raise InvalidArgument(
                f"{name} has the wrong length",
                values=f"{len(each)} of {name}, {len(self._b)} weights",
                limit="one for each weight",
            )
        return each

    def _choose_out_dtype(self, out_dtype: Any) -> Any:
        if out_dtype is not None:
            return arrays.numpy_dtype(out_dtype, "out_dtype")
        return arrays.as_numpy(self._out[0], "out").dtype if self._out else self._a.dtype


def _choose_rows(arguments: _core.AllGatherGemmArguments, rows: Sequence[int] | str | None) -> None:
    if isinstance(rows, str):
        if rows != "exchange":
            raise InvalidArgument("rows is unknown", values=f"rows = {rows!r}", limit='None, a list or "exchange"')
        arguments.exchange_rows()
    elif rows is not None:
        arguments.use_rows(_integers("rows", rows))


def _integers(name: str, counts: Sequence[int]) -> list[int]:
    try:
        each = list(counts)
    except TypeError:
        each = [False]
    if any(isinstance(one, bool) or not hasattr(one, "__index__") for one in each):
        raise InvalidArgument(f"{name} is no list of counts", values=f"{name} = {counts!r}", limit="integers")
    return [int(one) for one in each]
