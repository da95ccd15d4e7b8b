"""What plan functions take and refuse; what their docs promise of a plan's keys."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewire as tw
from tilewire.argument_checks import INT32_MOST, INT64_MOST
from tilewire.plans import Machine

SHAPE: dict[str, Any] = {"m": 64, "k": 32, "n": 48}


@pytest.mark.parametrize(
    ("changed", "pieces"),
    [
        ({"m": 3.5}, ["m = 3.5", "must be an integer"]),
        ({"m": True}, ["m = True", "must be an integer"]),
        ({"m": "64"}, ["m = '64'", "must be an integer"]),
        ({"m": 2**70}, [f"m = {2**70}", f"at most {INT64_MOST}"]),
        ({"m": [1, 2, 3], "nodes": [2]}, ["m has 3 counts, must have 2, one for each rank"]),
        ({"k": 2**70}, [f"k = {2**70}"]),
        ({"k": -1}, ["k = -1"]),
        ({"n": True}, ["n = True"]),
        ({"n": [8, "8"]}, ["n[1] = '8'", "must be an integer"]),
        ({"nodes": 2}, ["nodes = 2", "must be a list"]),
        ({"nodes": [2**31]}, [f"nodes[0] = {2**31}", f"at most {INT32_MOST}"]),
        ({"nodes": [2**20, 1]}, [f"{2**20 + 1} ranks", f"at most {2**20}"]),
        ({"nodes": []}, ["0 ranks"]),
        ({"rank": 2**31}, [f"rank = {2**31}", f"at most {INT32_MOST}"]),
        ({"rank": 1.0}, ["rank = 1.0", "must be an integer"]),
        ({"workers": "all"}, ["workers = 'all'", "must be an integer"]),
        ({"worker_tflops": "fast"}, ["worker_tflops = 'fast'", "must be a number"]),
        ({"network_gbit_per_s": True}, ["network_gbit_per_s = True", "must be a number"]),
        ({"network_latency_us": -1}, ["network_latency_us = -1"]),
        ({"worker_tflops": 0}, ["worker_tflops = 0", "from 1e-09"]),
        ({"machine": "abacus"}, ["machine = 'abacus'", "cpu, h200"]),
        ({"timeline": "yes"}, ["timeline = 'yes'", "True or False"]),
        ({"return_gathered": 1}, ["return_gathered = 1", "True or False"]),
        ({"dtype": {"a": 1}}, ["dtype = ", "bf16, fp16 or fp32"]),
        ({"plan": 5}, ["plan is a int", "a dict"]),
        ({"node_gb": 3}, ["node_gb", "node_gb_per_s"]),
    ],
)
def test_what_cannot_be_is_refused_with_its_name_its_value_and_the_limit(
    changed: dict[str, Any], pieces: list[str]
) -> None:
    with pytest.raises(tw.InvalidArgument) as refused:
        tw.plan_all_gather_matmul(**{**SHAPE, **changed})
    assert all(piece in str(refused.value) for piece in pieces), refused.value


def test_numbers_of_numpy_are_numbers() -> None:
    plain = tw.plan_all_gather_matmul([40, 24], 32, [48, 8], nodes=[1, 1], rank=1, workers=2, worker_tflops=0.5)
    assert plain == tw.plan_all_gather_matmul(
        np.array([40, 24]),
        np.int32(32),
        np.array([48, 8], np.uint8),
        nodes=np.array([1, 1]),
        rank=np.int64(1),
        workers=np.int16(2),
        worker_tflops=np.float32(0.5),
        timeline=np.False_,
        return_gathered=np.False_,
    )
    assert tw.plan_all_gather_matmul(np.int64(64), 32, np.int64(48)) == tw.plan_all_gather_matmul(64, 32, 48)


def test_every_key_of_a_plan_is_described_with_its_range() -> None:
    plan = tw.plan_all_gather_matmul(**SHAPE)
    text = tw.plan_all_gather_matmul.__doc__ or ""
    described = dict(re.findall(r"^        (\w+) {2,}(.*)$", text, re.MULTILINE))
    assert list(described) == list(plan.as_dict()) and plan.as_dict()["op"] == "all_gather_matmul"
    for key, meaning in described.items():
        bounds = re.match(r"([\d*]+) to ([\d*]+): ", meaning)
        if bounds is None:
            assert key in ("op", "is_fused")
            continue
        for outside in (eval(bounds[1]) - 1, eval(bounds[2]) + 1):
            with pytest.raises(tw.InvalidArgument, match=f"{key} = {outside}"):
                tw.plan_all_gather_matmul(**SHAPE, plan={**plan.as_dict(), key: outside})


def test_every_number_of_a_machine_is_named_where_plans_are_made() -> None:
    text = tw.plan_all_gather_matmul.__doc__ or ""
    assert all(re.search(rf"\b{name}\b", text) for name in Machine.__annotations__)
