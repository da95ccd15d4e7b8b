"""`tilewire.init()`: from what the caller and the launcher say to the communicator."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tilewire import _core, stores
from tilewire.argument_checks import counts, is_switch, utf8
from tilewire.communicator import Communicator, opened
from tilewire.errors import Error, InvalidArgument
from tilewire.gpu.imported import chosen_gpu


def init(
    rank: int | None = None,
    world_size: int | None = None,
    rendezvous: str | None = None,
    *,
    layout: str | Sequence[int] | None = None,
    device: Any = None,
    secret: str | None = None,
    store: Any = None,
    **options: Any,
) -> Communicator:
    """Joins the ranks of a job. Collective: returns when all have come.

    `device` says what the ranks are: "cpu" (left out), or "cuda", GPUs of one host. Arrays of a GPU rank are in the
    memory of its GPU: that of `cuda_device`, which "cuda:1" sets too, else the one that the program has chosen in torch
    or CuPy (torch.cuda.set_device), else in turn for the ranks of a host. Several ranks may share one (`sms`), under
    MPS.

    What is left out comes from the launcher: torchrun, mpirun, srun or `tilewire run`, by their environment variables.
    mpirun gives ranks of several hosts no place to meet: set TILEWIRE_RENDEZVOUS, or MASTER_ADDR and MASTER_PORT.
    Without any launcher, and with no place to meet, it is a job of one rank.

    `rendezvous` is "host:port" of rank 0, which listens there. `store` takes its place: an object with
    `set(key, value)` and `get(key)`, and perhaps `wait(keys, timeout)`, as torch.distributed's stores have; the address
    and a secret travel through it. Under torchrun its own store is used.
    `layout` is the ranks of each node, "2,2" or [2, 2]; without it, nodes are hosts. `secret` is shared by all ranks
    and proves them to one another. All other options by name: docs/options.md has them and their variables.

    The communicator is also the default of calls without `comm=` while it is the only open one.

    Raises on every rank: `DeadlineError` (lists the ranks that did not come), `Mismatch` (names who differs and both
    values), `InvalidArgument` (an unknown option, with the nearest known one), `ResourceError` (a port in use, memory).
    What one rank alone refuses is `Refused` on the others, with its text, unless it is rank 0 or cannot reach it.
    """
    _load_calls()
    given = {"rank": rank, "world_size": world_size, "rendezvous": rendezvous, "secret": secret, **options}
    try:
        if device is not None:
            _set_device(given, device)
        if layout is not None:
            given["layout"] = layout if isinstance(layout, str) else ",".join(map(str, counts("layout", layout)))
        settings = {name: _text(name, value) for name, value in given.items() if value is not None}
        if "layout" in settings:
            settings["layout"] = settings["layout"].replace("+", ",")
    except Error as error:
        _refuse_init(given, store, error)
        raise
    _choose_gpu(settings)
    found = stores.find_store(store, settings)
    return opened(_core.init(settings, found))


def _set_device(given: dict[str, Any], device: Any) -> None:
    """ "cuda:1", also as torch.device has it, is a kind and a number."""
    kind, colon, number = str(device).partition(":")
    given["device"] = kind if number.isdigit() else str(device)
    if not (colon and number.isdigit() and kind == "cuda"):
        return
    if given.get("cuda_device") not in (None, int(number), number):
        raise InvalidArgument(
            "device and cuda_device are different GPUs",
            values=f"device = {device}, cuda_device = {given['cuda_device']}",
            limit="must be the same",
        )
    given["cuda_device"] = number


def _choose_gpu(settings: dict[str, str]) -> None:
    """The one that the program has chosen, where nothing else says which."""
    is_cuda = settings.get("device", os.environ.get("TILEWIRE_DEVICE")) == "cuda"
    if not is_cuda or "cuda_device" in settings or os.environ.get("TILEWIRE_CUDA_DEVICE"):
        return
    gpu = chosen_gpu()
    if gpu >= 0:
        settings["cuda_device"] = str(gpu)


def _refuse_init(given: Mapping[str, Any], store: Any, error: Error) -> None:
    """Tells the other ranks, which wait for this one, why it does not come. They may be out of reach."""
    settings: dict[str, str] = {}
    for name in ("rank", "world_size", "rendezvous", "secret", "interface"):
        with suppress(Error):
            if given.get(name) is not None:
                settings[name] = _text(name, given[name])
    with suppress(Exception):  # a store of the user's may raise anything
        _core.refuse_init(settings, stores.find_store(store, settings), error)


def _load_calls() -> None:
    """Imports what calls need. Were it left to the first call, a child forked by another thread in the middle of it
    would find the locks of Python's imports taken for ever."""
    import tilewire

    for name in tilewire.__all__:
        getattr(tilewire, name)


def _text(name: str, value: Any) -> str:
    if is_switch(value):
        raise InvalidArgument(f"{name} cannot be", values=f"{name} = {value}", limit="no option is a truth value")
    return utf8(name, str(value))
