"""Every word of every plan is explained, in the glossary too."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tilewire.cli import app
from tilewire.errors import Error
from tilewire.op_list import OPS, Op
from tilewire.plan_words import PLAN_WORDS, explained, glossary_rows, unexplained, words_of
from tilewire.plans import machines

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
LOST = re.compile(r"  (.+): (predicted|first and last|with [KI] = |with 8|communication alone|given).*")
# What no call has thousands of: heads and what they have of columns; experts, and those of a token.
FEW = {"ring_attention": {"heads": 8, "d": 64}, "moe_dispatch_matmul": {"e": 32, "k": 4}}


def plans_of(op: Op, machine: str) -> list[str]:
    """The explanations of plans of small and large calls; none where no kernel is planned for that machine."""
    module = importlib.import_module(op.module)
    found = []
    for size in (64, 4096):
        for nodes in ([1], [2, 2], [1, 1, 1]):
            sizes: dict[str, Any] = dict.fromkeys(module.PLAN_SHAPE, size)
            sizes |= {name: few for name, few in FEW.get(op.name, {}).items() if name in sizes}
            try:
                found.append(getattr(module, op.plan_name)(**sizes, nodes=nodes, machine=machine).explanation)
            except Error as error:
                assert machine != machines()[0].name, error
    return found


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("machine", [one.name for one in machines()])
def test_every_part_of_a_plan_is_explained(op: Op, machine: str) -> None:
    for explanation in plans_of(op, machine):
        first, *rest = explanation.splitlines()
        assert unexplained(first) == [], explanation
        for line in rest:
            lost = LOST.fullmatch(line)
            assert not lost or unexplained(lost[1]) == [], line


def test_words_are_found_with_one_and_with_many() -> None:
    found = {word.phrase for word in words_of("fused, chunks of 8 rows, 1 worker, 12 push workers")}
    assert found == {"fused", "chunks of N rows", "N worker(s)", "N push worker(s)"}
    assert unexplained("fused, 3 goblins, tiles of 3 x 4") == ["3 goblins"]


def test_glossary_has_the_words_of_plans_as_they_are() -> None:
    rows = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    assert rows[-len(PLAN_WORDS) :] == glossary_rows()


def test_a_plan_is_explained_on_demand_with_its_own_words_only() -> None:
    words = ["plan", "all_gather_matmul", "--m", "64", "--k", "64", "--n", "64", "--nodes", "2"]
    plain, asked = (CliRunner().invoke(app, [*words, *more]) for more in ([], ["--explain"]))
    assert plain.exit_code == asked.exit_code == 0 and "words:" not in plain.output
    own = explained(" ".join(plain.output.split()))
    assert own.splitlines()[1].startswith("  fused: ") and "two shots" not in own
    assert "".join(own.split()) in "".join(asked.output.split())
