"""Attention as the contract defines it: float64, explicit masks, one head at a time. Slow, obvious and right."""

import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from .dtypes import Array, numpy_dtype
from .errors import ContractError
from .logits import PLAIN_LOGITS, Logits, softmax
from .shapes import Shape

__all__ = [
    "Attended", "Causal", "attention", "attention16", "default_scale", "in_type", "mask_for", "mask_of_batch",
    "shape_of", "softmax", "visible",
]  # fmt: skip

Causal = Literal["top_left", "bottom_right"] | None
"""The corner at which the diagonal starts: PyTorch's `top_left`, FlashAttention's `bottom_right`, or no mask."""


class Attended(NamedTuple):
    """The output (b, hq, sq, d) and the natural logarithm of each row's sum of exponentials (b, hq, sq)."""

    o: Array
    lse: Array


def shape_of(q: Array, k: Array, v: Array) -> Shape:
    """Return the sizes of a call, checked against the contract."""
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ContractError(f"q, k and v are (b, h, s, d), not {q.shape}, {k.shape}, {v.shape}")
    if k.shape != v.shape:
        raise ContractError(f"k {k.shape} and v {v.shape} must have the same shape")
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ContractError(f"q {q.shape} and k {k.shape} differ in batch or in head dimension")
    b, hq, sq, d = q.shape
    return Shape("call", b, hq, k.shape[1], sq, k.shape[2], d)


def visible(
    sq: int, skv: int, causal: Causal, *, left: int | None = None, right: int | None = None, off: int = 0
) -> Array:
    """Return which keys each query may see, as a boolean (sq, skv).

    The diagonal is where key = query + shift; shift is 0 for `top_left`, otherwise skv - sq. A window limits how many
    keys before (`left`) and after it (`right`) are seen; a causal mask is a window with right = 0. `off` is added to
    the diagonal's keys.
    """
    if causal is not None and causal not in get_args(get_args(Causal)[0]):
        raise ContractError(f"causal is None, 'top_left' or 'bottom_right', not {causal!r}")
    diagonal = np.arange(sq)[:, None] + (0 if causal == "top_left" else skv - sq) + off
    after = np.arange(skv)[None, :] - diagonal
    right = right if causal is None else 0
    seen = np.ones((sq, skv), np.bool_)
    if right is not None:
        seen &= after <= right
    if left is not None:
        seen &= after >= -left
    return seen


def default_scale(d: int) -> float:
    """Return 1/sqrt(d)."""
    return 1.0 / math.sqrt(d)


def mask_for(shape: Shape, causal: Causal, mask: Array | None) -> Array:
    """Return the mask if it is given (some rows of a longer sequence, lengths per batch entry), else that of `causal`.

    It is (sq, skv), or (b, 1, sq, skv) where batch entries differ.
    """
    if mask is None:
        return visible(shape.sq, shape.skv, causal)
    same, own = (shape.sq, shape.skv), (shape.b, 1, shape.sq, shape.skv)
    if causal is not None or mask.shape not in (same, own):
        raise ContractError(f"a mask {mask.shape} for {same} or {own} with causal {causal!r}: give only one of them")
    return mask


def mask_of_batch(mask: Array, batch: int) -> Array:
    """Return the mask (sq, skv) of one batch entry."""
    return mask if mask.ndim == 2 else mask[batch, 0]


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | None = None,
    causal: Causal = None,
    mask: Array | None = None,
    logits: Logits = PLAIN_LOGITS,
) -> Attended:
    """Return softmax(q·kᵀ·scale)·v in float64. A row without a visible key or sink gives o = 0 and lse = -inf."""
    shape = shape_of(q, k, v)
    mask = mask_for(shape, causal, mask)
    factor = default_scale(shape.d) if scale is None else scale
    q64, k64, v64 = (x.astype(np.float64) for x in (q, k, v))
    o, lse = np.zeros(shape.q), np.full(shape.lse, -np.inf)
    for batch in range(shape.b):
        for head in range(shape.hq):
            kv_head, own = head // shape.group, logits.head(batch, head)
            scores = own.of(q64[batch, head] @ k64[batch, kv_head].T * factor)
            weights, lse[batch, head] = own.softmax(np.where(mask_of_batch(mask, batch), scores, -np.inf))
            o[batch, head] = weights @ v64[batch, kv_head]
    return Attended(o, lse)


def attention16(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | None = None,
    causal: Causal = None,
    mask: Array | None = None,
    logits: Logits = PLAIN_LOGITS,
) -> Attended:
    """Return attention as a 16-bit framework computes it, the reference of FlashAttention's rule.

    q·scale, S, P and O are each rounded to the inputs' type; sums and the softmax itself are float32.
    """
    shape = shape_of(q, k, v)
    dtype = q.dtype
    if dtype not in (numpy_dtype("f16"), numpy_dtype("bf16")) or not dtype == k.dtype == v.dtype:
        raise ContractError(f"q, k and v are all f16 or all bf16, not {q.dtype}, {k.dtype}, {v.dtype}")
    mask = mask_for(shape, causal, mask)
    factor = np.float32(default_scale(shape.d) if scale is None else scale)
    q32, k32, v32 = (x.astype(np.float32) for x in (q, k, v))
    q32 = in_type(q32 * factor, dtype)
    o, lse = np.zeros(shape.q, dtype), np.full(shape.lse, -np.inf, np.float32)
    for batch in range(shape.b):
        for head in range(shape.hq):
            kv_head, own = head // shape.group, logits.head(batch, head)
            scores = in_type(own.of(in_type(q32[batch, head] @ k32[batch, kv_head].T, dtype)), dtype)
            weights, lse[batch, head] = own.softmax(np.where(mask_of_batch(mask, batch), scores, np.float32(-np.inf)))
            o[batch, head] = (in_type(weights, dtype) @ v32[batch, kv_head]).astype(dtype)
    return Attended(o, lse)


def in_type(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return float32 values rounded to a type, overflow being infinity."""
    with np.errstate(over="ignore"):
        return x.astype(dtype).astype(np.float32)
