"""The processes of a launch: their output, their signals and their common end. See `tilewire.launcher`."""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import IO, Any, Protocol

from tilewire.rank_failures import Failure, History, ends_text, ranks_text, report
from tilewire.rank_tracebacks import Tracebacks, is_unheard

_PR_SET_PDEATHSIG = 1
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PASSED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
# A line longer than this is shown in pieces.
_LONGEST_LINE = 64 * 1024
_POLL_S = 0.05
# How long output may stay open after its rank ended (something the rank started still holds it).
_DRAIN_S = 0.5


class Sink(Protocol):
    """Where output goes: whole lines, one or more at a time."""

    def write(self, text: str, /) -> Any: ...
    def flush(self) -> Any: ...


@dataclass(frozen=True)
class ShownTracebacks:
    """Which tracebacks are shown, see `tilewire.rank_tracebacks`."""

    all: bool = False  # of every rank, as they come
    hold_s: float = 0.5  # how long a rank runs on that has only logged one


_EACH_ONCE = ShownTracebacks()


class RankProcesses:
    """Start all ranks, `run()` them to their end, then `end()`. One thread, the main one."""

    def __init__(
        self,
        grace_s: float,
        out: Sink,
        err: Sink,
        tracebacks: ShownTracebacks = _EACH_ONCE,
        name: str = "tilewire run",
    ) -> None:
        self._name = name
        self._grace_s = grace_s
        self._out, self._err = out, err
        self._prepare = _before_exec(os.getpid())
        self._processes: list[_Process] = []
        self._selector = selectors.DefaultSelector()
        self._streams: set[_Stream] = set()  # that are open
        self._prefixes: list[str] = []
        self._failures: list[Failure] = []
        self._history = History()
        self._tracebacks = Tracebacks(partial(self._show, True), tracebacks.all)
        self._hold_s = tracebacks.hold_s
        self._settled: set[int] = set()
        self._is_failure_said = False
        self._asked: list[int] = []  # signals that asked for the end
        self._ending_since: float | None = None
        self._last_signal = 0

    def start(self, command: Sequence[str], environment: Mapping[str, str], prefix: str) -> None:
        child = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=self._prepare,
        )
        process = _Process(child)
        self._processes.append(process)
        if process.pidfd is not None:
            self._selector.register(process.pidfd, selectors.EVENT_READ, None)
        self._prefixes.append(prefix)
        rank = len(self._processes) - 1
        for source, is_error in ((child.stdout, False), (child.stderr, True)):
            assert source is not None
            stream = _Stream(source, rank, partial(self._take, is_error, rank))
            self._streams.add(stream)
            self._selector.register(source, selectors.EVENT_READ, stream)

    def is_asked_to_end(self) -> bool:
        return bool(self._asked)

    def run(self) -> int:
        """Gives the exit code of the launch once every rank has ended."""
        while any(process.exit_code() is None for process in self._processes):
            self._pump()
            self._note_failures()
            self._settle_ended()
            if self._ending_since is None and (self._failures or self._asked):
                self._ending_since = time.monotonic()
            if self._ending_since is None:
                self._tracebacks.show_held_since(time.monotonic() - self._hold_s)
            else:
                self._press(time.monotonic() - self._ending_since)
        self._signal_all(signal.SIGKILL)
        end = time.monotonic() + _DRAIN_S
        while self._streams and time.monotonic() < end:
            self._pump()
        self._note_failures()
        self._close_streams()
        self._settle_ended()
        return self._tell_of_asked() if self._asked else self._tell_of_failures()

    def end(self) -> None:
        """Leaves nothing behind, whatever happened before."""
        self._signal_all(signal.SIGKILL)
        for process in self._processes:
            process.close()
        self._close_streams()
        self._selector.close()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """While it is open, signals that ask for the end are noted and others are passed on to the ranks."""

        def ask(number: int, _: FrameType | None) -> None:
            self._asked.append(number)

        def pass_on(number: int, _: FrameType | None) -> None:
            self._signal_all(number)

        before: dict[int, Any] = {number: signal.signal(number, ask) for number in _ENDING_SIGNALS}
        before |= {number: signal.signal(number, pass_on) for number in _PASSED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pump(self) -> None:
        for key, _ in self._selector.select(_POLL_S):
            stream: _Stream | None = key.data
            if stream is None:
                self._selector.unregister(key.fileobj)  # a rank has ended: reason enough to look
            elif not stream.pump():
                self._selector.unregister(key.fileobj)
                self._streams.discard(stream)
                stream.close()

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    def _take(self, is_error: bool, rank: int, lines: Sequence[str]) -> None:
        """Lines that a rank has written."""
        self._history.note(rank, is_error, lines)
        if is_error:
            self._tracebacks.take(rank, lines, time.monotonic())
        else:
            self._show(False, rank, lines)

    def _show(self, is_error: bool, rank: int, lines: Sequence[str]) -> None:
        if lines:
            target = self._err if is_error else self._out
            target.write("".join(f"{self._prefixes[rank]}{line}\n" for line in lines))
            target.flush()
            self._history.note_shown(rank, is_error, len(lines))

    def _settle_ended(self) -> None:
        """Decides on the tracebacks of ranks that have ended and said all."""
        speaking = {stream.rank for stream in self._streams}
        for rank, process in enumerate(self._processes):
            code = process.exit_code()
            if code is not None and rank not in speaking and rank not in self._settled:
                self._settled.add(rank)
                self._tracebacks.settle(rank, code != 0, bool(self._asked))

    def _note_failures(self) -> None:
        """Keeps who failed, and how, in order, until ranks are pressed to end. Of several at once, a killed rank counts
        before those that reacted."""
        if self._last_signal:
            return
        codes = [(rank, process.exit_code()) for rank, process in enumerate(self._processes)]
        known = {failure.rank for failure in self._failures}
        new = [Failure(rank, code) for rank, code in codes if code and rank not in known]
        new.sort(key=lambda failure: failure.code > 0)
        self._failures += new

    def _tell_of_asked(self) -> int:
        number = self._asked[0]
        codes = {rank: process.exit_code() or 0 for rank, process in enumerate(self._processes)}
        self._say(f"ended by {signal.Signals(number).name}: {ends_text(codes)}")
        return 128 + number

    def _tell_of_failures(self) -> int:
        """Says how ranks failed, the cause last, and gives its exit code. Shows the cause's last lines again where they
        are not in sight any more."""
        if not self._failures:
            return 0
        found = report(self._failures, self._last_line)
        self._tracebacks.show_one_of(found.cause_ranks)
        if self._history.is_covered(found.cause.rank):
            self._say(f"the last lines of rank {found.cause.rank}:")
            self._show(True, found.cause.rank, self._last_lines(found.cause.rank))
        hidden = self._tracebacks.hidden()
        if hidden:
            self._say(f"not shown: the traceback{'s' * (len(hidden) > 1)} of {ranks_text(hidden)} (--all-tracebacks)")
        codes = {rank: process.exit_code() or 0 for rank, process in enumerate(self._processes)}
        failed = {failure.rank for failure in self._failures}
        pressed = {rank: code for rank, code in codes.items() if code and rank not in failed}
        if pressed:
            self._say(f"did not end by themselves: {ends_text(pressed)}")
        for line in found.lines:
            self._say(line)
        return found.cause.exit_code

    def _last_line(self, rank: int) -> str:
        return self._tracebacks.error_of(rank) or self._history.last_line(rank)

    def _last_lines(self, rank: int) -> Sequence[str]:
        return self._tracebacks.lines_of(rank) or self._history.last_lines(rank)

    def _say(self, text: str) -> None:
        self._err.write(f"{self._name}: {text}\n")
        self._err.flush()

    def _press(self, ending_s: float) -> None:
        """Ends the ranks more and more firmly: the user's own signal, SIGTERM after the time of grace, SIGKILL."""
        if self._failures and not self._asked and not self._is_failure_said and ending_s > self._grace_s / 4:
            self._is_failure_said = True
            self._say(f"rank {self._failures[0].rank} failed ({self._failures[0]}); ending the others")
        if ending_s > 2 * self._grace_s or len(self._asked) > 1:
            number: int = signal.SIGKILL
        elif ending_s > self._grace_s or self._is_unheard():
            number = signal.SIGTERM
        else:
            number = self._asked[0] if self._asked and not self._last_signal else self._last_signal
        if number != self._last_signal:
            self._last_signal = number
            self._signal_all(number)

    def _is_unheard(self) -> bool:
        return not self._asked and any(
            is_unheard(self._tracebacks.error_of(failure.rank)) for failure in self._failures
        )

    def _signal_all(self, number: int) -> None:
        for process in self._processes:
            process.signal_group(number)


class _Process:
    """One rank: the leader of a process group. It is not waited for before `close()`, so its number stays its own."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        self._code: int | None = None
        try:
            self.pidfd: int | None = os.pidfd_open(child.pid)
        except OSError:
            self.pidfd = None  # an old kernel: the polling interval has to do

    def exit_code(self) -> int | None:
        """None while it runs, minus the signal when one killed it."""
        if self._code is None:
            info = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if info is not None:
                self._code = info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
        return self._code

    def signal_group(self, number: int) -> None:
        # What is left of the group may have ended, or have taken another user's rights.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)

    def close(self) -> None:
        self._child.wait()
        if self.pidfd is not None:
            os.close(self.pidfd)


class _Stream:
    """One output of one rank: cuts it into lines."""

    def __init__(self, source: IO[bytes], rank: int, take: Callable[[Sequence[str]], None]) -> None:
        self._source = source
        self.rank = rank
        self._take = take
        self._rest = b""
        os.set_blocking(source.fileno(), False)

    def pump(self) -> bool:
        """Hands on what has come; False at the end of the stream."""
        try:
            data = os.read(self._source.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        self._hand_on(lines)
        return bool(data)

    def close(self) -> None:
        rest, self._rest = self._rest, b""
        self._source.close()
        self._hand_on([rest] if rest else [])

    def _hand_on(self, lines: Sequence[bytes]) -> None:
        if lines:
            self._take([line.decode(errors="replace") for line in lines])


def _before_exec(parent: int) -> Callable[[], None]:
    """What a child does between fork and exec: a process group of its own, and death with the launcher."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        os.setpgid(0, 0)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The launcher may have died before the line above took effect.
        if os.getppid() != parent:
            os._exit(1)

    return prepare
