"""The arrays of a call on a GPU rank: taken over where they lie, on the stream of the call.

What a kernel cannot follow is copied, on that stream: inputs whose rows do not begin at multiples of 16 bytes, and
results that are to go to such places. Results of other widths are parts of wider arrays.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewire import _core
from tilewire.errors import InvalidArgument, ResourceError
from tilewire.gpu import dlpack_arrays
from tilewire.gpu.imported import any_library, libraries, library_of
from tilewire.gpu.library import GpuLibrary
from tilewire.gpu.rank import GpuRank
from tilewire.gpu.streams import LEGACY, stream_handle
from tilewire.gpu.views import (
    FLOATS,
    ITEM_BYTES,
    WHOLE_NUMBERS,
    GpuView,
    has_kernel_columns,
    has_kernel_heads,
    has_kernel_rows,
    has_kernel_slots,
    is_n_major,
    padded,
    slot_of,
    without_elements,
)

if TYPE_CHECKING:
    from tilewire.op_calls import Call

_HERE: AbstractContextManager[None] = nullcontext()


class GpuMemory:
    """Of one call. `stream` is what the caller passed; None is the current stream of the library that `example` is of,
    or else of the first one that the program has imported."""

    def __init__(self, rank: GpuRank, example: Any, stream: Any) -> None:
        self._rank = rank
        self.gpu = rank.gpu
        found = library_of(example)
        if found is None:
            found = next(iter(libraries()), None)
        self._library = found
        current = LEGACY if found is None else found.current_stream(self.gpu)
        self.stream = current if stream is None else stream_handle(stream, self.gpu)
        self._is_elsewhere = self.stream != current
        self._dtype = ""
        self._inputs: list[tuple[GpuLibrary | None, Any]] = []  # for _keep_inputs
        self._sizes: Sequence[int] = ()  # of the results, where they are known
        self._is_plain = True  # nothing was copied
        self._detours: list[tuple[GpuLibrary, Any, Any]] = []  # library, where a result shall go, where it comes from

    def inputs(self, a: Any, b: Sequence[Any], names: Sequence[str]) -> tuple[GpuView, list[GpuView]]:
        with self._current():
            return self._rows(a, "a"), self._weights(b, names)

    def rows(self, x: Any, name: str) -> GpuView:
        with self._current():
            return self._rows(x, name)

    def slots(self, x: Any, name: str) -> GpuView:
        with self._current():
            view = self._input(x, name, 3)
            slots, rows, cols = view.shape
            width = padded(cols, view.dtype)
            if 0 in view.shape:
                return GpuView(view.owner, view.address, view.shape, (rows * width, max(width, 8), 1), view.dtype)
            if has_kernel_slots(view) or view.dtype == "fp32":  # the core says why not
                return view
            self._is_plain = False
            library, x = self._of_a_library(x)
            _warn_of_copy(
                name, view, "rows that begin at multiples of 16 bytes, and slots as far apart from each other"
            )
            made = self._new(library, (slots, rows, width), view.dtype, name)[:, :, :cols]
            library.fill(made, x)
            return library.view(made, name)

    def whole_numbers(self, x: Any, name: str) -> GpuView:
        with self._current():
            return self._input(x, name, 2, WHOLE_NUMBERS)

    def biases(self, bias: Sequence[Any], names: Sequence[str], columns: Sequence[int]) -> tuple[list[Any], str]:
        with self._current():
            views = [
                None if one is None else self._bias(one, name, count)
                for one, name, count in zip(bias, names, columns, strict=True)
            ]
            found = {view.dtype for view in views if view is not None}
            dtype = found.pop() if len(found) == 1 else "fp32"
            dtype = dtype if dtype == self._dtype else "fp32"
            for i, view in enumerate(views):
                if view is not None and (view.dtype != dtype or (view.shape[0] > 1 and view.strides[0] != 1)):
                    views[i] = self._converted(bias[i], view, dtype, names[i])
            return views, dtype

    def extra(self, x: Any, name: str, ndim: int = 2) -> GpuView:
        with self._current():
            return self._input(x, name, ndim)

    def heads(self, x: Any, name: str) -> GpuView:
        with self._current():
            view = self._input(x, name, 4)
            if has_kernel_heads(view) or view.dtype == "fp32":  # the core says why not
                return view
            self._is_plain = False
            library, x = self._of_a_library(x)
            _warn_of_copy(name, view, "contiguous columns, and other strides of multiples of 16 bytes")
            made = self._new(library, view.shape, view.dtype, name)
            library.fill(made, x)
            return library.view(made, name)

    def outputs(self, out: Sequence[Any], names: Sequence[str], ndim: int = 2) -> list[GpuView]:
        with self._current():
            return [self._output(one, name, ndim) for one, name in zip(out, names, strict=True)]

    def new_like(self, example: Any, shape: tuple[int, ...], dtype: str, name: str) -> Any:
        library = self._library_of(example) or any_library("results")
        if len(shape) != 2:
            return self._new(library, shape, dtype, name)
        rows, cols = shape  # of a matrix, as kernels write
        made = self._new(library, (rows, padded(cols, dtype)), dtype, name)
        return made if made.shape[1] == cols else made[:, :cols]

    def view_result(self, x: Any, name: str, ndim: int = 2) -> GpuView:
        """What `new_like` gave."""
        view = (self._library_of(x) or any_library("results")).view(x, name)
        return without_elements(view, as_n_major=True) if ndim == 2 and 0 in view.shape else view

    def new_numbers(self, example: Any, shape: tuple[int, ...], dtype: str, name: str) -> tuple[Any, int]:
        library = self._library_of(example) or any_library("results")
        made = self._new(library, shape, dtype, name)
        return made, library.address(made)

    def dtype_of(self, view: GpuView) -> str:
        return view.dtype

    def item_bytes(self, view: GpuView) -> int:
        return ITEM_BYTES[view.dtype]

    def address(self, view: GpuView) -> int:
        return view.address

    def strides(self, view: GpuView) -> tuple[int, ...]:
        return view.strides

    def matrices(self, view: GpuView) -> list[_core.Matrix]:
        return [self.matrix(slot_of(view, number)) for number in range(view.shape[0])]

    def matrix(self, view: GpuView) -> _core.Matrix:
        return _core.Matrix(view.address, view.shape, view.strides, view.dtype)

    def settle(self, call: Call[Any, Any], key: Hashable, sizes: Sequence[int]) -> None:
        """A call that is ready gets its results here, on this thread, and waits for nobody later."""
        self._sizes = sizes
        if self._rank.is_ready(key, call.own):
            with self._current():
                call.early = call.make_results(*sizes)
        else:
            call.key = key

    def run(self, call: Call[Any, Any], run: Callable[..., _core.CallReport]) -> _core.CallReport:
        if call.early is not None:
            report = run(call.arguments, call.make_results, self.stream, call.early)
        else:
            report = run(call.arguments, partial(self._make_results, call), self.stream)
            self._rank.note_made()
            if call.key is not None:
                self._rank.note_ready(call.key)
        self._rank.note_own(call.own)
        if self._detours:
            self._finish_detours()
        self._keep_inputs()
        again = call.again
        if again is not None and self._is_plain and not self._inputs and any(self._sizes):
            repeat = call.repeat(again.library, self.gpu, self._sizes)
            if repeat is not None:
                self._rank.note_repeat(again.key, repeat)
        return report

    def _make_results(self, call: Call[Any, Any], *sizes: int) -> Any:
        """The core asks on a thread of its own, which has another current stream."""
        with self._library.on(self.stream, self.gpu) if self._library else _HERE:
            return call.make_results(*sizes)

    def _current(self) -> AbstractContextManager[Any]:
        """Where what the libraries do belongs into the call's stream."""
        return self._library.on(self.stream, self.gpu) if self._is_elsewhere and self._library else _HERE

    def _rows(self, x: Any, name: str) -> GpuView:
        view = self._input(x, name, 2)
        self._dtype = view.dtype
        if 0 in view.shape:
            return without_elements(view, as_n_major=True)
        return view if has_kernel_rows(view) else self._copied(x, view, name, as_n_major=True)

    def _input(self, x: Any, name: str, ndim: int, dtypes: tuple[str, ...] = FLOATS) -> GpuView:
        library = self._library_of(x)
        if library is None:
            self._check_foreign(x, name)
            view = dlpack_arrays.view(x, name, self.stream, dtypes)
            self._inputs.append((None, view.owner))
        else:
            if library.gpu_of(x) != self.gpu:
                raise self._wrong_place(library.gpu_of(x), library.device_text(x), name)
            view = library.view(x, name, dtypes)
            if self._is_elsewhere:
                self._inputs.append((library, x))
        _check_dimensions(view, name, ndim)
        return view

    def _weights(self, b: Sequence[Any], names: Sequence[str]) -> list[GpuView]:
        """All stored in the order of the first that has elements: a kernel has one for all."""
        views = [self._input(one, name, 2) for one, name in zip(b, names, strict=True)]
        as_n_major = next((is_n_major(view) for view in views if 0 not in view.shape), True)
        fits = has_kernel_rows if as_n_major else has_kernel_columns
        for i, view in enumerate(views):
            if 0 in view.shape:
                views[i] = without_elements(view, as_n_major)
            elif not fits(view) or is_n_major(view) != as_n_major:
                views[i] = self._copied(b[i], view, names[i], as_n_major=as_n_major)
        return views

    def _bias(self, x: Any, name: str, columns: int) -> GpuView:
        view = self._input(x, name, 1)
        if view.shape[0] != columns:
            raise InvalidArgument(
                f"{name} has the wrong length",
                values=f"{name} has {view.shape[0]} values, its weight has {columns} columns",
                limit="must be equal",
            )
        return view

    def _output(self, x: Any, name: str, ndim: int) -> GpuView:
        library = self._library_of(x)
        if library is None:
            self._check_foreign(x, name)
            raise InvalidArgument(
                f"{name} is read-only",
                values=f"{name} is a {type(x).__name__}, which comes by DLPack",
                limit="must be a tensor of torch or an array of CuPy",
            )
        if library.gpu_of(x) != self.gpu:
            raise self._wrong_place(library.gpu_of(x), library.device_text(x), name)
        view = library.view(x, name)
        _check_dimensions(view, name, ndim)
        if 0 in view.shape:
            return without_elements(view, as_n_major=True) if ndim == 2 else view
        return view if self._is_written_alone(view) else self._detour(library, x, view, name)

    def _is_written_alone(self, view: GpuView) -> bool:
        """Whether a kernel may write there. It writes whole pieces of 16 bytes: what lies beside is not its own. What
        cannot be written at all is left to the core's checks."""
        if len(view.shape) != 2:
            return not view.is_contiguous() or has_kernel_heads(view)
        (rows, cols), (pitch, step) = view.shape, view.strides
        if (cols > 1 and step != 1) or (rows > 1 and pitch < cols):
            return True
        return has_kernel_rows(view) and padded(cols, view.dtype) == cols

    def _detour(self, library: GpuLibrary, x: Any, view: GpuView, name: str) -> GpuView:
        self._is_plain = False
        made = self.new_like(x, view.shape, view.dtype, name)
        self._detours.append((library, x, made))
        return library.view(made, name)

    def _finish_detours(self) -> None:
        with self._current():
            for library, to, made in self._detours:
                library.fill(to, made)

    def _new(self, library: GpuLibrary, shape: tuple[int, ...], dtype: str, name: str) -> Any:
        try:
            return library.new(shape, dtype, self.gpu)
        except Exception as error:  # each library has its own for this
            raise ResourceError(
                f"{name} does not fit into memory",
                values=f"{list(shape)} of {dtype} on cuda:{self.gpu}, {math.prod(shape) * ITEM_BYTES[dtype]} bytes",
                advice=str(error).partition("\n")[0],
            ) from error

    def _copied(self, x: Any, view: GpuView, name: str, as_n_major: bool) -> GpuView:
        """A copy that a kernel can follow, in memory that goes back to the stream's when the call is in it."""
        rows, cols = view.shape
        if view.dtype == "fp32":  # the core says why not
            return view
        self._is_plain = False
        library, x = self._of_a_library(x)
        _warn_of_copy(name, view, "rows that begin at multiples of 16 bytes, and one order for all weights")
        if as_n_major:
            made = self._new(library, (rows, padded(cols, view.dtype)), view.dtype, name)[:, :cols]
        else:
            made = self._new(library, (cols, padded(rows, view.dtype)), view.dtype, name)[:, :rows].T
        library.fill(made, x)
        return library.view(made, name)

    def _converted(self, x: Any, view: GpuView, dtype: str, name: str) -> GpuView:
        self._is_plain = False
        library, x = self._of_a_library(x)
        made = self._new(library, (1, view.shape[0]), dtype, name)[0]
        library.fill(made, x)
        return library.view(made, name)

    def _of_a_library(self, x: Any) -> tuple[GpuLibrary, Any]:
        library = library_of(x)
        if library is not None:
            return library, x
        library = any_library("a copy that a kernel can follow")
        return library, library.take(x)

    def _keep_inputs(self) -> None:
        foreign: list[Any] = []
        for library, x in self._inputs:
            if library is None:
                foreign.append(x)
            else:
                library.keep_for(x, self.stream, self.gpu)
        if foreign:
            self._rank.hold(foreign)

    def _library_of(self, x: Any) -> GpuLibrary | None:
        """That of most arrays of a call is the same."""
        own = self._library
        return own if own is not None and own.owns(x) else library_of(x)

    def _check_foreign(self, x: Any, name: str) -> None:
        if hasattr(x, "__dlpack__"):
            gpu, where = dlpack_arrays.gpu_of(x, name)
            if gpu != self.gpu:
                raise self._wrong_place(gpu, where, name)
        elif hasattr(x, "__array_interface__"):
            raise self._wrong_place(-1, "host memory", name)
        else:
            raise InvalidArgument(
                f"{name} is no array",
                values=f"{name} is a {type(x).__name__}",
                limit=f"must be a tensor of torch, an array of CuPy or an object with __dlpack__, on cuda:{self.gpu}",
            )

    def _wrong_place(self, gpu: int, where: str, name: str) -> InvalidArgument:
        if gpu < 0:
            return InvalidArgument(
                f"{name} is not in GPU memory",
                values=f"{name} is in host memory" if where in ("cpu", "host memory") else f"{name} is on {where}",
                limit=f"the ranks of this communicator are GPUs, this one cuda:{self.gpu}",
                advice=f'pass {name}.to("cuda:{self.gpu}"), or make the communicator without device="cuda"',
            )
        return InvalidArgument(
            f"{name} is on another GPU",
            values=f"{name} is on {where}",
            limit=f"this rank's GPU is cuda:{self.gpu}",
            advice=f"make it there (torch.cuda.set_device({self.gpu})), or pass cuda_device={gpu} to tilewire.init()",
        )


def _check_dimensions(view: GpuView, name: str, ndim: int) -> None:
    if len(view.shape) != ndim:
        raise InvalidArgument(
            f"{name} has the wrong number of dimensions",
            values=f"{name} has shape {list(view.shape)}",
            limit=f"must have {ndim}",
            advice=f"reshape it to {ndim} dimensions",
        )


def _warn_of_copy(name: str, view: GpuView, needs: str) -> None:
    """Once for each place that calls, as Python's warnings go."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tilewire":
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"tilewire: {name} {list(view.shape)} with strides {view.strides} is copied in each such call: a kernel needs "
        f"{needs}",
        RuntimeWarning,
        stacklevel=level,
    )
