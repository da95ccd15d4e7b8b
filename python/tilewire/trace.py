"""The timeline of a communicator's calls, while they are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewire.trace_events import Event, Recording, Run, as_events
from tilewire.trace_files import write_recording

if TYPE_CHECKING:
    import os

    from tilewire import _core


class Trace:
    """The timeline of the calls made while it records; see `Communicator.trace`.

    It has room for the option trace_events; what comes later is dropped and counted. Everything here waits for a call
    of another thread, as calls do.
    """

    def __init__(self, core: _core.Communicator) -> None:
        self._core = core
        self._first = self._first_dropped = 0  # of the communicator's events, and of those that it has dropped
        self._stopped: Recording | None = None

    def start(self) -> None:
        """Records from the next call on."""
        self._first, self._first_dropped = self._core.trace_event_count(), self._core.trace_dropped()
        self._stopped = None
        self._core.start_trace()

    def stop(self) -> None:
        """Ends the recording. Idempotent."""
        if self._stopped is None:
            self._core.stop_trace()
            self._stopped = Recording(self._events_so_far(), self._dropped_so_far())

    @property
    def events(self) -> list[Event]:
        """This rank's events so far, by time."""
        return self._stopped.events if self._stopped else self._events_so_far()

    @property
    def dropped(self) -> int:
        """How many events are lacking in `events`: there was no room for them."""
        return self._stopped.dropped if self._stopped else self._dropped_so_far()

    def write(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Writes this rank's events so far, in the form that the path's suffix says: .json for ui.perfetto.dev and
        `tilewire trace`, .svg or .png for a picture (needs matplotlib). `title` stands in the file and the picture.

        Each rank writes a file of its own, so put the rank into its name; `tilewire trace` makes one of several.
        Raises `InvalidArgument` for another suffix, `Unavailable` without matplotlib, OSError for a path that cannot be
        written.
        """
        write_recording(Recording(self.events, self.dropped, Run(self._core.id, self._core.world_size)), path, title)

    def _events_so_far(self) -> list[Event]:
        return as_events(self._core.trace_events(self._first))

    def _dropped_so_far(self) -> int:
        return self._core.trace_dropped() - self._first_dropped

    def __enter__(self) -> Trace:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
