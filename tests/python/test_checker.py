"""The checker has to find planted faults: one tile, row or element, shards or blocks that changed places, poison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewire.checker import (
    Report,
    check_gathered,
    check_matmul,
    compare,
    is_exact,
    matmul_reference,
    matmul_tolerance,
    source_of,
)
from tilewire.coded_data import coded_bias, coded_rows, coded_weight, poisoned
from tilewire.linear import Array, local_matmul

ROWS = [100, 0, 130, 70, 100]  # shards 0 and 4 are equally long
K, N = 96, 330
TILE = (32, 64)
BF16 = ml_dtypes.bfloat16


def right_result(data: str) -> tuple[Array, Array, Array, Array]:
    """result, a, b, bias."""
    if data == "coded":
        a, b, bias = coded_rows(ROWS, K), coded_weight(K, N), coded_bias(N)
    else:
        generator = np.random.default_rng(5)
        a = generator.standard_normal((sum(ROWS), K)).astype(BF16)
        b = generator.standard_normal((K, N)).astype(BF16)
        bias = generator.standard_normal(N).astype(np.float32)
    return local_matmul(a, b, bias), a, b, bias


def one_wrong_tile(c: Array) -> None:
    c[64:96, 128:192] = c[0:32, 0:64].copy()


def one_wrong_row(c: Array) -> None:
    c[301] = c[300].copy()


def one_element_doubled(c: Array) -> None:
    row, column = np.argwhere(np.abs(c.astype(np.float32)) > 1)[-1]
    c[row, column] *= 2


def two_shards_swapped(c: Array) -> None:
    first, last = c[:100].copy(), c[300:].copy()
    c[:100], c[300:] = last, first


def two_row_blocks_swapped(c: Array) -> None:
    upper, lower = c[128:160].copy(), c[160:192].copy()
    c[128:160], c[160:192] = lower, upper


def one_tile_transposed(c: Array) -> None:
    c[32:64, 32:64] = c[32:64, 32:64].T.copy()


def one_nan(c: Array) -> None:
    c[-1, -1] = np.nan


def one_infinity(c: Array) -> None:
    c[7, 9] = np.inf


def output_of_zeros(c: Array) -> None:
    c[:] = 0


def output_never_written(c: Array) -> None:
    c[:] = poisoned(c.shape, c.dtype)


FAULTS: list[Callable[[Array], None]] = [
    one_wrong_tile,
    one_wrong_row,
    one_element_doubled,
    two_shards_swapped,
    two_row_blocks_swapped,
    one_tile_transposed,
    one_nan,
    one_infinity,
    output_of_zeros,
    output_never_written,
]


@pytest.mark.parametrize("data", ["coded", "random"])
def test_right_result_passes(data: str) -> None:
    c, a, b, bias = right_result(data)
    assert is_exact(a, b, bias) == (data == "coded")
    report = check_matmul(c, a, b, bias=bias, rows=ROWS, tile=TILE)
    report.raise_if_failed()
    assert report.compared == c.size and report.tile_errors is not None and report.tile_errors.shape == (13, 6)


@pytest.mark.parametrize("data", ["coded", "random"])
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_fails(fault: Callable[[Array], None], data: str) -> None:
    c, a, b, bias = right_result(data)
    fault(c)
    report = check_matmul(c, a, b, bias=bias, rows=ROWS, tile=TILE)
    assert not report.ok
    with pytest.raises(AssertionError, match="worst element"):
        report.raise_if_failed()


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_in_gathered_rows_fails(fault: Callable[[Array], None]) -> None:
    a = coded_rows(ROWS, N)
    gathered = a.copy()
    fault(gathered)
    assert check_gathered(a, a, ROWS).ok
    assert not check_gathered(gathered, a, ROWS).ok


# The full size of the report this guards against; a mean over 2.7e8 elements does not move by one wrong tile.
@pytest.mark.parametrize("fault", ["tile", "row", "element"])
def test_single_fault_in_a_large_result_is_found(fault: str, large_result: tuple[Array, Array]) -> None:
    c, reference = large_result
    place = {
        "tile": (slice(32768 - 128, 32768), slice(4096, 4096 + 128)),
        "row": (slice(20000, 20001), slice(None)),
        "element": (slice(32767, 32768), slice(8190, 8191)),
    }[fault]
    keep = c[place].copy()
    c[place] *= 2
    report = compare(c, reference, 0.0, rows=[8192] * 4)
    c[place] = keep
    assert not report.ok and report.worst is not None
    assert report.bad_tile_count == {"tile": 1, "row": 64, "element": 1}[fault]
    assert report.worst.source_rank == {"tile": 3, "row": 2, "element": 3}[fault]
    assert report.compared == 32768 * 8192


@pytest.fixture(scope="module")
def large_result() -> tuple[Array, Array]:
    row, column = np.arange(32768, dtype=np.int32)[:, None], np.arange(8192, dtype=np.int32)
    # Positive bf16 numbers by their bits: exponent from the row, mantissa from both.
    bits = (0x3F80 + ((row * 7 + column) & 0x1FF)).astype(np.uint16)
    reference: Array = bits.view(BF16)
    return reference.copy(), reference


def test_report_names_the_worst_element_and_where_it_came_from() -> None:
    c, a, b, bias = right_result("coded")
    expected = float(c[233, 200].astype(np.float32))
    c[233, 200] = 1e6
    c[5, 5] *= 1.5
    worst = check_matmul(c, a, b, bias=bias, rows=ROWS, tile=TILE).worst
    assert worst is not None
    assert (worst.index, worst.tile) == ((233, 200), (7, 3))
    assert (worst.source_rank, worst.source_row) == (3, 3)
    assert worst.expected == expected and worst.got == float(BF16(1e6)) and worst.error == worst.got - expected


def test_report_says_whose_row_arrived_instead() -> None:
    c, a, b, bias = right_result("coded")
    two_shards_swapped(c)
    report = check_matmul(c, a, b, bias=bias, rows=ROWS, tile=TILE)
    assert report.worst is not None
    other = 4 - report.worst.source_rank
    assert f"row {report.worst.source_row} of rank {other}'s shard should give" in report.hint
    assert report.hint in str(report)


def test_wrong_elements_and_tiles_are_counted() -> None:
    c, a, b, bias = right_result("coded")
    c[0, 0] *= 2
    c[399, 329] = np.nan
    report = check_matmul(c, a, b, bias=bias, rows=ROWS, tile=TILE)
    assert (report.bad_elements, report.bad_tiles, report.bad_tile_count) == (2, ((0, 0), (12, 5)), 2)
    assert report.reason.startswith("1 elements are NaN")


def test_nothing_compared_fails_unless_nothing_was_expected() -> None:
    empty = np.zeros((0, 8), np.float32)
    assert compare(empty, empty, 0.0).reason == "no element was compared"
    assert compare(empty, empty, 0.0, allow_empty=True).ok


@pytest.mark.parametrize("shape", [(399, 330), (400, 329), (330, 400), (0, 0)])
def test_other_shape_fails(shape: tuple[int, int]) -> None:
    _, a, b, bias = right_result("coded")
    report = check_matmul(np.zeros(shape, BF16), a, b, bias=bias, allow_empty=True)
    assert "expected [400, 330]" in report.reason and report.compared == 0


def test_vector_is_not_taken_for_a_matrix() -> None:
    assert "2 dimensions" in compare(np.zeros(4), np.zeros(4), 0.0).reason


def test_rows_that_do_not_add_up_fail() -> None:
    assert "add up to 5" in compare(np.zeros((4, 4)), np.zeros((4, 4)), 0.0, rows=[2, 3]).reason


def test_infinity_and_nan_of_the_reference_are_expected_in_the_result() -> None:
    reference = np.array([[np.inf, -np.inf, np.nan, 1.0]])
    assert compare(reference.copy(), reference, 0.0).ok
    assert not compare(-reference, reference, 0.0).ok
    for column in range(4):
        wrong = reference.copy()
        wrong[0, column] = 0.5
        assert not compare(wrong, reference, 0.0).ok


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(0, 300),
    st.integers(1, 40),
    st.sampled_from([BF16, np.float16, np.float32]),
    st.integers(0, 2**32 - 1),
)
def test_every_order_of_summation_is_within_the_tolerance(m: int, k: int, n: int, dtype: Any, seed: int) -> None:
    generator = np.random.default_rng(seed)
    a = generator.standard_normal((m, k)).astype(np.dtype(dtype))
    b = generator.standard_normal((k, n)).astype(np.dtype(dtype))
    order = generator.permutation(k)
    c = np.zeros((m, n), np.float32)
    for term in order:  # one term after the other: the worst order there is
        c += np.outer(a[:, term].astype(np.float32), b[term].astype(np.float32))
    check_matmul(c.astype(a.dtype), a, b).raise_if_failed()


@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_accumulating_in_sixteen_bits_exceeds_the_tolerance(dtype: Any) -> None:
    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(shape).astype(np.dtype(dtype)) for shape in ((64, 512), (512, 64)))
    c = np.zeros((64, 64), a.dtype)
    for term in range(512):
        c += np.outer(a[:, term], b[term])
    assert not check_matmul(c, a, b).ok


@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_rounding_of_the_output_allows_half_a_step(dtype: Any) -> None:
    one = np.ones((1, 1))
    allowed = matmul_tolerance(one, one, 0, np.dtype(dtype))
    assert allowed[0, 0] == pytest.approx(float(ml_dtypes.finfo(dtype).eps) / 2, rel=1e-3)


@pytest.mark.parametrize(("dtype", "steps"), [(BF16, 2), (np.float16, 3), (np.float32, 40)])
def test_tolerance_is_no_wider_than_it_has_to_be(dtype: Any, steps: int) -> None:
    # Positive data: no cancellation, so the tolerance is little more than one rounding (fp32: K of them).
    generator = np.random.default_rng(4)
    a, b = (generator.uniform(1, 2, shape).astype(dtype) for shape in ((32, 16), (16, 32)))
    c = local_matmul(a, b, None)
    assert check_matmul(c, a, b).ok
    c.view(f"u{c.dtype.itemsize}")[3, 4] += steps
    report = check_matmul(c, a, b)
    assert report.bad_elements == 1 and report.worst is not None and report.worst.index == (3, 4)


def test_rounding_the_wrong_way_once_is_seen_with_exact_data() -> None:
    c, a, b, bias = right_result("coded")
    bits = c.view(np.uint16)
    bits[17, 3] += 1
    assert not check_matmul(c, a, b, bias=bias).ok


def test_missing_bias_and_doubled_bias_fail() -> None:
    _, a, b, bias = right_result("coded")
    assert not check_matmul(local_matmul(a, b, None), a, b, bias=bias).ok
    assert not check_matmul(local_matmul(a, b, 2 * bias), a, b, bias=bias).ok


def test_one_bad_tile_would_pass_a_mean() -> None:
    # Why the worst element counts: the same fault changes the mean error by less than the tolerance of one element.
    c, a, b, bias = right_result("random")
    reference, _ = matmul_reference(a, b, bias)
    one_element_doubled(c)
    assert np.abs(c.astype(np.float64) - reference).mean() < 2.0**-8 * np.abs(reference).max()
    assert not check_matmul(c, a, b, bias=bias).ok


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_source_of_a_row_inverts_the_gather(rows: list[int]) -> None:
    places = [(rank, row) for rank, count in enumerate(rows) for row in range(count)]
    assert [source_of(row, rows) for row in range(sum(rows))] == places
    with pytest.raises(IndexError):
        source_of(sum(rows), rows)


def test_text_of_a_pass_and_of_a_failure() -> None:
    assert str(Report("", 12)) == "ok, 12 elements"
    assert str(Report("no element was compared", 0)) == "no element was compared"
