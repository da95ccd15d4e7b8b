"""Compares a result with its reference, element by element, and judges by the worst one.

**Tolerance.** An inner product of K terms with fp32 accumulation in any order satisfies

    |c^ - c| <= gamma(K) * sum_k |a_k| |b_k|,   gamma(n) = n u32 / (1 - n u32),   u32 = 2^-24

(N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1 and equation 3.13). A bias adds one
operation: gamma(K + 1), its absolute value joins the sum. The result is then rounded once to the output's dtype with
unit roundoff u (bf16 2^-8, fp16 2^-11, fp32 none) and smallest positive value eta. Each element is allowed

    tolerance = (1 + u) * gamma * (sum_k |a_k| |b_k| + |bias|) + u * |c| + eta / 2.

**Exact data.** When a, b and bias hold integers and K max|a| max|b| + max|bias| < 2^24, every partial sum in every
order is exact in fp32. Then the result has to be *the* rounding of the reference: the tolerance is zero.

**Sums over ranks.** Each rank's product p_r is rounded to the wire's dtype on its way, and so may be the sum of a
node's products; with unit roundoff w of the wire (v of node sums: w for bf16, else none) this adds

    w * sum_r |p_r| + v * (1 + w) * sum_r |p_r|

to what the result's rounding is applied to. An element whose products are whole numbers with sum_r |p_r| <= 1/w loses
nothing in any of this, whatever the nodes: it has to be right to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np

from tilewire.linear import Array

U32 = 2.0**-24
_UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 0.0, "float64": 0.0}
EXACT_LIMIT = 2**24


@dataclass(frozen=True)
class Worst:
    """The element with the largest error in units of its tolerance (among equals: the largest error)."""

    index: tuple[int, int]
    tile: tuple[int, int]
    source_rank: int  # the rank whose shard this row comes from
    source_row: int  # the row within that shard
    got: float
    expected: float
    error: float
    tolerance: float

    def __str__(self) -> str:
        return (
            f"worst element {list(self.index)} in tile {list(self.tile)}, row {self.source_row} of rank "
            f"{self.source_rank}'s shard: got {self.got:g}, expected {self.expected:g}, error {self.error:g}, "
            f"tolerance {self.tolerance:g}"
        )


@dataclass(frozen=True)
class Report:
    """What a comparison found. `reason` is empty exactly when it passed."""

    reason: str
    compared: int
    bad_elements: int = 0
    bad_tiles: tuple[tuple[int, int], ...] = ()  # the first ones, at most 16
    bad_tile_count: int = 0
    worst: Worst | None = None
    tile_errors: Array | None = None  # [tile rows, tile columns]: the largest error in each tile
    hint: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason

    def __str__(self) -> str:
        if self.ok:
            return f"ok, {self.compared} elements" + (f"; {self.worst}" if self.worst else "")
        parts = [self.reason]
        if self.worst:
            parts.append(str(self.worst))
        if self.bad_tile_count:
            tiles = ", ".join(str(list(tile)) for tile in self.bad_tiles)
            more = ", ..." if self.bad_tile_count > len(self.bad_tiles) else ""
            parts.append(
                f"{self.bad_elements} of {self.compared} elements in {self.bad_tile_count} tiles: {tiles}{more}"
            )
        if self.hint:
            parts.append(self.hint)
        return "; ".join(parts)

    def raise_if_failed(self) -> None:
        if not self.ok:
            raise AssertionError(str(self))


def compare(
    result: Array,
    reference: Array,
    tolerance: Array | float,
    *,
    rows: Sequence[int] | None = None,
    tile: tuple[int, int] = (128, 128),
    allow_empty: bool = False,
) -> Report:
    """Compares [M, N] with [M, N]; `tolerance` is a number or [M, N], `rows` the row counts of the shards.

    Fails on an element beyond its tolerance, a NaN or infinity that the reference does not have, another shape, and
    when nothing was compared (unless `allow_empty`, for results that are to have no elements).
    """
    if result.shape != reference.shape or result.ndim != 2:
        return Report(f"shape {list(result.shape)}, expected {list(reference.shape)} (2 dimensions)", 0)
    if rows is not None and sum(rows) != result.shape[0]:
        return Report(f"rows {list(rows)} add up to {sum(rows)}, the result has {result.shape[0]}", 0)
    if result.size == 0:
        return Report("" if allow_empty else "no element was compared", 0)
    return _Comparison(result, reference, tolerance, rows or [result.shape[0]], tile).report()


def check_matmul(
    result: Array,
    a: Array,
    b: Array,
    *,
    bias: Array | None = None,
    rows: Sequence[int] | None = None,
    tile: tuple[int, int] = (128, 128),
    allow_empty: bool = False,
) -> Report:
    """Checks `result` [M, N] = a [M, K] @ b [K, N] + bias [N]; the dtype of `result` is the one rounded to.

    With exact data (see above) every element has to match to the bit; otherwise it has to be within the tolerance.
    """
    if is_exact(a, b, bias):
        expected = a.astype(np.float32) @ b.astype(np.float32)
        if bias is not None:
            expected += bias.astype(np.float32)
        return compare(result, expected.astype(result.dtype), 0.0, rows=rows, tile=tile, allow_empty=allow_empty)
    reference, magnitude = matmul_reference(a, b, bias)
    allowed = matmul_tolerance(reference, magnitude, a.shape[1] + (bias is not None), result.dtype)
    return compare(result, reference, allowed, rows=rows, tile=tile, allow_empty=allow_empty)


def check_matmul_sum(
    result: Array,
    parts: Sequence[tuple[Array, Array]],
    *,
    wire_dtype: np.dtype[Any],
    bias: Array | None = None,
    residual: Array | None = None,
    tile: tuple[int, int] = (128, 128),
    allow_empty: bool = False,
) -> Report:
    """Checks `result` [M, N] = sum over ranks of a [M, K_r] @ b [K_r, N], + bias [N] + residual [M, N].

    `parts` are a and b of each rank, `wire_dtype` is what products are rounded to on their way.
    """
    sums, moved, magnitude = (np.zeros(result.shape) for _ in range(3))
    is_whole = np.full(result.shape, True)
    for a, b in parts:
        product, size = matmul_reference(a, b)
        sums += product
        moved += np.abs(product)
        magnitude += size
        is_whole &= bool(is_exact(a, b, None))
    wire = _UNIT_ROUNDOFF[np.dtype(wire_dtype).name]
    node = wire if np.dtype(wire_dtype) == ml_dtypes.bfloat16 else 0.0
    is_whole &= moved <= (1 / wire if wire else EXACT_LIMIT)
    added = [x.astype(np.float64) for x in (bias, residual) if x is not None]
    for one in added:
        sums = sums + one
        magnitude = magnitude + np.abs(one)
        is_whole &= one == np.rint(one)
    terms = sum(a.shape[1] for a, _ in parts) + len(parts) + len(added)
    lost = (wire + node * (1 + wire)) * moved
    allowed = (1 + wire) * (1 + node) * matmul_tolerance(sums, magnitude, terms, result.dtype)
    allowed += lost * (1 + _UNIT_ROUNDOFF[result.dtype.name])
    expected = np.where(is_whole, sums.astype(np.float32).astype(result.dtype).astype(np.float64), sums)
    return compare(result, expected, np.where(is_whole, 0.0, allowed), tile=tile, allow_empty=allow_empty)


def check_gathered(
    result: Array, a: Array, rows: Sequence[int], *, tile: tuple[int, int] = (128, 128), allow_empty: bool = False
) -> Report:
    """Checks that a gather gave `a` to the bit."""
    return compare(result, a, 0.0, rows=rows, tile=tile, allow_empty=allow_empty)


def matmul_reference(a: Array, b: Array, bias: Array | None = None) -> tuple[Array, Array]:
    """`a @ b + bias` in fp64, and the same of the absolute values."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    reference, magnitude = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
    if bias is not None:
        reference += bias.astype(np.float64)
        magnitude += np.abs(bias.astype(np.float64))
    return reference, magnitude


