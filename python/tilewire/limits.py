"""Limits of the system that a launch can run into, named before or when they are met."""

from __future__ import annotations

import errno
import os
import resource

from tilewire.errors import Error, ResourceError

# What the launcher keeps open for a rank (two pipes, a handle of its process), and what starting one needs beside it.
_FILES_A_RANK = 3
_FILES_TO_START = 12
# Of a rank of a small call: its main thread, the one a call runs beside, the control connection, the proxy, the roles.
_THREADS_A_RANK = 9


def make_room_for_files(ranks: int) -> None:
    """Sees to it that the launcher can open what it needs for so many ranks: raises its soft limit where the hard one
    lets it, else raises ResourceError."""
    needed = len(os.listdir("/proc/self/fd")) + _FILES_TO_START + _FILES_A_RANK * ranks
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard == resource.RLIM_INFINITY or needed <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return
    raise ResourceError(
        "too few files can be open for a launch",
        values=f"{ranks} ranks need {needed}",
        limit=f"ulimit -n is {hard}",
        advice=f"raise it: ulimit -n {needed}",
    )


def start_error(rank: int, ranks: int, error: OSError) -> Error:
    """Why rank `rank` of `ranks` could not be started, with the limit that was met."""
    what = f"rank {rank} of {ranks} cannot be started"
    if error.errno == errno.EAGAIN:
        soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        used = threads_of_user()
        needed = used + (ranks - rank) * _THREADS_A_RANK
        return ResourceError(
            what,
            values=f"{error.strerror}; {used} processes and threads of this user run, each rank needs about "
            f"{_THREADS_A_RANK}",
            limit=f"ulimit -u is {_number(soft)}",
            advice=f"raise it: ulimit -u {needed} (in a container its pids limit too)",
        )
    if error.errno == errno.ENOMEM:
        return ResourceError(
            what, values=f"{error.strerror}; ulimit -v is {address_space()}", advice="raise it, or free memory"
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return ResourceError(what, values=str(error.strerror), limit=f"ulimit -n is {_number(soft)}", advice="raise it")
    return ResourceError(what, values=str(error))


def address_space() -> str:
    """The limit of address space as `ulimit -v` has it: KiB, or unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft // 1024} KiB"


def threads_of_user() -> int:
    """What counts against `ulimit -u`: all threads of all processes of this user."""
    count = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{entry.name}/task"))
        except OSError:  # it has ended
            continue
    return count


def _number(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
