"""What the tests on a GPU claim alike of what ranks found, whatever the operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

SOON_S = 15
Pieces = Mapping[str, list[str]]  # what the text of each error has in it


def expect_none_wrong(results: list[dict[str, Any]], numbers: tuple[str, ...] = ()) -> None:
    for rank, found in enumerate(results):
        wrong = {name: text for name, text in found.items() if text and name not in numbers}
        assert not wrong, f"rank {rank}: {wrong}"


def expect_refusals(results: list[dict[str, Any]], refusals: Pieces, classes: Mapping[str, str] | None = None) -> None:
    """Those of all ranks alike; `after`: a call behind them is right. `classes`: of errors but InvalidArgument."""
    for rank, found in enumerate(results):
        assert found.pop("after") == ""
        assert sorted(found) == sorted(refusals)
        for name, pieces in refusals.items():
            got = found[name]
            assert got["error"] == (classes or {}).get(name, "InvalidArgument"), f"rank {rank}, {name}: {got}"
            assert all(piece in got["text"] for piece in pieces), f"rank {rank}, {name}: {got}"


def expect_disagreements(results: list[dict[str, Any]], pieces_of: Pieces, operand: str) -> None:
    """Each is an error of all ranks, soon; "refused by one" is that of the last rank alone."""
    for rank, found in enumerate(results):
        on_cpu = found.pop("GPU tensor on CPU ranks")
        assert on_cpu["error"] == "InvalidArgument" and f"{operand} is not in host memory" in on_cpu["text"], on_cpu
        assert sorted(found) == sorted(pieces_of)
        for name, pieces in pieces_of.items():
            got, last = found[name], rank == len(results) - 1
            wanted = ("InvalidArgument" if last else "Refused") if name == "refused by one" else "Mismatch"
            assert got["error"] == wanted, f"rank {rank}, {name}: {got}"
            assert all(piece in got["text"] for piece in pieces), f"rank {rank}, {name}: {got}"
            assert got["seconds"] < SOON_S and (got["check"] or last), f"rank {rank}, {name}: {got}"


def expect_of_cupy(results: list[dict[str, Any]]) -> None:
    if "absent" in results[0]:
        pytest.skip("CuPy is not installed")
    expect_none_wrong(results)