def matmul_tolerance(reference: Array, magnitude: Array, terms: int, dtype: np.dtype[Any]) -> Array:
    """The bound of the module's head for results of `dtype` and sums of `terms` terms: fp64, one an element."""
    unit = _UNIT_ROUNDOFF[np.dtype(dtype).name]
    eta = float(ml_dtypes.finfo(dtype).smallest_subnormal)  # type: ignore[no-untyped-call]
    gamma = terms * U32 / (1 - terms * U32)
    allowed: Array = (1 + unit) * gamma * magnitude + unit * np.abs(reference) + eta / 2
    return allowed


def is_exact(a: Array, b: Array, bias: Array | None) -> bool:
    """Whether fp32 can neither round a product nor a partial sum, whatever their order."""
    inputs = [x.astype(np.float32) for x in ((a, b) if bias is None else (a, b, bias))]
    if not all(bool((x == np.rint(x)).all()) for x in inputs):
        return False
    largest = [float(np.abs(x).max(initial=0.0)) for x in inputs]
    return bool(a.shape[1] * largest[0] * largest[1] + sum(largest[2:]) < EXACT_LIMIT)


def source_of(row: int, rows: Sequence[int]) -> tuple[int, int]:
    """The rank whose shard holds the gathered row, and the row's number within it."""
    for rank, end in enumerate(accumulate(rows)):
        if row < end:
            return rank, row - (end - rows[rank])
    raise IndexError(f"row {row} is beyond the {sum(rows)} rows of all shards")


