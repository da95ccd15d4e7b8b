"""Calls with the same shapes as one before: what was found out of their arrays then is not looked for again.

Only calls whose arrays all belong to one library, are taken where they lie and run on its current stream come here. All
that decides how an array is taken is its signature (`GpuLibrary.sign`), where exactly it lies aside.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from tilewire import _core
from tilewire.gpu.views import padded

if TYPE_CHECKING:
    from tilewire.gpu.library import GpuLibrary
    from tilewire.gpu.views import GpuView
    from tilewire.weight_calls import WeightCall

Place = tuple[tuple[int, ...], tuple[int, ...], str]  # shape, strides, dtype of a matrix
Signed = tuple[Hashable, list[int]]  # signatures of all arrays, and their addresses


def sign_all(library: GpuLibrary, a: Any, b: Any, bias: Any, out: Any) -> Signed | None:
    """None where an array takes a closer look."""
    signatures: list[Hashable] = []
    addresses: list[int] = []
    for given in (a, b, bias, out):
        is_list = isinstance(given, (list, tuple))
        signatures.append(len(given) if is_list else -1)
        for one in given if is_list else (given,):
            if one is None:
                signatures.append(None)
                addresses.append(0)
                continue
            found = library.sign(one)
            if found is None:
                return None
            signatures.append(found[0])
            addresses.append(found[1])
    return tuple(signatures), addresses


class Repeat:
    """How a call by weights was made: it is prepared again with other addresses, those of `sign_all` in its order."""

    def __init__(self, call: WeightCall[Any], library: GpuLibrary, gpu: int, rows: int) -> None:
        o = call.operands
        self._library, self._gpu = library, gpu
        self._make_arguments = type(call.arguments)
        self._pack: Callable[[list[Any]], Any] = type(call).pack_results
        self._a, self._b = _place(o.a), [_place(one) for one in o.b]
        self._has_list, self._has_bias, self._has_out = o.has_list, o.has_bias, o.has_out
        self._words = [(name, getattr(call.arguments, name)) for name in ("bias_dtype", "out_dtype", "plan_json")]
        if o.has_out:
            self._out = [_place(one) for one in o.out_views]
        else:
            sizes = [(one.shape[1], padded(one.shape[1], o.out_dtype)) for one in o.b]
            self._out = [((rows, cols), (pitch, 1), o.out_dtype) for cols, pitch in sizes]

    def prepare(self, addresses: list[int], out: Any) -> tuple[Any, Any, Any]:
        """The compiled arguments, the memory of the results as the core takes it, and the results."""
        weights = len(self._b)
        first_bias, first_out = 1 + weights, 1 + weights + (weights if self._has_bias else 1)
        arguments = self._make_arguments()
        arguments.a = _core.Matrix(addresses[0], *self._a)
        arguments.b = [_core.Matrix(addresses[1 + i], *place) for i, place in enumerate(self._b)]
        for name, word in self._words:
            setattr(arguments, name, word)
        if self._has_bias:
            arguments.bias = addresses[first_bias : first_bias + weights]
        if self._has_out:
            results, places = list(out) if self._has_list else [out], addresses[first_out:]
        else:
            results, places = self._new_results()
        views = [_core.Matrix(at, *place) for at, place in zip(places, self._out, strict=True)]
        return arguments, self._pack(views), results if self._has_list else results[0]

    def _new_results(self) -> tuple[list[Any], list[int]]:
        results, places = [], []
        for (rows, cols), (pitch, _), dtype in self._out:
            made = self._library.new((rows, pitch), dtype, self._gpu)
            places.append(self._library.address(made))
            results.append(made if pitch == cols else made[:, :cols])
        return results, places


class Again:
    """A call as its arguments show it, before anything was looked at, and the one like it that was made before."""

    __slots__ = ("addresses", "key", "library", "repeat", "stream")

    def __init__(self, key: Hashable, addresses: list[int], library: GpuLibrary, repeat: Repeat | None, stream: int):
        self.key, self.addresses, self.library, self.repeat, self.stream = key, addresses, library, repeat, stream

    def prepare(self, out: Any) -> tuple[Any, Any, Any] | None:
        """As `Repeat` does; None where there was none, or where it does not go as it did: then all is looked at."""
        if self.repeat is None:
            return None
        try:
            return self.repeat.prepare(self.addresses, out)
        except Exception:  # memory, most likely: the long way says it with its name
            return None


def _place(view: GpuView) -> Place:
    return view.shape, view.strides, view.dtype
