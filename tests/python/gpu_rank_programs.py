"""What ranks run on GPUs that are none (the fake driver): everything of a communicator and a call but its kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fake_torch
import tilewire as tw
from fake_torch import Foreign, Stream, bfloat16, float32, placed, tensor
from rank_programs import meet, outcome

torch = fake_torch.install()
A, B = (8, 16), (16, 24)


def me() -> int:
    return int(os.environ["TILEWIRE_RANK"])


def own(shape: tuple[int, ...], dtype: Any = bfloat16) -> Any:
    """On this rank's GPU."""
    return tensor(shape, dtype, gpu=me())


def places(folder: str) -> dict[str, Any]:
    """By how a GPU was chosen: where this rank is then."""
    found: dict[str, Any] = {}

    def join(name: str, **options: Any) -> None:
        with tw.init(**options) as comm:
            found[name] = [comm.device, comm.option("device"), comm.option("cuda_device"), comm.transport]
            comm.barrier()

    torch.cuda.is_ready = False
    join("in turn", device="cuda")
    join("cpu")
    torch.cuda.is_ready, torch.cuda.gpu = True, 1 - me()
    join("chosen in torch", device="cuda")
    join("cuda_device", device="cuda", cuda_device=me())
    join("number behind the device", device=f"cuda:{me()}")
    os.environ["TILEWIRE_DEVICE"] = "cuda"
    join("variable")
    join("argument over variable", device="cpu")
    os.environ["TILEWIRE_CUDA_DEVICE"] = str(me())
    join("variable of the number")
    del os.environ["TILEWIRE_DEVICE"], os.environ["TILEWIRE_CUDA_DEVICE"]
    refused: dict[str, dict[str, Any]] = {
        "bad device": {"device": "gpu"},
        "two numbers": {"device": "cuda:1", "cuda_device": 0},
        "no such GPU": {"device": "cuda:7"},
    }
    for name, options in refused.items():
        found[name] = outcome(lambda options=options: tw.init(**options))
        meet(folder, name)
    return found


def calls() -> dict[str, Any]:
    """Calls that every rank refuses, by name of what is wrong; then one that passes all checks and has no kernel."""
    found: dict[str, Any] = {}
    with tw.init(device=f"cuda:{me()}", arena_initial_bytes="2MiB") as comm:

        def refuse(name: str, *arguments: Any, **options: Any) -> None:
            found[name] = outcome(lambda: tw.all_gather_matmul(*arguments, **options))

        refuse("numpy", np.zeros(A, np.float16), own(B))
        refuse("host tensor", tensor(A, gpu=-1), own(B))
        refuse("other GPU", tensor(A, gpu=1 - me()), own(B))
        refuse("weight on another GPU", own(A), tensor(B, gpu=1 - me()))
        refuse("DLPack on another GPU", Foreign(placed(A, np.float16), gpu=1 - me(), code_bits=(2, 16)), own(B))
        refuse("stream of another GPU", own(A), own(B), stream=Stream(5, 1 - me()))
        refuse("fp32", own(A, float32), own(B, float32))
        found["sums of fp32"] = outcome(lambda: tw.matmul_all_reduce(own(A, float32), own(B, float32)))
        refuse("rows is too short", own(A), own(B), rows=[8])
        refuse("rows exchanged", own(A), tensor(B, gpu=1 - me()), rows="exchange")
        refuse("plan of CPU ranks", own(A), own(B), plan=tw.plan_all_gather_matmul(16, 16, 24, nodes=[2]))
        refuse("out has the wrong shape", own(A), own(B), out=own((15, 24)))
        overlapping = own((24, 16))
        refuse("out overlaps a", overlapping[:8], own((16, 16)), out=overlapping[:16])
        found["handle"] = outcome(lambda: tw.AllGatherMatmul([8, 8], 16, 24, dtype="fp32")(own(A), own(B)))
        placed_in_arena = comm.empty((3, 16), bfloat16)
        placed_in_arena.array[...] = 5
        found["arena"] = [str(placed_in_arena.device), list(placed_in_arena.shape), str(placed_in_arena.dtype)]
        found["arena, freed"] = type(comm.empty((1 << 20,))).__name__
        found["arena, no room"] = outcome(lambda: comm.empty(1 << 45))
        comm.synchronize()
        comm.barrier()
        heads = own((1, 8, 2, 64))
        found["queries of the host"] = outcome(lambda: tw.ring_attention(tensor((1, 8, 2, 64), gpu=-1), heads, heads))
        found["out of another shape"] = outcome(lambda: tw.ring_attention(heads, heads, heads, out=own((1, 7, 2, 64))))
        found["x has four dimensions"] = outcome(lambda: tw.moe_dispatch_matmul(heads, heads, heads))
        found["no kernel"] = outcome(lambda: tw.all_gather_matmul(own(A), own(B)))
        found["later"] = outcome(lambda: tw.all_gather_matmul(own(A), own(B)))
    found["arena outlives it"] = bool((placed_in_arena.array == 5).all())
    return found


def one_refuses() -> dict[str, Any]:
    """By what the last rank alone refuses: what each rank got."""
    found: dict[str, Any] = {}

    def differ(name: str, call: Callable[[bool], Any]) -> None:
        with tw.init(device=f"cuda:{me()}", arena_initial_bytes="2MiB") as comm:
            found[name] = outcome(lambda: call(comm.rank == comm.world_size - 1))
            found[name]["later"] = outcome(comm.check)["error"]

    differ("host tensor", lambda last: tw.all_gather_matmul(tensor(A, gpu=-1) if last else own(A), own(B)))
    differ("fp32", lambda last: tw.all_gather_matmul(*(own(s, float32 if last else bfloat16) for s in (A, B))))
    differ("stream", lambda last: tw.all_gather_matmul(own(A), own(B), stream="x" if last else None))

    def captured(last: bool) -> None:
        """What a rank refuses while it captures is no call: the other ranks make one more than it, and wait in vain."""
        torch.cuda.is_captured = last
        if not last:
            time.sleep(0.5)  # a refusal would be here before the call
        tw.all_gather_matmul(own((8,)) if last else own(A), own(B))

    with tw.init(device=f"cuda:{me()}", deadline_s=2) as comm:
        found["in a capture"] = outcome(lambda: captured(comm.rank == 1))
        torch.cuda.is_captured = False
        if comm.rank == 1:
            found["in a capture"]["later"] = outcome(comm.check)["error"]
            outcome(lambda: tw.all_gather_matmul(own(A), own(B)))
    return found
