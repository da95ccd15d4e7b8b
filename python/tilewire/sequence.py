"""How a sequence is cut over ranks: which rows of it each rank brings, and the way back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewire.argument_checks import INT32_MOST, count
from tilewire.errors import InvalidArgument

POSITIONS = ("contiguous", "zigzag")


def shard(x: Any, rank: int, world_size: int, *, positions: str = "contiguous", dim: int = 1) -> Any:
    """The rows of `x` that a rank brings, as `ring_attention` takes them.

    x: the whole sequence along `dim`: a numpy array or a torch tensor. Gives a view of it where one rank's rows lie
        together, else a copy.
    positions: "contiguous": cut evenly, rank after rank; the first ranks get one row more where there is a rest.
        "zigzag": cut into 2 * world_size blocks by ceiling, of which the last ones may be short or empty; a rank gets
        block rank and block 2 * world_size - 1 - rank, so that all ranks have as much to do in causal attention.
    """
    blocks = _blocks_of_ranks(_length(x, dim), world_size, positions)
    number = count("rank", rank, most=INT32_MOST)
    if not 0 <= number < len(blocks):
        raise InvalidArgument("there is no such rank", values=f"rank = {number}", limit=f"0 to {len(blocks) - 1}")
    return _joined([_cut(x, dim, block) for block in blocks[number]], dim)


def unshard(shards: Sequence[Any], *, positions: str = "contiguous", dim: int = 1) -> Any:
    """The whole sequence of what all ranks bring, in the order of ranks: the way back from `shard`."""
    if len(shards) == 0:
        raise InvalidArgument("there are no shards", limit="one for each rank")
    lengths = [_length(one, dim) for one in shards]
    wanted = shard_rows(sum(lengths), len(shards), positions=positions)
    if lengths != wanted:
        raise InvalidArgument(
            "the shards do not fit together",
            values=f"rows = {lengths}, positions = {positions!r}",
            limit=f"must be {wanted}",
        )
    placed: list[tuple[int, Any]] = []  # where a block begins, and the block
    for one, blocks in zip(shards, _blocks_of_ranks(sum(lengths), len(shards), positions), strict=True):
        begin = 0
        for block in blocks:
            end = begin + block.stop - block.start
            placed.append((block.start, _cut(one, dim, slice(begin, end))))
            begin = end
    return _joined([block for _, block in sorted(placed, key=lambda pair: pair[0])], dim)


def shard_rows(total: int, world_size: int, *, positions: str = "contiguous") -> list[int]:
    """How many of `total` rows each rank has, for `rows=`."""
    blocks = _blocks_of_ranks(count("total", total), world_size, positions)
    return [sum(block.stop - block.start for block in of_rank) for of_rank in blocks]


def _blocks_of_ranks(total: int, world_size: int, positions: str) -> list[list[slice]]:
    """Of each rank, in the order of its rows."""
    ranks = count("world_size", world_size, most=INT32_MOST)
    if ranks < 1 or total < 0:
        raise InvalidArgument("there is no such cut", values=f"{total} rows over {ranks} ranks")
    if positions == "contiguous":
        least, rest = divmod(total, ranks)
        begins = [rank * least + min(rank, rest) for rank in range(ranks + 1)]
        return [[slice(begin, end)] for begin, end in zip(begins, begins[1:], strict=False)]
    if positions != "zigzag":
        raise InvalidArgument(
            "positions are unknown", values=f"positions = {positions!r}", limit=f"must be {' or '.join(POSITIONS)}"
        )
    length = -(-total // (2 * ranks))
    edges = [min(total, number * length) for number in range(2 * ranks + 1)]
    blocks = [slice(begin, end) for begin, end in zip(edges, edges[1:], strict=False)]
    return [[blocks[rank], blocks[2 * ranks - 1 - rank]] for rank in range(ranks)]


def _length(x: Any, dim: int) -> int:
    if not -len(x.shape) <= dim < len(x.shape):
        raise InvalidArgument("there is no such dimension", values=f"dim = {dim}, shape {list(x.shape)}")
    return int(x.shape[dim])


def _cut(x: Any, dim: int, rows: slice) -> Any:
    return x[(*[slice(None)] * (dim % len(x.shape)), rows)]


def _joined(blocks: list[Any], dim: int) -> Any:
    """One behind the other; a single one is not copied."""
    filled = [block for block in blocks if block.shape[dim] > 0] or blocks[:1]
    if len(filled) == 1:
        return filled[0]
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(filled[0], torch.Tensor):
        return torch.cat(filled, dim=dim)
    return np.concatenate(filled, axis=dim)
