"""Compares the results of `ring_attention` with attention on one rank in double, element by element.

**Tolerance.** Scores are sums of D products in fp32, weights are exponentials of them, and all else is added in fp32;
so a weight is as exact as its score, and each element of o is allowed

    u |o| + c (4 + max |score|) max |v| + eta / 2,

c = 4e-6, u and eta those of the result's dtype (`tilewire.checker`); lse is allowed c (4 + max |score|). A row that
sees no key has to be 0 and -inf.

Kernels round weights to the dtype of the values, which have the result's: then o is allowed 1.05 u sum(w |v|) / sum(w)
more, and lse is never held to less than 2e-5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewire.checker import Report, compare

_WEIGHT_ERROR = 4e-6
_UNIT_ROUNDOFF = {"bfloat16": (2.0**-8, 2.0**-133), "float16": (2.0**-11, 2.0**-24), "float32": (2.0**-23, 2.0**-149)}


def check_attention(
    o: Any, lse: Any, q: Any, k: Any, v: Any, sees: Any, scale: float | None = None, rounds_weights: bool = False
) -> Report:
    """`o` [B, S, Hq, D] and `lse` [B, Hq, S] against the reference of q [B, S, Hq, D] over the k and v
    [B, S_kv, Hkv, D] of all ranks. sees: [S, S_kv], whether a row sees a key."""
    if o.shape != q.shape or lse.shape != (q.shape[0], q.shape[2], q.shape[1]):
        return Report(f"shapes {list(o.shape)} and {list(lse.shape)} for q {list(q.shape)}", 0)
    if lse.dtype != np.float32:
        return Report(f"lse is {lse.dtype}, expected float32", 0)
    scale = scale or q.shape[-1] ** -0.5
    expected, sums, scores = _reference(q, k, v, sees, scale)
    unit, least = _UNIT_ROUNDOFF[o.dtype.name]
    weight_error = _WEIGHT_ERROR * (4 + scores)  # [B, Hq, S]
    most_value = np.abs(v.astype(np.float64)).max(initial=0.0)
    by_row = weight_error.transpose(0, 2, 1)[..., None] * most_value
    allowed = unit * np.abs(expected) + by_row + least / 2
    if rounds_weights:
        allowed += 1.05 * unit * _reference(q, k, np.abs(v), sees, scale)[0]
        weight_error = np.maximum(weight_error, 2e-5)
    flat = (-1, max(q.shape[-1], 1))
    of_o = compare(
        o.reshape(flat),
        expected.reshape(flat),
        allowed.reshape(flat),
        allow_empty=o.size == 0,
    )
    if not of_o.ok:
        return of_o
    if not np.array_equal(np.isneginf(lse), np.isneginf(sums)):
        return Report("lse is not -inf for exactly the rows that see no key", lse.size)
    of_lse = compare(
        np.nan_to_num(lse, neginf=0.0, nan=np.nan).reshape(-1, 1),
        np.nan_to_num(sums, neginf=0.0).reshape(-1, 1),
        weight_error.reshape(-1, 1),
        allow_empty=lse.size == 0,
    )
    return of_lse if not of_lse.ok else of_o


def _reference(q: Any, k: Any, v: Any, sees: Any, scale: float) -> tuple[Any, Any, Any]:
    """o, lse and the largest score that each row sees, in size; [B, S, Hq, D] and twice [B, Hq, S]."""
    batch, rows, heads, _ = q.shape
    o, lse, most = np.zeros(q.shape), np.full((batch, heads, rows), -np.inf), np.zeros((batch, heads, rows))
    shared = heads // max(k.shape[2], 1)
    has_key = sees.any(axis=1)
    for b in range(batch):
        for head in range(heads):
            kv_head = head // shared
            keys, values = (x[b, :, kv_head].astype(np.float64) for x in (k, v))
            scores = q[b, has_key, head].astype(np.float64) @ keys.T * scale
            most[b, head, has_key] = np.abs(np.where(sees[has_key], scores, 0.0)).max(axis=1, initial=0.0)
            scores[~sees[has_key]] = -np.inf
            peak = scores.max(axis=1, keepdims=True, initial=-np.inf)
            weights = np.exp(scores - peak)
            total = weights.sum(axis=1, keepdims=True)
            o[b, has_key, head] = weights @ values / total
            lse[b, head, has_key] = (peak + np.log(total))[:, 0]
    return o, lse, most
