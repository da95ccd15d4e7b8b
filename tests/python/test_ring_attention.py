"""`ring_attention` from Python: its arguments, its plans, how sequences are cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewire as tw
from rank_run import run_ranks
from tilewire import _core
from tilewire.attention_cases import AttentionCase
from tilewire.attention_checker import check_attention


def test_options_of_a_call(tmp_path: Path) -> None:
    for checks in run_ranks("attention_programs:options", tmp_path, "2,1").all_results():
        assert len(checks) > 25 and [name for name, ok in checks.items() if not ok] == []


@pytest.mark.parametrize(
    "options",
    [
        {"TILEWIRE_TEST_DELAY_US": "2000"},
        {"TILEWIRE_FIRST_EPOCH": str(2**32 - 3), "TILEWIRE_EMULATED_PERSONALITY": "srd"},
    ],
)
def test_bits_do_not_depend_on_timing_or_epoch(options: dict[str, str], tmp_path: Path) -> None:
    results = run_ranks("attention_programs:same_bits_again", tmp_path, "2,1", environment=options).all_results()
    assert results == [{"wrong": 0, "is_right": True}] * 3


@pytest.mark.parametrize("judge", ["plain", "torch"])
def test_another_judge_says_the_same(judge: str, tmp_path: Path) -> None:
    if judge == "torch":
        pytest.importorskip("torch", reason="torch is not installed, whose attention would be the judge")
    for found in run_ranks("attention_programs:second_judge", tmp_path, "2,1", (judge,)).all_results():
        assert found["worst"] < 1e-5 and found["of_zeros"] > 0.1, found


@pytest.mark.parametrize(("what", "advice"), [("causal", "causal="), ("documents", "cu_seqlens=")])
def test_ranks_that_disagree_hear_what_to_pass(what: str, advice: str, tmp_path: Path) -> None:
    for found in run_ranks("attention_programs:disagreement", tmp_path, "1,1", (what,)).all_results():
        assert found["error"] == "Mismatch" and f"pass the same {advice}" in found["text"], found


def test_a_sequence_is_cut_and_put_together_again() -> None:
    for positions in ("contiguous", "zigzag"):
        for total in (0, 1, 7, 64, 2999):
            x = np.arange(2 * total * 3).reshape(2, total, 3)
            for ranks in (1, 2, 3, 4, 8):
                shards = [tw.shard(x, rank, ranks, positions=positions) for rank in range(ranks)]
                assert [s.shape[1] for s in shards] == tw.shard_rows(total, ranks, positions=positions)
                assert np.array_equal(tw.unshard(shards, positions=positions), x)
                if positions == "zigzag":
                    assert tw.shard_rows(total, ranks, positions="zigzag") == _core.zigzag_rows(total, ranks)
    # By ceiling: 8 blocks of 375 rows, the last one of 374.
    x = np.arange(2999)
    last = tw.shard(x, 0, 4, positions="zigzag", dim=0)
    assert np.array_equal(last, [*range(375), *range(2625, 2999)])
    assert np.shares_memory(tw.shard(x, 1, 4, dim=-1), x)
    with pytest.raises(tw.InvalidArgument, match=r"must be \[1, 2, 2, 2\]"):
        tw.unshard([x[:2], x[:2], x[:2], x[:1]], positions="zigzag", dim=0)
    for wrong in ({"positions": "striped"}, {"rank": 4}, {"world_size": 0}, {"dim": 1}):
        with pytest.raises(tw.InvalidArgument):
            tw.shard(x, **{"rank": 0, "world_size": 4, "dim": 0, **wrong})


def test_plans_say_what_they_are_for() -> None:
    plan = tw.plan_ring_attention(4096, (32, 8), 128, causal=True, positions="zigzag", nodes=[2, 2], timeline=True)
    numbers = plan.as_dict()
    assert numbers["op"] == "ring_attention" and numbers["is_step_major"] is False
    assert {event.role for event in plan.timeline} >= {"load", "push", "send", "forward", "compute"}
    assert plan.predicted_s >= plan.compute_s
    by_source = tw.plan_ring_attention(4096, (32, 8), 128, nodes=[2, 2], plan={**numbers, "is_step_major": True})
    assert "source after source" in str(by_source)
    with pytest.raises(tw.InvalidArgument, match="must be 64 or 128"):
        tw.plan_ring_attention(4096, 8, 80, nodes=[2, 2])
    with pytest.raises(tw.InvalidArgument, match="positions"):
        tw.plan_ring_attention(4096, 8, 64, nodes=[2, 2], positions="given")


# ---- the checker


def small_result() -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(1)
    q, k, v = (generator.standard_normal((1, 20, 2, 64), np.float32).astype("bfloat16") for _ in range(3))
    seen = np.tril(np.ones((20, 20), bool), -1)  # the first row sees nothing
    o, lse = np.zeros((1, 20, 2, 64)), np.full((1, 2, 20), -np.inf)
    for head in range(2):
        for row in range(1, 20):
            scores = k[0, :row, head].astype(float) @ q[0, row, head].astype(float) / 8
            o[0, row, head] = np.exp(scores) @ v[0, :row, head].astype(float) / np.exp(scores).sum()
            lse[0, head, row] = np.log(np.exp(scores).sum())
    return o.astype("bfloat16"), lse.astype(np.float32), q, k, v, seen


def test_the_checker_takes_what_is_right_and_finds_what_is_not() -> None:
    o, lse, *inputs = small_result()
    good = check_attention(o, lse, *inputs)
    assert good.ok and good.compared == o.size, good

    def judged(change: object) -> bool:
        bad_o, bad_lse = o.copy(), lse.copy()
        change(bad_o, bad_lse)  # type: ignore[operator]
        return check_attention(bad_o, bad_lse, *inputs).ok

    assert not judged(lambda o, lse: o.fill(0)), "zeros"
    assert not judged(lambda o, lse: o.__setitem__((0, 7, 1, 3), o[0, 7, 1, 3] * 1.05)), "one element by 5 %"
    assert not judged(lambda o, lse: o.__setitem__((0, 7, 1, 3), np.nan)), "a NaN"
    assert not judged(lambda o, lse: lse.__setitem__((0, 1, 4), lse[0, 1, 4] + 1e-3)), "one logarithm"
    assert not judged(lambda o, lse: lse.__setitem__((0, 1, 0), 0.0)), "a row without keys that has one"
    assert not judged(lambda o, lse: o.__setitem__((0, 0, 0, 0), 1e-3)), "a row without keys that is not zero"


def test_a_case_knows_the_keys_of_ranks_apart() -> None:
    from fake_cluster import FakeCluster
    from tilewire.demo_cases import run_case

    case = AttentionCase("even", [20, 20], (2, 1))
    assert all(result.ok for result in FakeCluster(2).run(lambda machine: run_case(case, machine)))
    for tamper in (lambda rank, shards: shards[::-1], lambda rank, shards: [shards[0], shards[0]]):
        assert not all(result.ok for result in FakeCluster(2, tamper).run(lambda machine: run_case(case, machine)))
