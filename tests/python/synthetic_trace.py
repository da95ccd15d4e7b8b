"""A made-up call on 2 nodes x 2 ranks: each rank multiplies four row shards as they arrive."""

from __future__ import annotations

import random

from tilewire.trace_events import Event


def make_trace(tiles_a_shard: int = 6, workers: int = 2, seed: int = 1) -> list[Event]:
    world_size = 4
    generator = random.Random(seed)
    node = [rank // 2 for rank in range(world_size)]
    events: list[Event] = []
    arrival: dict[tuple[int, int, int], int] = {}

    def add(rank: int, role: str, worker: int, source: int, work: int, times: tuple[int, int, int], link: str) -> None:
        ready, begin, end = times
        size = 0 if link == "none" else 128 * 1024
        name = "tile" if role == "compute" else "chunk"
        events.append(Event(rank, role, worker, name, work, source, begin, begin - ready, end, size, link))

    for rank in range(world_size):
        push = send = generator.randrange(20_000)
        for chunk in range(tiles_a_shard):
            push, begin = push + generator.randrange(70_000, 90_000), push
            add(rank, "push", 0, rank, chunk, (begin, begin, push - 25_000), "node")
            partner = next(peer for peer in range(world_size) if peer != rank and node[peer] == node[rank])
            arrival[partner, rank, chunk] = push
            send, begin = send + generator.randrange(150_000, 190_000), send
            add(rank, "send", 0, rank, chunk, (begin, begin + 4_000, send), "network")
            remote = next(peer for peer in range(world_size) if node[peer] != node[rank] and peer % 2 == rank % 2)
            arrival[remote, rank, chunk] = send + 60_000
    for rank in range(world_size):
        forward = 0
        source = next(peer for peer in range(world_size) if node[peer] != node[rank] and peer % 2 == rank % 2)
        partner = next(peer for peer in range(world_size) if peer != rank and node[peer] == node[rank])
        for chunk in range(tiles_a_shard):
            ready, begin = forward, max(forward, arrival[rank, source, chunk])
            forward = begin + generator.randrange(60_000, 80_000)
            add(rank, "forward", 0, source, chunk, (ready, begin, forward), "node")
            arrival[partner, source, chunk] = forward
    for rank in range(world_size):
        free = [0] * workers
        order = sorted(range(world_size), key=lambda s: (s != rank, node[s] != node[rank], s % 2 != rank % 2))
        for source in order:
            for chunk in range(tiles_a_shard):
                worker = free.index(min(free))
                ready = free[worker]
                begin = max(ready, 0 if source == rank else arrival[rank, source, chunk])
                free[worker] = begin + generator.randrange(95_000, 125_000)
                add(rank, "compute", worker, source, chunk, (ready, begin, free[worker]), "none")
    return events
