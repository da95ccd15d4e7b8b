"""Test data in which every element says where it belongs, in small integers that bf16 and fp16 hold exactly.

The first columns of row i of rank r are the digits of the row's number among all ranks' rows, to base 2 L + 1 with
L = `digit_limit(K)`; the columns behind them are scrambled from (row number, column). So shards, rows or columns that
change places change values, and no two of the first min((2 L + 1)^K, 2^24) rows are equal. The digits are small enough
that sums of K products are exact in fp32, in any order: results can then be compared to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from tilewire.linear import Array

# bf16 has 8 significant bits: it holds every integer up to 256 in magnitude.
_LARGEST_EXACT = 256
# Sums stay below 2^24 with room for a bias of up to 2^23; in fp16 they also have to stay below its largest number.
_SUM_LIMIT = 2**23
_SUM_LIMIT_FP16 = 2**15
# Rows (or columns) up to this number get different digits, given enough of them.
_MOST_NUMBERS = 2**24


def digit_limit(k: int, dtype: DTypeLike = ml_dtypes.bfloat16) -> int:
    """Largest magnitude L so that sums of K products of such digits stay below 2^23 (fp16: 2^15); 1 to 255.

    ValueError when not even digits of -1, 0 and 1 can be summed exactly.
    """
    limit = _SUM_LIMIT_FP16 if np.dtype(dtype) == np.float16 else _SUM_LIMIT
    if k >= limit:
        raise ValueError(f"k = {k} products cannot be summed exactly in {np.dtype(dtype)}, must be below {limit}")
    return min(_LARGEST_EXACT - 1, math.isqrt((limit - 1) // max(1, k)))


def coded_shard(rank: int, rows: Sequence[int], k: int, dtype: DTypeLike = ml_dtypes.bfloat16, seed: int = 0) -> Array:
    """The shard [rows[rank], K] of one rank. Other calls' data differ by `seed`."""
    first = sum(rows[:rank])
    return _coded(np.arange(first, first + rows[rank]), k, digit_limit(k, dtype), seed * 2 + 1).astype(np.dtype(dtype))


def coded_rows(rows: Sequence[int], k: int, dtype: DTypeLike = ml_dtypes.bfloat16, seed: int = 0) -> Array:
    """All ranks' shards one below the other: what a gather has to give."""
    return coded_shard(0, [sum(rows)], k, dtype, seed)


def coded_weight(k: int, n: int, first_column: int = 0, dtype: DTypeLike = ml_dtypes.bfloat16, seed: int = 0) -> Array:
    """A weight [K, N] whose columns are numbers `first_column`... of a larger one: no two columns are equal."""
    columns = np.arange(first_column, first_column + n)
    return np.ascontiguousarray(_coded(columns, k, digit_limit(k, dtype), seed * 2 + 2).T).astype(np.dtype(dtype))


def coded_bias(n: int, first_column: int = 0, seed: int = 0) -> Array:
    """An fp32 bias [N] of whole numbers, different from column to column."""
    columns = np.arange(first_column, first_column + n)
    return ((columns * 37 + seed) % 8191 - 4095).astype(np.float32)


def poisoned(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """An array full of NaN: what was not written shows."""
    return np.full(shape, np.nan, dtype=np.dtype(dtype))


def _coded(numbers: Array, width: int, limit: int, salt: int) -> Array:
    """[len(numbers), width] fp32 digits in -limit..limit, each a function of its number, its column and the salt."""
    base = 2 * limit + 1
    values = _scramble(numbers[:, None].astype(np.uint64), np.arange(width, dtype=np.uint64), salt) % np.uint64(base)
    rest = numbers.astype(np.uint64)
    for place in range(min(width, math.ceil(math.log(_MOST_NUMBERS, base)))):
        values[:, place] = (rest + np.uint64(salt * (place + 1))) % np.uint64(base)
        rest = rest // np.uint64(base)
    coded: Array = values.astype(np.float32) - np.float32(limit)
    return coded


def _scramble(row: Array, column: Array, salt: int) -> Array:
    """64 well-mixed bits a position: two rounds of multiply and shift."""
    mixed: Array = row * np.uint64(0x9E3779B97F4A7C15) + column * np.uint64(0xD1B54A32D192ED03) + np.uint64(salt)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    scrambled: Array = mixed ^ (mixed >> np.uint64(29))
    return scrambled
