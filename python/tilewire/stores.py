"""Where ranks find each other when the launcher has a store: torchrun's own, or one that the user gives."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tilewire.errors import InvalidArgument, Unavailable

_WAIT = timedelta(milliseconds=500)
_PAUSE_S = 0.01
# How many communicators this process has tried to make through a store: all ranks make them in the same order.
_used = 0


class Store:
    """The two functions that the compiled core asks for, over any store with set and get."""

    def __init__(self, store: Any, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def set(self, key: str, value: bytes) -> None:
        # As text: not every store takes any byte.
        self._store.set(self._prefix + key, value.hex())

    def get(self, key: str) -> bytes | None:
        """The value, or None when it has not come within a moment."""
        name = self._prefix + key
        if hasattr(self._store, "wait"):
            try:
                self._store.wait([name], _WAIT)
            except (RuntimeError, TimeoutError, KeyError):  # torch.distributed's DistStoreError is a RuntimeError
                time.sleep(_PAUSE_S)
                return None
        try:
            value = self._store.get(name)
        except (KeyError, LookupError, TimeoutError):
            value = None
        if value is None:
            time.sleep(_PAUSE_S)
            return None
        return bytes.fromhex(value if isinstance(value, str) else bytes(value).decode())


def find_store(store: Any, settings: dict[str, str], environment: Mapping[str, str] = os.environ) -> Store | None:
    """The store that the ranks meet in, or None when they meet at an address. Fills in `settings` from the launcher."""
    global _used
    if store is None and _is_torchrun(settings, environment):
        store = _torchrun_store()
        settings.setdefault("rank", environment["RANK"])
        settings.setdefault("world_size", environment["WORLD_SIZE"])
    if store is None:
        return None
    if "rendezvous" in settings:
        raise InvalidArgument("the ranks have two places to meet", values="store and rendezvous", limit="pass one")
    lacking = [name for name in ("set", "get") if not callable(getattr(store, name, None))]
    if lacking:
        raise InvalidArgument(
            "store is no store", values=f"{type(store).__name__} has no {', '.join(lacking)}", limit="needs set and get"
        )
    _used += 1
    return Store(store, f"tilewire/{_used}/")


def _is_torchrun(settings: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """torchrun's agent itself listens on MASTER_PORT: ranks can only meet in its store."""
    explicit = "rendezvous" in settings or "TILEWIRE_RANK" in environment or environment.get("TILEWIRE_RENDEZVOUS")
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
    return not explicit and all(environment.get(name) for name in names) and int(environment["WORLD_SIZE"]) > 1


def _torchrun_store() -> Any:
    try:
        import torch.distributed as dist
    except ImportError as error:
        raise Unavailable(
            "torchrun's store cannot be reached",
            values=f"torch.distributed: {error}",
            advice="install torch, or pass rendezvous=",
        ) from error
    store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=60)))
    return store
