"""What a communicator of GPU ranks keeps between calls on the side of Python."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tilewire import _core
from tilewire.gpu.imported import is_capturing, library_of
from tilewire.gpu.repeats import Again, Repeat, sign_all

# The core keeps more: what is ready here is ready there.
_MOST_READY = 64
# Of what calls of one key have of their own. The core has room for more, but for what graphs hold.
_MOST_OWN = 2
# Calls in flight whose arrays are kept; then one waits for all of them.
_MOST_HELD = 256


class GpuRank:
    """This rank's GPU, the calls that are ready, and the arrays that belong to no library with an order of its own."""

    def __init__(self, core: _core.Communicator) -> None:
        self._core = core
        self.gpu = core.gpu
        self.world_size = core.world_size
        self._ready: set[Hashable] = set()
        self._owns: list[Hashable] = []  # the latest last
        self._repeats: dict[Hashable, Repeat] = {}
        self._held: list[Any] = []
        self._captured: list[Any] = []
        self._has_refused = False  # the last call: the next one waits until the others have refused it too

    def is_ready(self, key: Hashable, own: Hashable = None) -> bool:
        """Whether such a call was made before, and lately with what it has of its own: then it waits for nobody."""
        if key not in self._ready or self._must_wait():
            return False
        return own is None or own in self._owns or is_capturing()

    def note_refused(self) -> None:
        self._has_refused = True

    def note_made(self) -> None:
        if self._must_wait():
            self._has_refused = False

    def _must_wait(self) -> bool:
        # What is captured in a graph waits for nobody.
        return self._has_refused and not is_capturing()

    def note_own(self, own: Hashable) -> None:
        """Of a call that was just made: then it has room."""
        if own is not None:
            self._owns = [one for one in self._owns if one != own][1 - _MOST_OWN :] + [own]

    def note_ready(self, key: Hashable) -> None:
        if key in self._ready:
            return
        if len(self._ready) >= _MOST_READY:
            self._ready.clear()
            self._repeats.clear()
        self._ready.add(key)

    def again(self, shared: Hashable, arrays: tuple[Any, Any, Any, Any]) -> Again | None:
        """A call of a, b, bias and out on the current stream of their library; `shared`: what calls differ by besides.
        None where that is not all that there is to it."""
        library = library_of(arrays[0])
        signed = sign_all(library, *arrays) if library is not None else None
        if library is None or signed is None:
            return None
        key = (shared, signed[0])
        repeat = None if self._must_wait() else self._repeats.get(key)
        return Again(key, signed[1], library, repeat, library.current_stream(self.gpu))

    def note_repeat(self, key: Hashable, repeat: Repeat) -> None:
        if len(self._repeats) < _MOST_READY:
            self._repeats[key] = repeat

    def hold(self, arrays: list[Any]) -> None:
        """Keeps arrays until the call that was just made has ended; for ever where it was captured in a graph."""
        if is_capturing():
            self._captured += arrays
            return
        if len(self._held) >= _MOST_HELD:
            self._core.synchronize()
        elif not self._core.is_idle:
            self._held.append(arrays)
            return
        self._held.clear()
