"""Plain arguments: counts, numbers and switches, of Python or of numpy.

Each function gives a plain Python value or raises `InvalidArgument` that names the argument, its value and its limit.
"""

from __future__ import annotations

import operator
import reprlib
import sys
from collections.abc import Iterable, Mapping, Set
from typing import Any

from tilewire.errors import InvalidArgument

INT32_MOST = 2**31 - 1
INT64_MOST = 2**63 - 1


def count(name: str, value: Any, most: int = INT64_MOST) -> int:
    """An integer of any library, bool aside. What it may be beyond that, zero or less, is the core's to judge."""
    if is_switch(value):
        found = None
    else:
        try:
            found = operator.index(value)
        except TypeError:
            found = None
    if found is None:
        raise InvalidArgument(f"{name} is no count", values=f"{name} = {_shown(value)}", limit="must be an integer")
    if not -most <= found <= most:
        raise InvalidArgument(f"{name} is too large", values=f"{name} = {found}", limit=f"must be at most {most}")
    return found


def counts(name: str, values: Any, most: int = INT64_MOST) -> list[int]:
    """Several counts, as a list."""
    if is_single(values) or isinstance(values, (Mapping, Set)):
        raise InvalidArgument(
            f"{name} is no list of counts", values=f"{name} = {_shown(values)}", limit="must be a list of integers"
        )
    found = _plain_integers(values)
    if found is not None and (not found or (min(found) >= -most and max(found) <= most)):
        return found
    return [count(f"{name}[{i}]", value, most=most) for i, value in enumerate(values)]


def _plain_integers(values: Any) -> list[int] | None:
    """What is one list of Python's or numpy's integers without a look at each by itself: positions and experts may be
    millions. None where that is not known."""
    numpy = sys.modules.get("numpy")  # who has an array of it has imported it
    if numpy is not None and isinstance(values, numpy.ndarray):
        return values.tolist() if values.ndim == 1 and values.dtype.kind in "iu" else None
    is_plain = isinstance(values, (list, tuple)) and set(map(type, values)) <= {int}
    return list(values) if is_plain else None


def one_or_more_counts(name: str, value: Any) -> list[int]:
    """A count or a list of them, as a list."""
    return [count(name, value)] if is_single(value) else counts(name, value)


def is_single(value: Any) -> bool:
    """Whether one number is given where a list may be, too."""
    return not isinstance(value, Iterable) or getattr(value, "ndim", None) == 0 or isinstance(value, (str, bytes))


def number(name: str, value: Any) -> float:
    """A real number of any library, bool aside; its range is the core's to judge."""
    if isinstance(value, str) or is_switch(value):
        found = None
    else:
        try:
            found = float(value)
        except (TypeError, ValueError, OverflowError):
            found = None
    if found is None:
        raise InvalidArgument(f"{name} is no number", values=f"{name} = {_shown(value)}", limit="must be a number")
    return found


def utf8(name: str, text: str) -> str:
    """A text that the compiled core can take: without halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{name} is no text", values=f"{name} = {_shown(text)}", limit=f"must be UTF-8: {error.reason}"
        ) from None
    return text


def switch(name: str, value: Any) -> bool:
    """True or False: a word or a number may mean anything."""
    if not is_switch(value):
        raise InvalidArgument(
            f"{name} is no truth value", values=f"{name} = {_shown(value)}", limit="must be True or False"
        )
    return bool(value)


def is_switch(value: Any) -> bool:
    """Whether it is a bool of Python or of numpy, which is not imported for this."""
    kind = type(value)
    return isinstance(value, bool) or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"))


def _shown(value: Any) -> str:
    """What the caller wrote, in short."""
    return reprlib.repr(value)
