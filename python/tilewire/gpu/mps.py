"""A private MPS daemon: with it the kernels of several processes run on one GPU at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewire.errors import Unavailable

_CONTROL = "nvidia-cuda-mps-control"
_FOLDERS = ("/usr/local/nvidia/bin", "/usr/bin")
_START_S, _END_S = 20.0, 10.0
# A GPU has some 128 channels for the connections of all clients; by default a process takes more than a fourth of them,
# and the fourth rank is out of memory. Six clients with eight each are fine. Measured on an H200.
_MOST_CONNECTIONS, _CONNECTIONS_EACH = 96, 8


def find_control() -> str | None:
    """The program that starts and ends MPS daemons, or None."""
    return shutil.which(_CONTROL) or shutil.which(_CONTROL, path=os.pathsep.join(_FOLDERS))


@contextmanager
def private_daemon(clients: int) -> Iterator[dict[str, str]]:
    """Starts a daemon with folders of its own and gives the variables of so many programs that shall be its clients. It
    ends, with what is left of them, at the end. Raises `Unavailable` that says why there is none."""
    control = find_control()
    if control is None:
        raise Unavailable(
            "ranks cannot share a GPU at the same time",
            values=f"{_CONTROL} is not there",
            limit=f"looked for on PATH and in {', '.join(_FOLDERS)}",
            advice="install the part of the NVIDIA driver that has it (nvidia-compute-utils)",
        )
    # Not where TMPDIR may point to: the path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="tilewire-mps-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        # A daemon that sees some GPUs numbers them anew, and its clients would have to know.
        environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"} | own
        _run([control, "-d"], environment, folder)
        try:
            yield {**own, **connections(clients)}
        finally:
            _end(control, environment, Path(folder))


def _run(command: list[str], environment: dict[str, str], folder: str) -> None:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_START_S, stdin=subprocess.DEVNULL
        )
        wrong = (
            "" if done.returncode == 0 else f"it ended with {done.returncode}: {(done.stdout + done.stderr).strip()}"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        wrong = str(error)
    if wrong:
        log = Path(folder, "control.log")
        last = log.read_text(errors="replace").splitlines()[-1:] if log.exists() else []
        raise Unavailable(
            "the MPS daemon does not start",
            values="; ".join([wrong, *last]),
            advice="see whether this user may use the GPU: nvidia-smi",
        )


def _end(control: str, environment: dict[str, str], folder: Path) -> None:
    try:
        subprocess.run(
            [control],
            env=environment,
            input=f"quit -t {int(_END_S / 2)}\n",
            text=True,
            capture_output=True,
            timeout=_END_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    limit = time.monotonic() + _END_S
    while (folder / "nvidia-cuda-mps-control.pid").exists() and time.monotonic() < limit:
        time.sleep(0.05)


def connections(clients: int) -> dict[str, str]:
    """What lets so many processes have contexts on one GPU at once."""
    each = max(1, min(_CONNECTIONS_EACH, _MOST_CONNECTIONS // clients))
    return {"CUDA_DEVICE_MAX_CONNECTIONS": str(each)}


def shares(sms: int, ranks: int) -> int:
    """SMs of each of several ranks that share a GPU: even numbers, for kernels take them in pairs."""
    return sms // ranks // 2 * 2
