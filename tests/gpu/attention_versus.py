#!/usr/bin/env python3
"""Our attention kernel on one rank and cuDNN through torch, in turns: ratio = cuDNN's time / ours.

    attention_versus.py PROGRAM [NUMBER...]

PROGRAM is attention_gpu_bench; the numbers are those of its shapes, all of them where none is given. Needs torch.
"""

import random
import statistics
import subprocess
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

# As kShapes of attention_gpu_bench.cu: batch, rows, heads of q, heads of k and v, head size, causal.
SHAPES = [
    (1, 8192, 32, 32, 128, False),
    (1, 8192, 32, 32, 128, True),
    (1, 16384, 32, 32, 128, False),
    (1, 16384, 32, 32, 128, True),
    (4, 4096, 16, 16, 128, False),
    (4, 4096, 16, 16, 128, True),
    (1, 8192, 32, 8, 128, True),
    (8, 2048, 16, 16, 128, True),
    (1, 8192, 32, 32, 64, False),
    (1, 8192, 32, 32, 64, True),
]
ROUNDS, BLOCK_US = 7, 20_000


class Ours:
    """The program, which is asked a line at a time."""

    def __init__(self, program):
        self.process = subprocess.Popen([program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def us(self, shape, count):
        """Microseconds a launch, and the floating point operations of one."""
        self.process.stdin.write(f"{shape} {count}\n")
        self.process.stdin.flush()
        us, flops = self.process.stdout.readline().split()
        return float(us), float(flops)


def cudnn(batch, rows, q_heads, kv_heads, head_dim, causal):
    """A function of a number of launches that gives microseconds a launch."""

    def heads(count):
        made = torch.randn(batch, rows, count, head_dim, device="cuda", dtype=torch.bfloat16)
        return made.transpose(1, 2)

    q, k, v = heads(q_heads), heads(kv_heads), heads(kv_heads)

    def us(count):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            for _ in range(count):
                torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=causal, enable_gqa=q_heads != kv_heads
                )
        end.record()
        end.synchronize()
        return 1000 * begin.elapsed_time(end) / count

    return us


def measure(ours, number):
    """Prints a row; the ratio."""
    batch, rows, q_heads, kv_heads, head_dim, causal = SHAPES[number]
    theirs_us = cudnn(*SHAPES[number])
    theirs_us(3)
    flops = ours.us(number, 3)[1]
    ours_count, theirs_count = (max(3, round(BLOCK_US / us)) for us in (ours.us(number, 5)[0], theirs_us(5)))
    found = []
    for _ in range(ROUNDS):
        turns = {"ours": lambda: ours.us(number, ours_count)[0], "theirs": lambda: theirs_us(theirs_count)}
        found.append({name: turns[name]() for name in random.sample(sorted(turns), 2)})
    ours_us, cudnn_us = (statistics.median(row[name] for row in found) for name in ("ours", "theirs"))
    ratio = statistics.median(row["theirs"] / row["ours"] for row in found)
    print(
        f"B{batch} H{q_heads}/{kv_heads} S{rows} D{head_dim} {'causal' if causal else 'full':6} ours {ours_us:8.1f} us"
        f" {flops / ours_us / 1e6:5.0f} TFLOP/s, cuDNN {cudnn_us:8.1f} us {flops / cudnn_us / 1e6:5.0f} TFLOP/s,"
        f" ratio {ratio:.3f}",
        flush=True,
    )
    return ratio


def main():
    ours = Ours(sys.argv[1])
    numbers = [int(word) for word in sys.argv[2:]] or range(len(SHAPES))
    print("torch", torch.__version__, torch.cuda.get_device_name())
    ratios = [measure(ours, number) for number in numbers]
    print("geometric mean", round(statistics.geometric_mean(ratios), 4))
    ours.process.stdin.close()


if __name__ == "__main__":
    main()
