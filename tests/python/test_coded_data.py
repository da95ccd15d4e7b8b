"""Position-coded data: exact in 16 bits, exactly summable in fp32, and different wherever it sits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewire.checker import is_exact
from tilewire.coded_data import coded_bias, coded_rows, coded_shard, coded_weight, digit_limit, poisoned
from tilewire.linear import Array

DTYPES = [ml_dtypes.bfloat16, np.float16, np.float32]
ROWS = st.lists(st.integers(0, 40), min_size=1, max_size=6)


@given(ROWS, st.integers(0, 70), st.sampled_from(DTYPES), st.integers(0, 5))
def test_shards_are_the_slices_of_the_gathered_rows(rows: list[int], k: int, dtype: Any, seed: int) -> None:
    whole = coded_rows(rows, k, dtype, seed)
    shards = [coded_shard(rank, rows, k, dtype, seed) for rank in range(len(rows))]
    assert np.array_equal(np.concatenate(shards), whole)


@given(st.integers(1, 6), st.integers(0, 900), st.integers(0, 3))
def test_no_two_rows_are_equal(k: int, rows: int, seed: int) -> None:
    if (2 * digit_limit(k) + 1) ** k >= rows:
        values = coded_rows([rows], k, seed=seed).astype(np.float32)
        assert len(np.unique(values, axis=0)) == rows


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 2, 128, 2048, 8192, 100_000])
def test_values_survive_the_dtype_and_sums_are_exact(k: int, dtype: Any) -> None:
    if dtype is np.float16 and k >= 2**15:
        with pytest.raises(ValueError, match=r"k = 100000 .* float16, must be below 32768"):
            coded_rows([3], k, dtype)
        return
    a, b = coded_rows([3], k, dtype), coded_weight(k, 2, dtype=dtype)
    for values in (a, b):
        wide = values.astype(np.float64)
        assert np.array_equal(wide, np.rint(wide)) and np.abs(wide).max() <= digit_limit(k, dtype)
    assert is_exact(a, b, coded_bias(2))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.array_equal(exact, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64))


def test_weights_of_ranks_are_slices_of_one_weight() -> None:
    whole = coded_weight(32, 50)
    assert np.array_equal(whole[:, 20:], coded_weight(32, 30, first_column=20))
    assert len(np.unique(whole.astype(np.float32), axis=1).T) == 50


@pytest.mark.parametrize("k", [1, 2, 5, 300])
def test_every_call_can_have_other_inputs(k: int) -> None:
    seen = [coded_rows([9], k, seed=seed).astype(np.float32) for seed in range(4)]
    assert all(not np.array_equal(seen[i], seen[j]) for i in range(4) for j in range(i))


def test_impossible_sum_is_refused() -> None:
    with pytest.raises(ValueError, match="k = 8388608"):
        digit_limit(2**23)


@given(st.integers(1, 2**23 - 1))
def test_digit_limit_keeps_sums_below_the_limit(k: int) -> None:
    limit = digit_limit(k)
    assert 1 <= limit <= 255 and limit * limit * k < 2**23


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_nan_everywhere(dtype: Any) -> None:
    poison: Array = poisoned((3, 5), dtype)
    assert np.isnan(poison.astype(np.float32)).all()
