"""Test data in which every element says where it belongs, in small integers that bf16 and fp16 hold exactly.

The first columns of row i of rank r are the digits of the row's number among all ranks' rows; the columns behind them
are scrambled from (rank, row, column). So two shards, rows or columns that change places change values, and no two rows
are equal as long as the digits suffice (`digit_limit(k)`^K rows). The digits are small enough that sums of K products
are exact in fp32, in any order: results can then be compared to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from tilewire.linear import Array

# bf16 has 8 significant bits: it holds every integer up to 256 in magnitude.
_LARGEST_EXACT = 256
# Stays below 2^24 with room for a bias of up to 2^23.
_SUM_LIMIT = 2**23


def digit_limit(k: int) -> int:
    """Largest magnitude L so that sums of K products of such digits stay below 2^23 (at most 255, at least 1).

    ValueError when not even digits of -1, 0 and 1 can be summed exactly.
    """
    if k >= _SUM_LIMIT:
        raise ValueError(f"k = {k} products cannot be summed exactly in fp32, must be below {_SUM_LIMIT}")
    return min(_LARGEST_EXACT - 1, math.isqrt((_SUM_LIMIT - 1) // max(1, k)))


def coded_shard(rank: int, rows: Sequence[int], k: int, dtype: object = ml_dtypes.bfloat16, seed: int = 0) -> Array:
    """The shard [rows[rank], K] of one rank. Other calls' data differ by `seed`."""
    first = sum(rows[:rank])
    return _coded(np.arange(first, first + rows[rank]), k, digit_limit(k), seed * 2 + 1).astype(np.dtype(dtype))


def coded_rows(rows: Sequence[int], k: int, dtype: object = ml_dtypes.bfloat16, seed: int = 0) -> Array:
    """All ranks' shards one below the other: what a gather has to give."""
    return coded_shard(0, [sum(rows)], k, dtype, seed)


def coded_weight(
    k: int, n: int, first_column: int = 0, dtype: object = ml_dtypes.bfloat16, seed: int = 0
) -> Array:
    """A weight [K, N] whose columns are numbers `first_column`... of a larger one: no two columns are equal."""
    columns = np.arange(first_column, first_column + n)
    return np.ascontiguousarray(_coded(columns, k, digit_limit(k), seed * 2 + 2).T).astype(np.dtype(dtype))


def coded_bias(n: int, first_column: int = 0, seed: int = 0) -> Array:
    """An fp32 bias [N] of whole numbers, different from column to column."""
    columns = np.arange(first_column, first_column + n)
    return ((columns * 37 + seed) % 8191 - 4095).astype(np.float32)


def poisoned(shape: tuple[int, ...], dtype: object) -> Array:
    """An array full of NaN: what was not written shows."""
    return np.full(shape, np.nan, dtype=np.dtype(dtype))


def _coded(numbers: Array, width: int, limit: int, salt: int) -> Array:
    """[len(numbers), width] fp32 digits in -limit..limit."""
    base = 2 * limit + 1
    values = _scramble(numbers[:, None].astype(np.uint64), np.arange(width, dtype=np.uint64), salt) % np.uint64(base)
    rest = numbers.astype(np.int64)
    for place in range(width):
        values[:, place] = rest % base
        rest = rest // base
        if not rest.any():
            break
    coded: Array = values.astype(np.float32) - np.float32(limit)
    return coded


def _scramble(row: Array, column: Array, salt: int) -> Array:
    """64 well-mixed bits a position: two rounds of multiply and shift."""
    mixed = row * np.uint64(0x9E3779B97F4A7C15) + column * np.uint64(0xD1B54A32D192ED03) + np.uint64(salt)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    scrambled: Array = mixed ^ (mixed >> np.uint64(29))
    return scrambled
