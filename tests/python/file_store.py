"""A store for rendezvous tests: a file a key, with the methods and errors of torch.distributed's stores."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path


class FileStore:
    """set, get and wait as torch.distributed.Store has them; get of a key that is not there waits, here it raises."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def _path(self, key: str) -> Path:
        return self._folder / key.replace("/", "_")

    def set(self, key: str, value: str) -> None:
        part = self._path(key).with_suffix(f".part{os.getpid()}")
        part.write_text(value)
        part.rename(self._path(key))

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        end = time.monotonic() + timeout.total_seconds()
        while not all(self._path(key).exists() for key in keys):
            if time.monotonic() > end:
                raise RuntimeError("Socket Timeout")
            time.sleep(0.01)

    def get(self, key: str) -> bytes:
        return self._path(key).read_bytes()
