"""The compiled core: the public C++ interface, thinly. What users call is in the package's other modules."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

class _Store(Protocol):
    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str) -> bytes | None: ...

class Communicator:
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def node(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def layout(self) -> str: ...
    @property
    def transport(self) -> str: ...
    @property
    def gpu(self) -> int: ...
    @property
    def is_idle(self) -> bool: ...
    @property
    def id(self) -> str: ...
    @property
    def is_closed(self) -> bool: ...
    def option(self, name: str, /) -> str: ...
    def barrier(self) -> None: ...
    def all_gather_bytes(self, mine: bytes, /) -> list[bytes]: ...
    def check(self) -> None: ...
    def synchronize(self) -> None: ...
    def close(self) -> None: ...
    def forget(self) -> None: ...
    def abort(self, why: str, /) -> None: ...
    def refuse_call(self, op: str, error: Exception, exchanges_rows: bool, /) -> None: ...
    def start_trace(self) -> None: ...
    def stop_trace(self) -> None: ...
    def trace_event_count(self) -> int: ...
    def trace_dropped(self) -> int: ...
    def trace_events(self, first: int, /) -> list[dict[str, Any]]: ...

class ArenaBlock:
    def __init__(self, comm: Communicator, bytes: int) -> None: ...
    @property
    def address(self) -> int: ...

def gpu_array(block: ArenaBlock, shape: Sequence[int], dtype: str) -> Any: ...

class ForeignArray:
    def __init__(self, array: Any) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def is_on_cpu(self) -> bool: ...
    @property
    def gpu(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> list[int]: ...
    @property
    def strides(self) -> list[int]: ...

# --- what all operations share: python/src/call.cc

class Matrix:
    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> None: ...

class CallReport:
    @property
    def seconds(self) -> float: ...
    @property
    def predicted_s(self) -> float: ...
    @property
    def copy_bytes(self) -> int: ...
    @property
    def node_bytes(self) -> int: ...
    @property
    def network_bytes(self) -> int: ...
    @property
    def plan_json(self) -> str: ...

class MachineQuery:
    ranks_per_node: Sequence[int]
    rank: int
    machine: str
    workers: int | None
    worker_tflops: float | None
    copy_gb_per_s: float | None
    node_gb_per_s: float | None
    node_latency_us: float | None
    network_gbit_per_s: float | None
    network_latency_us: float | None
    step_us: float | None
    command_us: float | None
    wants_timeline: bool

class PlanAnswer:
    @property
    def plan_json(self) -> str: ...
    @property
    def explanation(self) -> str: ...
    @property
    def predicted_s(self) -> float: ...
    @property
    def compute_s(self) -> float: ...
    @property
    def communication_s(self) -> float: ...
    @property
    def simulated_s(self) -> float: ...
    @property
    def timeline(self) -> list[dict[str, Any]]: ...

def init(settings: Mapping[str, str], store: _Store | None) -> Communicator: ...
def refuse_init(settings: Mapping[str, str], store: _Store | None, error: BaseException) -> None: ...
def check_options(variables: Mapping[str, str]) -> None: ...
def has_gpu_ranks() -> bool: ...
def link_test(settings: Mapping[str, str], seconds: float, messages: int, report: str) -> tuple[int, str, str]: ...
def transports() -> list[tuple[str, str, str]]: ...
def machines() -> list[tuple[str, str, int, dict[str, float]]]: ...

# --- what every operation has: python/src/op_binding.h

_A = TypeVar("_A", contravariant=True)  # arguments
_S = TypeVar("_S")  # the shape of a handle
_R = TypeVar("_R", contravariant=True)  # what make_results gives

class _OpArguments:
    plan_json: str
    def __init__(self) -> None: ...

class _OpShape:
    plan_json: str
    def __init__(self) -> None: ...

class _OpQuery(MachineQuery, Generic[_S]):
    shape: _S
    def __init__(self) -> None: ...

class _OpFunction(Protocol[_A, _R]):
    def __call__(
        self,
        comm: Communicator,
        arguments: _A,
        make_results: Callable[..., _R],
        stream: int | None = None,
        results: _R | None = None,
    ) -> CallReport: ...

class _OpHandle(Generic[_A, _S, _R]):
    def __init__(self, comm: Communicator, shape: _S) -> None: ...
    def __call__(
        self,
        arguments: _A,
        make_results: Callable[..., _R],
        stream: int | None = None,
        results: _R | None = None,
    ) -> CallReport: ...
    @property
    def plan_json(self) -> str: ...
    def explain(self) -> str: ...

# --- what operations have that multiply by weights: python/src/weight_binding.h

class _WeightArguments(_OpArguments):
    a: Matrix
    b: Sequence[Matrix]
    bias: Sequence[int]
    bias_dtype: str
    out_dtype: str

class _RowArguments:
    def use_rows(self, rows: Sequence[int], /) -> None: ...
    def exchange_rows(self) -> None: ...

class _WeightShape(_OpShape):
    rows: Sequence[int]
    k: int
    cols: Sequence[int]
    dtype: str
    out_dtype: str

# --- python/src/all_gather.cc

_AllGatherResults = tuple[list[Matrix], Matrix | None]

class AllGatherGemmArguments(_WeightArguments, _RowArguments):
    return_gathered: bool

class AllGatherGemmShape(_WeightShape):
    return_gathered: bool

class AllGatherGemmQuery(_OpQuery[AllGatherGemmShape]): ...
class AllGatherGemm(_OpHandle[AllGatherGemmArguments, AllGatherGemmShape, _AllGatherResults]): ...

all_gather_matmul: _OpFunction[AllGatherGemmArguments, _AllGatherResults]

def plan_all_gather_matmul(query: AllGatherGemmQuery) -> PlanAnswer: ...

# --- python/src/reduce_scatter.cc

class GemmReduceScatterArguments(_WeightArguments, _RowArguments):
    residual: Matrix | None
    wire_dtype: str

class GemmReduceScatterShape(_WeightShape):
    wire_dtype: str

class GemmReduceScatterQuery(_OpQuery[GemmReduceScatterShape]): ...
class GemmReduceScatter(_OpHandle[GemmReduceScatterArguments, GemmReduceScatterShape, list[Matrix]]): ...

matmul_reduce_scatter: _OpFunction[GemmReduceScatterArguments, list[Matrix]]

def plan_matmul_reduce_scatter(query: GemmReduceScatterQuery) -> PlanAnswer: ...

# --- python/src/all_reduce.cc

class GemmAllReduceArguments(_WeightArguments):
    residual: Matrix | None
    wire_dtype: str

class GemmAllReduceShape(_WeightShape):
    wire_dtype: str
    has_bias: bool
    has_residual: bool

class GemmAllReduceQuery(_OpQuery[GemmAllReduceShape]): ...
class GemmAllReduce(_OpHandle[GemmAllReduceArguments, GemmAllReduceShape, list[Matrix]]): ...

matmul_all_reduce: _OpFunction[GemmAllReduceArguments, list[Matrix]]

def plan_matmul_all_reduce(query: GemmAllReduceQuery) -> PlanAnswer: ...

# --- python/src/ring_attention.cc

class Heads:
    def __init__(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> None: ...

class RingAttentionArguments(_OpArguments, _RowArguments):
    q: Heads
    k: Heads
    v: Heads
    causal: bool
    scale: float | None
    placement: str
    positions: Sequence[int]
    kv_positions: Sequence[int] | None
    cu_seqlens: Sequence[int]
    kv_cu_seqlens: Sequence[int] | None
    out_dtype: str
    def use_kv_rows(self, rows: Sequence[int]) -> None: ...
    def exchange_kv_rows(self) -> None: ...

class RingAttentionShape(_OpShape):
    rows: Sequence[int]
    kv_rows: Sequence[int]
    batch: int
    q_heads: int
    kv_heads: int
    head_dim: int
    dtype: str
    out_dtype: str
    causal: bool
    placement: str
    cu_seqlens: Sequence[int]
    kv_cu_seqlens: Sequence[int] | None

class RingAttentionQuery(_OpQuery[RingAttentionShape]): ...
class RingAttention(_OpHandle[RingAttentionArguments, RingAttentionShape, tuple[Matrix, Matrix]]): ...

ring_attention: _OpFunction[RingAttentionArguments, tuple[Matrix, Matrix]]

def plan_ring_attention(query: RingAttentionQuery) -> PlanAnswer: ...
def zigzag_rows(total: int, ranks: int) -> list[int]: ...

# --- python/src/moe_dispatch.cc

_MoeDispatchResults = tuple[Matrix, int, int]

class MoeDispatchGemmArguments(_OpArguments):
    x: Matrix
    w1: Sequence[Matrix]
    cols: int
    experts: Sequence[int]
    out_dtype: str
    max_tokens: int | None
    max_source_tokens: int | None
    def use_ids(self, address: int, shape: tuple[int, int], strides: tuple[int, int], is_64_bit: bool, /) -> None: ...

class MoeDispatchGemmShape(_OpShape):
    experts: Sequence[int]
    h: int
    cols: int
    k: int
    max_tokens: int
    max_source_tokens: int | None
    tokens: int
    dtype: str
    out_dtype: str

class MoeDispatchGemmQuery(_OpQuery[MoeDispatchGemmShape]): ...
class MoeDispatchGemm(_OpHandle[MoeDispatchGemmArguments, MoeDispatchGemmShape, _MoeDispatchResults]): ...

moe_dispatch_matmul: _OpFunction[MoeDispatchGemmArguments, _MoeDispatchResults]

def plan_moe_dispatch_matmul(query: MoeDispatchGemmQuery) -> PlanAnswer: ...
