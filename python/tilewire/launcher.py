"""The embedded launcher: starts the ranks of one machine as processes, shows their output and ends them together.

Each rank finds its place in the environment: TILEWIRE_RANK, TILEWIRE_WORLD_SIZE, TILEWIRE_LAYOUT (ranks of each node,
"2,2"), TILEWIRE_RENDEZVOUS ("127.0.0.1:port", where rank 0 listens) and TILEWIRE_SECRET (made anew for every launch).

*The port.* The launcher binds a free port with SO_REUSEADDR and holds it, without listening, until the end. While it
does, the system hands the port to nobody who asks for any free port; rank 0 can still bind it by number, also with
SO_REUSEADDR. So there is no moment in which another process could be given the port between choosing and using it.

*The end.* Every rank leads a process group of its own and is killed by the kernel when the launcher dies. When a rank
fails or a signal asks for the end, the others get `grace_s` to say what they have to say, then SIGTERM, then SIGKILL to
all that is left in their groups. Linux only; call it from the main thread (signal handlers, death signal).
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from tilewire.errors import InvalidArgument
from tilewire.limits import make_room_for_files, start_error
from tilewire.rank_processes import RankProcesses, ShownTracebacks, Sink
from tilewire.virtual_cluster import PERCENTAGE, virtual_cluster

MOST_RANKS = 2**20


@dataclass(frozen=True)
class Launch:
    """What to start. `command` is what each rank runs; see `rank_command`."""

    command: Sequence[str]
    layout: Sequence[int]  # ranks of each node
    environment: Mapping[str, str] = field(default_factory=dict)  # added to this process's own
    grace_s: float = 3.0
    prefix: bool = True
    virtual: bool = False  # the ranks share one GPU, see tilewire.virtual_cluster
    tracebacks: ShownTracebacks = ShownTracebacks()
    name: str = "tilewire run"  # of who says what became of the ranks

    @property
    def world_size(self) -> int:
        return sum(self.layout)


def make_layout(ranks: int | None, nodes: str | None) -> list[int]:
    """Ranks of each node from what the command line says of both; ValueError names what does not fit.

    `nodes` is how many nodes there are, "2", or the ranks of each, "3,1" or "3+1". A number of nodes shares the ranks
    out as evenly as they go: the first nodes get one more. Without `ranks` each of them has one.
    """
    parts = ("1" if nodes is None else nodes).replace("+", ",").split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 and int(part) > 0 for part in parts):
        raise ValueError(f"--nodes is {nodes!r}, must be how many nodes, as in 2, or the ranks of each, as in 3,1")
    counts = [int(part) for part in parts]
    if len(counts) > 1:
        if ranks is not None and ranks != sum(counts):
            raise ValueError(f"--nodes {nodes} are {sum(counts)} ranks, --ranks says {ranks}")
    else:
        total = counts[0] if ranks is None else ranks
        if total < counts[0]:
            ranks_text = f"{total} rank{'s' * (total != 1)}"
            raise ValueError(f"{ranks_text} on {counts[0]} nodes: there must be at least one rank on each")
        _check_ranks(total, nodes)
        counts = [total // counts[0] + (node < total % counts[0]) for node in range(counts[0])]
    _check_ranks(sum(counts), nodes)
    return counts


def _check_ranks(ranks: int, nodes: str | None) -> None:
    if ranks > MOST_RANKS:
        where = f" on --nodes {nodes}" if nodes is not None else ""
        raise ValueError(f"{ranks} ranks{where}: there may be at most {MOST_RANKS}")


def rank_command(program: str, arguments: Sequence[str], module: bool = False) -> list[str]:
    """Python runs modules and files ending in .py, anything else runs by itself; ValueError when it is not there."""
    if module:
        return [sys.executable, "-m", program, *arguments]
    if program.endswith(".py"):
        if not os.path.isfile(program):
            raise ValueError(f"there is no script {os.path.abspath(program)}")
        return [sys.executable, program, *arguments]
    found = shutil.which(program)
    if found is None:
        raise ValueError(f"there is no program {program} that can be run (Python scripts must end in .py)")
    return [found, *arguments]


def launch(plan: Launch, out: Sink | None = None, err: Sink | None = None) -> int:
    """Runs all ranks to their end. Gives 0, or the exit code of the first rank that failed by itself (128 + signal when
    one killed it), or 128 + signal when this process was asked to end by one. Raises ResourceError, with the limit and
    what is needed, when the system does not let it start so many ranks; then none is left. Raises InvalidArgument,
    before any rank is started, for a TILEWIRE_* variable that none of them would take; Unavailable for a virtual
    cluster that cannot be had here."""
    make_room_for_files(plan.world_size)
    with _reserved_port() as port:
        secret = secrets.token_hex(32)
        shared = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            **plan.environment,
            "TILEWIRE_WORLD_SIZE": str(plan.world_size),
            "TILEWIRE_LAYOUT": ",".join(map(str, plan.layout)),
            "TILEWIRE_RENDEZVOUS": f"127.0.0.1:{port}",
            "TILEWIRE_SECRET": secret,
        }
        _check_options(shared)
        ranks = RankProcesses(plan.grace_s, out or sys.stdout, err or sys.stderr, plan.tracebacks, plan.name)
        with ranks.signals(), _gpu_for(plan, secret, ranks) as variables:
            shared |= variables
            if plan.virtual:
                shared.pop(PERCENTAGE, None)
            try:
                for rank in range(plan.world_size):
                    prefix = f"[{rank}] " if plan.prefix else ""
                    try:
                        ranks.start(plan.command, {**shared, "TILEWIRE_RANK": str(rank)}, prefix)
                    except OSError as error:
                        raise start_error(rank, plan.world_size, error) from error
                return ranks.run()
            finally:
                ranks.end()


def _gpu_for(plan: Launch, secret: str, ranks: RankProcesses) -> AbstractContextManager[Mapping[str, str]]:
    """What the ranks share where they share a GPU, as variables."""
    return virtual_cluster(plan.layout, secret, ranks.is_asked_to_end) if plan.virtual else nullcontext({})


def _check_options(environment: Mapping[str, str]) -> None:
    """Here, rather than by every rank with a traceback of its own."""
    from tilewire import _core

    variables = {name: value for name, value in environment.items() if name.startswith("TILEWIRE_")}
    # A rank that launches has variables of its own launcher, which nobody has given.
    layout, given = environment["TILEWIRE_LAYOUT"], os.environ.get("TILEWIRE_LAYOUT", "")
    if given not in ("", layout) and "TILEWIRE_RANK" not in os.environ:
        raise InvalidArgument(
            "the ranks of each node are given twice",
            values=f"TILEWIRE_LAYOUT = {given}, and {layout} of this launch",
            advice="unset TILEWIRE_LAYOUT, and say it by --nodes",
        )
    _core.check_options({**variables, "TILEWIRE_RANK": "0"})


@contextmanager
def _reserved_port() -> Iterator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
