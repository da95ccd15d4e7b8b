"""Ranks that share one GPU as if they were several nodes: `tilewire run --virtual 2x2 script.py`.

A private MPS daemon lets the kernels of all ranks run at once; each rank gets its share of the SMs as the size of its
grids (TILEWIRE_SMS), never as an MPS percentage: with percentages the sets of SMs overlap, and some CTAs never start. A
wire process, which has SMs of its own, moves data between the nodes. Daemon, wire and folders end with the launch, also
when the launcher is killed: the wire sees the end of its standard input, and so does a keeper that then ends the rest.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tilewire import _core
from tilewire.errors import InvalidArgument, Unavailable
from tilewire.gpu.mps import find_control, private_daemon, shares

_CARD_GBPS = 400.0  # that the ranks of one GPU share
_READY_S, _END_S = 60.0, 20.0
_POLL_S = 0.1
# It would take SMs away from ranks that count on them.
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def virtual_layout(text: str) -> list[int]:
    """Ranks of each node from "2x2" (nodes x ranks), "3,1" or "3+1"; ValueError names what is none of these."""
    parts = text.split("x")
    parts = [parts[1]] * int(parts[0]) if len(parts) == 2 and _is_count(parts[0]) else text.replace("+", ",").split(",")
    if not all(map(_is_count, parts)):
        raise ValueError(
            f"--virtual is {text!r}, must be nodes x ranks on each, as in 2x2, or the ranks of each node, as in 3,1"
        )
    return [int(part) for part in parts]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 5 and int(text) > 0


def wire_program() -> Path:
    """The program that joins the nodes; it comes with the CUDA part of the package."""
    return Path(_core.__file__).with_name("tilewire_wire")


@contextmanager
def virtual_cluster(layout: Sequence[int], secret: str, is_over: Callable[[], bool]) -> Iterator[dict[str, str]]:
    """Starts what the ranks need and gives their variables. `is_over`: whether waiting has become pointless. Raises
    `Unavailable` that says what is missing (CUDA in this package, MPS, a GPU), `InvalidArgument` for too many ranks.
    """
    program = wire_program()
    if not _core.has_gpu_ranks() or not program.is_file():
        raise Unavailable(
            "this package of Tilewire has no CUDA part, which a virtual cluster needs",
            values=f"GPU ranks: {'yes' if _core.has_gpu_ranks() else 'no'}, {program}: "
            f"{'there' if program.is_file() else 'not there'}",
            advice="build it where nvcc is: pip install . --config-settings=cmake.define.TILEWIRE_CUDA=ON",
        )
    # Not where TMPDIR may point to: the path of a socket is short.
    with (
        private_daemon(sum(layout) + 1) as mps,  # the wire is one, too
        tempfile.TemporaryDirectory(prefix="tilewire-wire-", dir="/tmp", ignore_cleanup_errors=True) as folder,
    ):
        shared = {**mps, "TILEWIRE_WIRE": f"{folder}/wire"}
        shared["TILEWIRE_CUDA_DEVICE"] = os.environ.get("TILEWIRE_CUDA_DEVICE") or "0"
        with (
            _keeper([mps["CUDA_MPS_PIPE_DIRECTORY"], folder], mps),
            _wire(program, {**shared, "TILEWIRE_SECRET": secret}, is_over) as sms,
        ):
            yield {**shared, **_share(layout, sms)}


# Nobody else is left when the launcher is killed.
_KEEP = """
read -r word && exit
echo quit | "$0" >/dev/null 2>&1
rm -rf -- "$@"
"""


@contextmanager
def _keeper(folders: Sequence[str], mps: Mapping[str, str]) -> Iterator[None]:
    """A process that ends the daemon and removes `folders` if this one dies before the end."""
    control = find_control()
    assert control is not None
    child = subprocess.Popen(
        ["/bin/sh", "-c", _KEEP, control, *folders],
        env={**os.environ, **mps},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            child.communicate("over\n")


def _share(layout: Sequence[int], sms: int) -> dict[str, str]:
    """What each rank gets of a GPU with `sms` SMs, and of the card. The wire takes an SM a rank, in pairs."""
    ranks = sum(layout)
    wire = (ranks + 1) // 2 * 2 if len(layout) > 1 else 0
    each = shares(sms - wire, ranks)
    if each < 2:
        raise InvalidArgument(
            "the GPU has too few SMs for so many ranks",
            values=f"{ranks} ranks, {sms} SMs, {wire} of them for the wire",
            limit="2 SMs a rank",
        )
    network = {} if os.environ.get("TILEWIRE_EMULATED_BANDWIDTH_GBPS") else _rate(ranks)
    return {"TILEWIRE_DEVICE": "cuda", "TILEWIRE_SMS": str(each), **network}


def _rate(ranks: int) -> dict[str, str]:
    return {"TILEWIRE_EMULATED_BANDWIDTH_GBPS": f"{_CARD_GBPS / ranks:g}"}


@contextmanager
def _wire(program: Path, environment: Mapping[str, str], is_over: Callable[[], bool]) -> Iterator[int]:
    """The wire process, from its start to its end; gives the number of SMs of its GPU."""
    child = subprocess.Popen(
        [program],
        env={name: value for name, value in {**os.environ, **environment}.items() if name != PERCENTAGE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the launcher, which ends the wire behind the ranks
    )
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    said: deque[str] = deque(maxlen=1)
    relay = threading.Thread(target=_show, args=(child.stderr, said), daemon=True)
    relay.start()
    try:
        yield _await_ready(child, said, relay, is_over)
    finally:
        with suppress(BrokenPipeError):
            child.stdin.close()
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        relay.join(1)
        child.stdout.close()


def _show(source: IO[str], said: deque[str]) -> None:
    with source:
        for line in source:
            said.append(line.rstrip("\n"))
            sys.stderr.write(f"[wire] {line}")
            sys.stderr.flush()


def _await_ready(
    child: subprocess.Popen[str], said: deque[str], relay: threading.Thread, is_over: Callable[[], bool]
) -> int:
    assert child.stdout is not None
    limit = time.monotonic() + _READY_S
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while not selector.select(_POLL_S):
            if time.monotonic() > limit or is_over():
                raise Unavailable("the wire process does not get ready", limit=f"waited {_READY_S:g} s at most")
    words = child.stdout.readline().split()
    if len(words) == 3 and words[0] == "ready" and words[1].isdigit():
        return int(words[1])
    child.wait(_END_S)
    relay.join(1)
    raise Unavailable("the wire process does not start", values=said[-1] if said else f"exit code {child.returncode}")