class _Comparison:
    """Goes through the result in bands of one tile's height, so that large results need little memory beside them."""

    def __init__(
        self, result: Array, reference: Array, tolerance: Array | float, rows: Sequence[int], tile: tuple[int, int]
    ) -> None:
        self._result, self._reference, self._tolerance = result, reference, tolerance
        self._rows, self._tile = rows, tile
        self._worst: Worst | None = None
        self._worst_score = (-1.0, -1.0)  # in units of the tolerance, then as it is
        self._unordered = 0
        self._bad = 0
        self._bad_tiles: list[tuple[int, int]] = []

    def report(self) -> Report:
        height = self._tile[0]
        bands = [self._band(top) for top in range(0, self._result.shape[0], height)]
        reason = "elements are beyond their tolerance" if self._bad else ""
        if self._unordered:
            reason = f"{self._unordered} elements are NaN or infinite where the reference is not"
        return Report(
            reason,
            self._result.size,
            self._bad,
            tuple(self._bad_tiles[:16]),
            len(self._bad_tiles),
            self._worst,
            np.stack(bands),
            self._hint() if reason else "",
        )

    def _band(self, top: int) -> Array:
        """Looks at one row of tiles; gives the largest error in each."""
        band = slice(top, top + self._tile[0])
        edges = np.arange(0, self._result.shape[1], self._tile[1])
        if self._same_bits(band):
            return np.zeros(len(edges))
        got, expected = self._result[band].astype(np.float64), self._reference[band].astype(np.float64)
        allowed = self._tolerance[band] if isinstance(self._tolerance, np.ndarray) else self._tolerance
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(got - expected)
        # The same infinity or NaN on both sides is agreement; any other one has no meaningful distance.
        strange = ~np.isfinite(error)
        if strange.any():
            agree = (got == expected) | (np.isnan(got) & np.isnan(expected))
            error[strange & agree] = 0.0
            error[strange & ~agree] = np.inf
            self._unordered += int(np.count_nonzero(strange & ~agree & ~np.isfinite(got)))
        self._judge(top, got, expected, error, allowed)
        worst: Array = np.maximum.reduceat(error.max(axis=0), edges)
        return worst

    def _same_bits(self, band: slice) -> bool:
        got, expected = self._result[band], self._reference[band]
        if got.dtype != expected.dtype:
            return False
        bits = f"u{got.dtype.itemsize}"
        return bool((np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(expected).view(bits)).all())

    def _hint(self) -> str:
        """Names the row that the worst element's part of a row should have been, when there is one."""
        assert self._worst is not None
        (row, _), (_, tile_column) = self._worst.index, self._worst.tile
        columns = slice(tile_column * self._tile[1], (tile_column + 1) * self._tile[1])
        part = self._result[row, columns]
        # Fewer elements than this agree by chance.
        if part.size < 4 or not np.isfinite(part.astype(np.float32)).all():
            return ""
        rounded = self._reference[:, columns].astype(self._result.dtype)
        same = np.flatnonzero((rounded == part).all(axis=1))
        if len(same) != 1:
            return ""
        rank, source_row = source_of(int(same[0]), self._rows)
        return f"in that tile the row equals what row {source_row} of rank {rank}'s shard should give"

    def _judge(self, top: int, got: Array, expected: Array, error: Array, allowed: Array | float) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.where(error > 0, error / allowed, 0.0)
        # Where nothing at all is allowed every error scores infinity: then the largest error is the worst.
        highest = score.max()
        row, column = divmod(int(np.where(score == highest, error, -1.0).argmax()), score.shape[1])
        badness = (float(highest), float(error[row, column]))
        if badness > self._worst_score:
            self._worst_score = badness
            limit = allowed[row, column] if isinstance(allowed, np.ndarray) else allowed
            self._worst = Worst(
                (top + row, column),
                (top // self._tile[0], column // self._tile[1]),
                *source_of(top + row, self._rows),
                *(float(value) for value in (got[row, column], expected[row, column], error[row, column], limit)),
            )
        bad = error > allowed
        if bad.any():
            self._bad += int(np.count_nonzero(bad))
            columns = np.unique(np.flatnonzero(bad.any(axis=0)) // self._tile[1])
            self._bad_tiles += [(top // self._tile[0], int(tile)) for tile in columns]
