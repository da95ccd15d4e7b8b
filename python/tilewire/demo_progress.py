"""How far a demo is: rank 0 prints a line as each step begins, and the command makes a bar or plain lines of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

_STEP = re.compile(r"@step (\d+)/(\d+) (.*)")


def step_line(step: int, steps: int, name: str) -> str:
    """What rank 0 prints as step `step` of `steps` begins."""
    return f"@step {step}/{steps} {name}"


class Show(Protocol):
    """Where progress and what else the ranks say is shown."""

    def step(self, step: int, steps: int, name: str) -> None: ...
    def text(self, line: str) -> None: ...


class StepOutput:
    """The launcher's `out`: takes whole lines, tells steps from what else ranks print."""

    def __init__(self, show: Show) -> None:
        self._show = show

    def write(self, text: str) -> None:
        for line in text.splitlines():
            found = _STEP.search(line)
            if found:
                self._show.step(int(found[1]), int(found[2]), found[3])
            else:
                self._show.text(line)

    def flush(self) -> None:
        pass


class _Lines:
    """Progress where nobody watches: a line a step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin = time.monotonic()

    def step(self, step: int, steps: int, name: str) -> None:
        self.text(f"{time.monotonic() - self._begin:6.1f} s   {step:{len(str(steps))}}/{steps} {name}")

    def text(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)


@contextmanager
def show_progress(console: Console, starting: str) -> Iterator[StepOutput]:
    """A bar on a terminal, lines elsewhere; `starting` is shown until the first step begins."""
    if not console.is_terminal:
        lines = _Lines(console)
        lines.text(starting)
        yield StepOutput(lines)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(starting, total=None)

        class Bar:
            def step(self, step: int, steps: int, name: str) -> None:
                bar.update(task, completed=step - 1, total=steps, description=name)

            def text(self, line: str) -> None:
                bar.console.print(line, markup=False, highlight=False)

        yield StepOutput(Bar())
