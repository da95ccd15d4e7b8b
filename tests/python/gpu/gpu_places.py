"""Where the tests on a GPU run, and what ranks need there.

A *place* is how many ranks there are, all of one node ("2"), or the nodes and their ranks ("2x2"), as `tilewire run
--virtual` has them.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from tilewire import _core
from tilewire.gpu.driver import NoDriver, gpus
from tilewire.gpu.mps import shares

MOST_RANKS = 3  # of one node

# Programs as `one_after_the_other` has them, and where they run. Those of a place run in one launch, each operation's.
SHARED_RUNS: dict[str, list[str]] = {
    "gpu_value_programs.values": ["1", "2", "3", "2x2"],
    "gpu_value_programs.odd_shapes": ["2", "3", "2x2"],
    "gpu_value_programs.same_bits_again": ["3", "2x2"],
    "streams": ["2", "2x2"],
    "graphs": ["2", "3", "2x2"],
    "refusals": ["2", "2x2"],
    "timeline": ["2", "2x2"],
    "disagreements": ["2", "2x2"],
    "cupy_arrays": ["2", "2x2"],
    "compiled": ["2"],
    "latency:5": ["2"],
    "gpu_case_programs.read_at_once": ["2", "2x2"],
    "gpu_case_programs.filled_memory": ["2"],
    "gpu_case_programs.graphs_in_turn": ["2", "2x2"],
    "gpu_case_programs.opposite_orders": ["2", "2x2"],
    "gpu_case_programs.deep_and_huge": ["2", "2x2"],
    "gpu_case_programs.lives": ["2"],
}

# Those that sum products over ranks take the operation, and have launches of their own.
SUM_OPS = ("matmul_reduce_scatter", "matmul_all_reduce")
SUM_PLACES = ("3", "2x2")
_SUM_PROGRAMS = ("values", "streams", "graphs", "bits", "refusals", "disagreements", "cupy_arrays", "layers")
SHARED_RUNS |= {f"gpu_sum_programs.{program}:{op}": [*SUM_PLACES] for op in SUM_OPS for program in _SUM_PROGRAMS}

# So have those of an operation with programs of its own.
DISPATCH_PLACES, ATTENTION_PLACES = ("3", "2x2"), ("2", "2x2")
_OWN_PROGRAMS = {
    "gpu_dispatch_programs": (DISPATCH_PLACES, ("values", "graphs", "remarks", "refusals", "cupy_arrays")),
    "gpu_attention_programs": (
        ATTENTION_PLACES,
        ("values", "streams", "graphs", "refusals", "disagreements", "cupy_arrays"),
    ),
}
for _module, (_places, _programs) in _OWN_PROGRAMS.items():
    SHARED_RUNS |= {f"{_module}.{program}": [*_places] for program in _programs}


def launch_of(program: str) -> str:
    """What programs of one launch have in common: "", their operation, or the module that they have to themselves."""
    module = program.partition(".")[0]
    return module if module in _OWN_PROGRAMS else next((op for op in SUM_OPS if program.endswith(f":{op}")), "")


def places_of(program: str) -> list[str]:
    return SHARED_RUNS[program]


def why_not() -> str:
    if not _core.has_gpu_ranks():
        return "this build of tilewire has no CUDA part"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    try:
        return "" if gpus() else "CUDA sees no GPU"
    except NoDriver as error:
        return f"no GPU: {error}"


def rank_environment(ranks: int, mps: dict[str, str]) -> dict[str, str]:
    """The variables of ranks of one node that share GPU 0."""
    return {
        **program_environment(),
        "TILEWIRE_DEVICE": "cuda",
        "TILEWIRE_CUDA_DEVICE": "0",
        "TILEWIRE_SMS": str(shares(gpus()[0].sms, ranks)),
        **mps,
    }


def program_environment() -> dict[str, str]:
    """What ranks need to find the programs; little memory at first, so that arenas grow."""
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
    return {"TILEWIRE_ARENA_INITIAL_BYTES": "2MiB", "PYTHONPATH": os.pathsep.join(filter(None, folders))}
