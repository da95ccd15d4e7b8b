"""A small real sentence encoder (BERT, masked mean, unit length) whose rows and columns are sharded over ranks.

How R ranks share the work:

* *Rows*: all sentences are packed, one token a row, no padding. Each rank holds whole sentences, next to one another,
  about equally many tokens: uneven row counts, known to all. Embedding, residual stream, layer norms and pooling work
  on the rank's own rows.
* *Columns*: query, key and value are cut by heads, the up-projection by columns, unevenly where R does not divide
  them (a rank may get none). Each is one `all_gather_matmul`: the rank's columns for the rows of all ranks, so it runs
  attention for its own heads over every sentence, which no other rank needs to see.
* Output and down projection are row-parallel: each is one `matmul_reduce_scatter` of the rank's input columns, over
  fp32, which gives the rank its own rows of the sum, with the residual stream added.

What enters a projection is rounded to bf16 (or `dtype`), products are accumulated in fp32, what leaves a
column-parallel projection is bf16; everything else is fp32. The roundings are the same ones at every world size; only
the order of fp32 sums differs, which now and then tips a value over to the neighbouring bf16. See
`similarity_tolerance`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import ml_dtypes
import numpy as np

from tilewire.encoder_weights import EncoderConfig, EncoderModel
from tilewire.linear import Array, Linear

OPS_USED = ("all_gather_matmul", "matmul_reduce_scatter")

# Per layer: input of query/key/value, their outputs, the context, input of the up-projection, its output, its gelu.
ROUNDINGS_PER_LAYER = 6
BF16_UNIT_ROUNDOFF = 2.0**-8


@dataclass(frozen=True)
class Shards:
    """Who holds what: one entry a rank, the same on all ranks."""

    sentences: list[int]
    rows: list[int]
    heads: list[int]
    intermediate: list[int]


def split_evenly(total: int, parts: int) -> list[int]:
    """Counts that differ by one at most, the larger ones first."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def split_sentences(lengths: Sequence[int], parts: int) -> list[int]:
    """Sentences a rank, in order, so that the token counts come out about equal (some ranks may get none)."""
    total = sum(lengths)
    counts = [0] * parts
    seen = 0
    for length in lengths:
        # A sentence goes where its middle token lies when the tokens are dealt out equally.
        counts[min(parts - 1, (2 * seen + length) * parts // max(1, 2 * total))] += 1
        seen += length
    return counts


def make_shards(config: EncoderConfig, lengths: Sequence[int], world_size: int) -> Shards:
    sentences = split_sentences(lengths, world_size)
    ends = list(accumulate(sentences))
    rows = [sum(lengths[end - count : end]) for count, end in zip(sentences, ends, strict=True)]
    return Shards(
        sentences, rows, split_evenly(config.heads, world_size), split_evenly(config.intermediate, world_size)
    )


def similarity_tolerance(config: EncoderConfig) -> float:
    """How far an embedding, and a similarity, of the sharded run may be from that of the unsharded run.

    Both runs round the same n = layers x ROUNDINGS_PER_LAYER intermediate vectors to bf16. The errors of one rounding
    are spread evenly over +-u of the elements' magnitudes, u = 2^-8, so it moves a vector by about u / sqrt(3) of its
    length at most. The layer norms keep the lengths; to first order, and with independent roundings, a run's embedding
    (length 1) then lies within sqrt(n) u / sqrt(3) of the unrounded one, and two runs within twice that of each other:
    2 sqrt(36) 2^-8 / sqrt(3) = 0.027 for 6 layers. A similarity moves by the parts of two such errors that point along
    the other sentence's vector, far less than their lengths. The two runs come this far apart only when every rounding
    of theirs differs; in truth only those differ that the order of an fp32 sum tips over.
    """
    return 2.0 * math.sqrt(config.layers * ROUNDINGS_PER_LAYER / 3.0) * BF16_UNIT_ROUNDOFF


def encode(model: EncoderModel, tokens: Sequence[Sequence[int]], linear: Linear, dtype: Any = None) -> Array:
    """Unit-length fp32 embeddings [sentences, hidden] of all sentences, on every rank. Collective.

    `dtype` is that of the projections: bf16 unless told.

    `tokens` are the ids of all sentences, the same on all ranks; ValueError when one has no or too many tokens.
    """
    for index, ids in enumerate(tokens):
        if not 1 <= len(ids) <= model.config.max_tokens:
            raise ValueError(f"sentence {index} has {len(ids)} tokens, must be 1 to {model.config.max_tokens}")
    lengths = [len(ids) for ids in tokens]
    shards = make_shards(model.config, lengths, linear.world_size)
    first = sum(shards.sentences[: linear.rank])
    own = tokens[first : first + shards.sentences[linear.rank]]
    x = embed(model, own)
    for layer in range(model.config.layers):
        x = ShardedLayer(_Run(model, shards, lengths, linear, np.dtype(dtype or ml_dtypes.bfloat16)), layer).forward(x)
    return linear.all_gather_rows(pool(x, [len(ids) for ids in own]), shards.sentences)


def embed(model: EncoderModel, tokens: Sequence[Sequence[int]]) -> Array:
    """Word + position + segment embeddings, normalised: fp32 [sum of lengths, hidden]."""
    ids = np.array([token for sentence in tokens for token in sentence], dtype=np.int64)
    positions = np.array([position for sentence in tokens for position in range(len(sentence))], dtype=np.int64)
    table = model.weights
    x = (
        table["embeddings.word_embeddings.weight"][ids]
        + table["embeddings.position_embeddings.weight"][positions]
        + table["embeddings.token_type_embeddings.weight"][0]
    )
    return layer_norm(model, "embeddings.LayerNorm", x)


def pool(x: Array, lengths: Sequence[int]) -> Array:
    """Mean over each sentence's rows, scaled to unit length: fp32 [sentences, hidden]."""
    pooled = np.zeros((len(lengths), x.shape[1]), dtype=np.float32)
    for index, (end, length) in enumerate(zip(accumulate(lengths), lengths, strict=True)):
        mean = x[end - length : end].mean(axis=0)
        pooled[index] = mean / max(float(np.linalg.norm(mean)), 1e-12)
    return pooled


@dataclass(frozen=True)
class _Run:
    model: EncoderModel
    shards: Shards
    lengths: Sequence[int]
    linear: Linear
    dtype: np.dtype[Any]


class ShardedLayer:
    """One transformer layer as one rank sees it."""

    def __init__(self, run: _Run, layer: int) -> None:
        model, shards, linear = run.model, run.shards, run.linear
        self._model = model
        self._prefix = f"encoder.layer.{layer}"
        self._shards = shards
        self._lengths = run.lengths
        self._linear = linear
        self._dtype = run.dtype
        width = model.config.head_width
        self._heads = shards.heads[linear.rank]
        self._head_columns = _own_range([heads * width for heads in shards.heads], linear.rank)
        self._up_columns = _own_range(shards.intermediate, linear.rank)

    def forward(self, x: Array) -> Array:
        """fp32 [own rows, hidden] -> the same."""
        x = self._row_parallel("attention.output.dense", self._attend(x), self._head_columns, x)
        x = layer_norm(self._model, f"{self._prefix}.attention.output.LayerNorm", x)
        (up,) = self._column_parallel(["intermediate.dense"], x, self._up_columns)
        x = self._row_parallel("output.dense", gelu(up.astype(np.float32)), self._up_columns, x)
        return layer_norm(self._model, f"{self._prefix}.output.LayerNorm", x)

    def _column_parallel(self, names: Sequence[str], x: Array, columns: slice) -> list[Array]:
        """This rank's output columns for the rows of all ranks: bf16 [sum(rows), columns] a name, one gather."""
        weights = [self._weight(name)[columns].astype(self._dtype).T for name in names]
        biases = [self._bias(name)[columns] for name in names]
        rows = self._shards.rows
        return self._linear.all_gather_matmul(x.astype(self._dtype), weights, rows, biases)

    def _row_parallel(self, name: str, x: Array, columns: slice, residual: Array) -> Array:
        """x [sum(rows), columns] times this rank's input columns of the weight, summed, and the residual [own rows, N]:
        fp32 like it."""
        weight = self._weight(name)[:, columns].astype(self._dtype)
        rows = self._shards.rows
        return self._linear.matmul_reduce_scatter(x.astype(self._dtype), weight.T, rows, self._bias(name), residual)

    def _attend(self, x: Array) -> Array:
        """Self-attention of this rank's heads over all sentences: fp32 [sum(rows), own heads * width]."""
        names = [f"attention.self.{name}" for name in ("query", "key", "value")]
        projected = self._column_parallel(names, x, self._head_columns)
        query, key, value = (part.astype(np.float32) for part in projected)
        context = np.empty_like(query)
        width = self._model.config.head_width
        for end, length in zip(accumulate(self._lengths), self._lengths, strict=True):
            rows = slice(end - length, end)
            shape = (length, self._heads, width)
            q, k, v = (part[rows].reshape(shape).transpose(1, 0, 2) for part in (query, key, value))
            weights = softmax(q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(width)))
            context[rows] = (weights @ v).transpose(1, 0, 2).reshape(length, self._heads * width)
        return context

    def _weight(self, name: str) -> Array:
        return self._model.weights[f"{self._prefix}.{name}.weight"]

    def _bias(self, name: str) -> Array:
        return self._model.weights[f"{self._prefix}.{name}.bias"]


def layer_norm(model: EncoderModel, name: str, x: Array) -> Array:
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    scaled = (x - mean) / np.sqrt(variance + np.float32(model.config.layer_norm_eps))
    result: Array = scaled * model.weights[f"{name}.weight"] + model.weights[f"{name}.bias"]
    return result


def softmax(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return result


def gelu(x: Array) -> Array:
    """x * Phi(x) through the error function (not its tanh approximation)."""
    return x * np.float32(0.5) * (np.float32(1.0) + erf(x * np.float32(math.sqrt(0.5))))


def erf(x: Array) -> Array:
    """The error function, off by at most 1.5e-7: Abramowitz and Stegun, 7.1.26."""
    t = 1.0 / (1.0 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    result: Array = (np.sign(x) * (1.0 - series * np.exp(-x * x))).astype(x.dtype)
    return result


def _own_range(counts: Sequence[int], rank: int) -> slice:
    begin = sum(counts[:rank])
    return slice(begin, begin + counts[rank])
