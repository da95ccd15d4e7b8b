"""The compiled core and what type checkers are told of it: neither may have a name that the other lacks."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import tilewire
from tilewire import _core

STUB = ast.parse((Path(tilewire.__file__).parent / "_core.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


def named_in(body: list[ast.stmt]) -> set[str]:
    """Public names that these statements define."""
    names = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    names |= {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def attributes(name: str) -> set[str]:
    """Of a class of the stub, those of its bases too."""
    found = named_in(CLASSES[name].body)
    for base in CLASSES[name].bases:
        base_name = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(base_name, ast.Name) and base_name.id in CLASSES:
            found |= attributes(base_name.id)
    return found


def public(x: Any) -> set[str]:
    return {name for name in dir(x) if not name.startswith("_")}


def test_the_stub_has_the_names_of_the_compiled_core_and_no_others() -> None:
    assert named_in(STUB.body) == public(_core)


@pytest.mark.parametrize("name", sorted(name for name in CLASSES if not name.startswith("_")))
def test_a_class_has_the_attributes_that_its_stub_says(name: str) -> None:
    assert attributes(name) == public(getattr(_core, name))
