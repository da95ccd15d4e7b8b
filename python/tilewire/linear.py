"""What a sharded model needs of the machine below it, and two ways to have it.

`Linear` is the whole contract. `LocalLinear` is one rank in plain numpy: the unsharded reference. `OpLinear` is any
number of ranks over Tilewire's operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


class Linear(Protocol):
    """One rank's view of R ranks. Every method is collective: all ranks call it, in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    def all_gather_matmul(
        self, a: Array, b: Sequence[Array], rows: Sequence[int], bias: Sequence[Array | None]
    ) -> list[Array]:
        """Gathers the row shards `a` [rows[rank], K] once and multiplies them by this rank's weights.

        Each `b[i]` is [K, N_i] (any strides, N_i may be 0 and differ between ranks), each `bias[i]` is fp32 [N_i] or
        None. Gives [sum(rows), N_i] in the dtype of `a`: accumulated and biased in fp32, rounded once.
        """
        ...

    def matmul_reduce_scatter(self, a: Array, b: Array, rows: Sequence[int], bias: Array, residual: Array) -> Array:
        """This rank's rows[rank] rows of the sum over ranks of `a` [sum(rows), K_r] times `b` [K_r, N].

        K_r is each rank's own, strides are any. Plus `bias` fp32 [N] and `residual` fp32 [rows[rank], N]. In fp32, and
        nothing is rounded on its way.
        """
        ...

    def all_gather_rows(self, x: Array, rows: Sequence[int]) -> Array:
        """Every rank's `x` [rows[rank], K], one below the other in rank order; bits are untouched."""
        ...


def local_matmul(a: Array, b: Array, bias: Array | None) -> Array:
    """`a @ b + bias` with fp32 accumulation and one rounding to the dtype of `a`."""
    product = a.astype(np.float32) @ b.astype(np.float32)
    if bias is not None:
        product += bias.astype(np.float32)
    return product.astype(a.dtype)


class LocalLinear:
    """World size 1: nothing moves."""

    rank = 0
    world_size = 1

    def all_gather_matmul(
        self, a: Array, b: Sequence[Array], rows: Sequence[int], bias: Sequence[Array | None]
    ) -> list[Array]:
        check_rows(self, a, rows)
        return [local_matmul(a, weight, one_bias) for weight, one_bias in zip(b, bias, strict=True)]

    def matmul_reduce_scatter(self, a: Array, b: Array, rows: Sequence[int], bias: Array, residual: Array) -> Array:
        check_rows(self, a, rows)
        total: Array = a.astype(np.float32) @ b.astype(np.float32) + bias + residual
        return total

    def all_gather_rows(self, x: Array, rows: Sequence[int]) -> Array:
        check_rows(self, x, rows)
        return x


class Caller(Protocol):
    """One rank that can call Tilewire's operations."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    def call(self, op: str, *arguments: Any, **options: Any) -> Any:
        """What `tilewire.<op>` gives for these arguments, `comm` aside."""
        ...


class OpLinear:
    """Any number of ranks over the operations."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    @property
    def rank(self) -> int:
        return self._caller.rank

    @property
    def world_size(self) -> int:
        return self._caller.world_size

    def all_gather_matmul(
        self, a: Array, b: Sequence[Array], rows: Sequence[int], bias: Sequence[Array | None]
    ) -> list[Array]:
        check_rows(self, a, rows)
        biases = list(bias) if any(one is not None for one in bias) else None
        return list(self._caller.call("all_gather_matmul", a, list(b), rows=list(rows), bias=biases))

    def matmul_reduce_scatter(self, a: Array, b: Array, rows: Sequence[int], bias: Array, residual: Array) -> Array:
        check_rows(self, residual, rows)
        options = {"bias": bias, "residual": residual, "out_dtype": np.float32, "wire_dtype": np.float32}
        result: Array = self._caller.call("matmul_reduce_scatter", a, b, rows=list(rows), **options)
        return result

    def all_gather_rows(self, x: Array, rows: Sequence[int]) -> Array:
        check_rows(self, x, rows)
        # As elements of 16 bits: GPU ranks take no others, and to a gather they are bits.
        narrow = np.ascontiguousarray(x).view(np.float16)
        no_columns = np.zeros((narrow.shape[1], 0), dtype=narrow.dtype)
        _, gathered = self._caller.call("all_gather_matmul", narrow, no_columns, rows=list(rows), return_gathered=True)
        # The gathered rows may live in memory that the next call writes again.
        whole: Array = np.array(gathered, copy=True).view(x.dtype)
        return whole


def check_rows(linear: Linear, x: Array, rows: Sequence[int]) -> None:
    """Raises ValueError when the shard does not have the rows that this rank said it would bring."""
    if x.ndim != 2:
        raise ValueError(f"a shard has {x.ndim} dimensions, must be 2")
    if len(rows) != linear.world_size:
        raise ValueError(f"rows has {len(rows)} counts, must be one a rank (world size {linear.world_size})")
    if x.shape[0] != rows[linear.rank]:
        raise ValueError(f"rank {linear.rank} brings {x.shape[0]} rows, rows[{linear.rank}] = {rows[linear.rank]}")
