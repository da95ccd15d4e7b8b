"""Odd arguments that no check of their own foresees: an error of Tilewire that says why, never one from inside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewire as tw
from tilewire.argument_checks import counts

A = np.ones((6, 5), np.float32)
W = np.ones((5, 7), np.float32)


@pytest.fixture(scope="module")
def comm() -> Iterator[tw.Communicator]:
    with tw.init(deadline_s=20) as made:
        yield made


class Quantized:
    """An array that cannot be taken over, and says why."""

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("tensor is quantized")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class BadDevice(Quantized):
    def __dlpack_device__(self) -> Any:
        raise ValueError("no device today")


class OddDevice(Quantized):
    def __dlpack_device__(self) -> Any:
        return "cpu"


class BadInterface:
    __array_interface__ = "none"


class RaisingInterface:
    @property
    def __array_interface__(self) -> Any:
        raise ValueError("no interface today")


class NoText(Exception):
    def __str__(self) -> str:
        return "\ud800 of it"


class OddText(Quantized):
    def __dlpack_device__(self) -> Any:
        raise NoText


@pytest.mark.parametrize(
    ("a", "options", "pieces"),
    [
        (A, {"rows": np.array(6)}, ["rows is no list of counts", "array(6)"]),
        (A, {"rows": {6: 1}}, ["rows is no list of counts", "{6: 1}"]),
        (A, {"rows": {6}}, ["rows is no list of counts", "{6}"]),
        (A, {"plan": "\ud800"}, ["plan is no text", "surrogates"]),
        (A, {"out_dtype": "\ud800"}, ["out_dtype is not supported"]),
        (Quantized(), {}, ["a cannot be taken over by DLPack", "BufferError: tensor is quantized"]),
        (BadDevice(), {}, ["a cannot be taken over by DLPack", "no device today"]),
        (OddDevice(), {}, ["a cannot be taken over by DLPack", "ValueError"]),
        (OddText(), {}, ["a cannot be taken over by DLPack", "NoText"]),
        (BadInterface(), {}, ["a cannot be taken over by its __array_interface__"]),
        (RaisingInterface(), {}, ["a cannot be taken over by its __array_interface__", "no interface today"]),
    ],
)
def test_a_call_says_what_is_wrong_and_the_next_one_works(
    a: Any, options: dict[str, Any], pieces: list[str], comm: tw.Communicator
) -> None:
    with pytest.raises(tw.InvalidArgument) as raised:
        tw.all_gather_matmul(a, W, comm=comm, **options)
    assert all(piece in str(raised.value) for piece in pieces), raised.value
    assert (np.asarray(tw.all_gather_matmul(A, W, comm=comm)) == 5).all()


@pytest.mark.parametrize("shape", [(1,) * 70, (0, 2**62)])
def test_a_shape_that_numpy_cannot_have_is_refused(shape: tuple[int, ...], comm: tw.Communicator) -> None:
    with pytest.raises(tw.InvalidArgument, match="no array has such a shape"):
        comm.empty(shape, "fp32")


def test_text_that_is_no_text_is_refused_by_name(comm: tw.Communicator) -> None:
    with pytest.raises(tw.InvalidArgument, match="name is no text"):
        comm.option("\ud800")
    with pytest.raises(tw.InvalidArgument, match="secret is no text"):
        tw.init(secret="\ud800")


@pytest.mark.parametrize("rows", [2**40, 2**62])
def test_more_rows_than_a_call_can_have_are_named(rows: int, comm: tw.Communicator) -> None:
    with pytest.raises(tw.ResourceError, match=rf"too many rows: {rows} rows.*bring fewer rows"):
        tw.plan_all_gather_matmul(rows, 0, 0)
    if rows < 2**60:  # numpy has no more
        with pytest.raises(tw.ResourceError, match=rf"too many rows: {rows} rows"):
            tw.all_gather_matmul(np.empty((rows, 0), np.float32), np.empty((0, 0), np.float32), comm=comm)


def test_out_may_lie_beside_a_in_one_array(comm: tw.Communicator) -> None:
    big = np.zeros((6, 12), np.float32)
    big[:, 7:] = A
    tw.all_gather_matmul(big[:, 7:], W, out=big[:, :7], comm=comm)
    assert (big[:, :7] == 5).all() and (big[:, 7:] == 1).all()
    with pytest.raises(tw.InvalidArgument, match="out overlaps a"):
        tw.all_gather_matmul(big[:, 6:11], W, out=big[:, :7], comm=comm)


def test_a_timeline_goes_into_no_folder_or_device(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # as little a file as a device is, but nobody else's
    for name, why in (("folder", "is a folder"), ("pipe", "is no file")):
        with pytest.raises(tw.InvalidArgument, match=f"trace_file {why}"):
            tw.init(trace_file=str(tmp_path / name))
    for name in ("trace.svg", "trace.txt", "trace"):  # what is written is JSON
        with pytest.raises(tw.InvalidArgument, match="trace_file has a suffix that says something else"):
            tw.init(trace_file=str(tmp_path / name))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


@pytest.mark.parametrize("kind", [list, tuple, np.array, iter, lambda x: [np.int64(x[0]), *x[1:]]])
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64])
def test_counts_are_python_integers_whatever_they_come_in(kind: Any, dtype: Any) -> None:
    values = np.array([0, 3, 100], dtype)
    found = counts("rows", kind(values if kind is np.array else values.tolist()))
    assert found == [0, 3, 100] and {type(one) for one in found} == {int}


@pytest.mark.parametrize(
    ("values", "most", "text"),
    [
        ([1, True], 9, r"rows\[1\] is no count"),
        (np.array([False]), 9, r"rows\[0\] is no count"),
        ([1, 2.0], 9, r"rows\[1\] is no count"),
        (np.array([1.0]), 9, r"rows\[0\] is no count"),
        (np.array([[1, 2]]), 9, r"rows\[0\] is no count"),
        ([1, 2**63], 2**63 - 1, r"rows\[1\] is too large"),
        (np.array([1, 2**64 - 1], np.uint64), 2**63 - 1, r"rows\[1\] is too large"),
        (np.array([5, 4]), 4, r"rows\[0\] is too large"),
        ((4, -5), 4, r"rows\[1\] is too large"),
        (np.array(3), 9, "rows is no list"),
        ({1: 2}, 9, "rows is no list"),
    ],
)
def test_the_count_that_cannot_be_is_named_whatever_it_comes_in(values: Any, most: int, text: str) -> None:
    with pytest.raises(tw.InvalidArgument, match=text):
        counts("rows", values, most=most)
