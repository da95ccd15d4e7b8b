"""Ranks find each other under every launcher: by its variables, by its store, by arguments."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tilewire import stores
from tilewire.errors import InvalidArgument

HERE = Path(__file__).resolve().parent
PROGRAM = """
import json, sys
import numpy as np
import tilewire as tw
from file_store import FileStore

folder, how = sys.argv[1:3]
arguments = eval(how)
with tw.init(**arguments) as comm:
    a = np.full((4, 8), comm.rank + 1, np.float32)
    y = tw.all_gather_matmul(a, np.ones((8, 2), np.float32))
    first = [float(row[0]) for row in y[::4]]
    with tw.init(**arguments) as again:  # a second one of the same job
        again.barrier()
    print(json.dumps([comm.rank, comm.world_size, comm.layout, first]))
"""


def alone(environment: Mapping[str, str], path: str = "") -> dict[str, str]:
    """The environment of a rank that no launcher has started, but for what is given."""
    foreign = ("TILEWIRE_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC", "LOCAL_")
    base = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    base["PYTHONPATH"] = os.pathsep.join(filter(None, [path, str(HERE), base.get("PYTHONPATH", "")]))
    return {**base, "TILEWIRE_CONNECT_DEADLINE_S": "40", **environment}


def start_all(environments: list[Mapping[str, str]], how: str, folder: Path, path: str = "") -> list[list[object]]:
    """Runs a rank for each environment, without any launcher, and gives what each printed."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), how],
            env=alone(environment, path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in environments
    ]
    results = []
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        results.append(json.loads(output.splitlines()[-1]))
    return results


def expected(layout: str, world_size: int = 2) -> list[list[object]]:
    return [[rank, world_size, layout, [8.0 * (r + 1) for r in range(world_size)]] for rank in range(world_size)]


def test_mpirun(tmp_path: Path) -> None:
    job = f"test-{secrets.token_hex(6)}"
    environments = [
        {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "PMIX_NAMESPACE": job,
        }
        for rank in range(2)
    ]
    assert start_all(environments, "{}", tmp_path) == expected("2")


@pytest.mark.parametrize(
    ("environment", "pieces"),
    [
        # Open MPI where ranks are on several hosts, or are not known to be on one.
        (
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
            ["no place to meet", "openmpi", "TILEWIRE_RENDEZVOUS", "MASTER_ADDR and MASTER_PORT"],
        ),
        ({"TILEWIRE_RANK": "0", "TILEWIRE_WORLD_SIZE": "2"}, ["no place to meet", "TILEWIRE_RENDEZVOUS <"]),
        # A place to meet, and nobody to meet there.
        ({"TILEWIRE_RENDEZVOUS": "127.0.0.1:29500"}, ["how many ranks", "127.0.0.1:29500", "TILEWIRE_WORLD_SIZE"]),
        ({"WORLD_SIZE": "4"}, ["WORLD_SIZE = 4, RANK is not set"]),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ["neither MASTER_ADDR nor MASTER_PORT", "set MASTER_ADDR and MASTER_PORT"]),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, ["MASTER_PORT is not", "set MASTER_PORT, or"]),
    ],
)
def test_half_a_job_is_no_job_of_one(environment: dict[str, str], pieces: list[str]) -> None:
    last = refusal("tw.init()", environment)
    assert last.startswith("tilewire.errors.InvalidArgument: ") and all(piece in last for piece in pieces), last


def refusal(call: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-c", f"import tilewire as tw; {call}"]
    done = subprocess.run(command, env=alone(environment), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def test_a_rank_of_nobody_knows_how_many_is_no_job_of_one() -> None:
    last = refusal("tw.init(rank=0)", {})
    assert "a rank, but nothing says of how many" in last and "rank = 0" in last and "pass world_size" in last, last


def test_who_is_told_all_asks_no_launcher(tmp_path: Path) -> None:
    assert start_all([{"RANK": "3"}], "{'rank': 0, 'world_size': 1}", tmp_path) == expected("1", 1)


def test_mpirun_of_several_hosts_meets_where_the_master_is(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(holder.getsockname()[1])}
        ranks = [{"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"} for rank in range(2)]
        assert start_all([{**rank, **place} for rank in ranks], "{}", tmp_path) == expected("2")


def test_srun(tmp_path: Path) -> None:
    environments = [
        {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank),
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NODELIST": "127.0.0.1",
            "SLURM_STEP_TASKS_PER_NODE": "2",
            "SLURM_NODEID": "0",
            "SLURM_JOB_ID": str(secrets.randbelow(1 << 30)),
            "SLURM_STEP_ID": "0",
        }
        for rank in range(2)
    ]
    job = environments[0]["SLURM_JOB_ID"]
    assert start_all([{**e, "SLURM_JOB_ID": job} for e in environments], "{}", tmp_path) == expected("2")


def test_store_of_the_user(tmp_path: Path) -> None:
    """The address and the secret travel in it; layout splits the host into nodes."""
    how = "dict(rank=int(__import__('os').environ['ME']), world_size=2, store=FileStore(folder), layout=[1, 1])"
    assert start_all([{"ME": "0"}, {"ME": "1"}], how, tmp_path) == expected("1+1")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 2, names  # one key a communicator


def torchrun(rank: int) -> dict[str, str]:
    """The variables that torchrun sets. Its agent listens on MASTER_PORT, so nobody else can."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def test_torchrun_with_its_own_store(tmp_path: Path) -> None:
    """Over a stand-in for torch.distributed that has what is used of it: rendezvous("env://") gives a store."""
    package = tmp_path / "path" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("class Tensor: pass\n")
    (package / "distributed.py").write_text(
        "import os\nfrom file_store import FileStore\n"
        "def rendezvous(url, **options):\n"
        "    assert url == 'env://'\n"
        "    yield FileStore(os.environ['STORE']), int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
    )
    (tmp_path / "store").mkdir()
    environments = [{**torchrun(rank), "STORE": str(tmp_path / "store")} for rank in range(2)]
    assert start_all(environments, "{}", tmp_path, str(tmp_path / "path")) == expected("2")


def test_plain_arguments_and_no_launcher_at_all(tmp_path: Path) -> None:
    assert start_all([{}], "{}", tmp_path) == expected("1", 1)


def test_store_must_be_one() -> None:
    with pytest.raises(InvalidArgument, match="dict has no set"):
        stores.find_store({}, {}, {})
    with pytest.raises(InvalidArgument, match="two places"):
        stores.find_store(object(), {"rendezvous": "a:1"}, {})


def test_other_launchers_variables_stand_above_torchruns() -> None:
    for settings, extra in (({"rendezvous": "a:1"}, {}), ({}, {"TILEWIRE_RANK": "0"}), ({}, {"WORLD_SIZE": "1"})):
        assert stores.find_store(None, dict(settings), {**torchrun(0), **extra}) is None


def test_extension_shows_no_symbol_of_the_library() -> None:
    """Two libraries of one process that both hold it must not take each other's functions."""
    from tilewire import _core

    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(_core.__file__)], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in listing.stdout.splitlines()}
    assert "PyInit__core" in names
    assert not [name for name in names if "tilewire" in name]


def test_extension_may_go_before_it_was_executed() -> None:
    """As when Ctrl-C is pressed while its library is loaded: Python has made the module then, and drops it."""
    program = """
import gc, importlib.machinery, importlib.util, sys
import tilewire
spec = importlib.util.find_spec("tilewire._core")
for _ in range(2):
    importlib.util.module_from_spec(spec)
    gc.collect()
from tilewire import _core
importlib.util.module_from_spec(spec)
gc.collect()
print(tilewire.init().world_size)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
