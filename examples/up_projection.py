"""The up-projection of an MLP. Its input is sharded by rows over the ranks, its weight by columns.

Run it with: tilewire run -n 4 --nodes 2 examples/up_projection.py
"""

import ml_dtypes
import numpy as np

import tilewire as tw

ROWS, K, N = 128, 2048, 2048  # this rank's rows, the model's width, this rank's columns

with tw.init() as comm:  # rank, world size and meeting place come from the launcher
    random = np.random.default_rng(comm.rank)
    x = random.standard_normal((ROWS, K), np.float32).astype(ml_dtypes.bfloat16)
    w = (random.standard_normal((K, N), np.float32) / K**0.5).astype(ml_dtypes.bfloat16)

    y = tw.all_gather_matmul(x, w)  # [rows of all ranks, N]

    shards = comm.all_gather_bytes(x.tobytes())  # the slow way, to compare with
    rows = np.frombuffer(b"".join(shards), x.dtype).reshape(-1, K)
    expected = rows.astype(np.float32) @ w.astype(np.float32)
    error = np.abs(y.astype(np.float32) - expected)
    allowed = 2**-8 * np.abs(expected) + 1e-4  # y is rounded to bf16
    worst = np.unravel_index((error / allowed).argmax(), y.shape)
    found = f"worst error {error[worst]:.2g} where {expected[worst]:.2g} was expected ({allowed[worst]:.2g} is allowed)"
    if not (error <= allowed).all():
        raise SystemExit(f"rank {comm.rank}: y is not the plain product: {found}")
    print(f"all {y.size} elements of y compared with the plain product in fp32: {found}")
    moved = comm.last_call.bytes_by_link
    print(f"rank {comm.rank} of {comm.world_size}: y is {y.shape}, {moved['network']} bytes sent to other nodes")
