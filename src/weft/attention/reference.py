"""Attention as the contract defines it: float64, explicit masks, one head at a time. Slow, obvious and right."""

import math
from typing import Literal, NamedTuple, get_args

import numpy as np

from .dtypes import Array, numpy_dtype
from .errors import ContractError
from .shapes import Shape

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


def visible(sq: int, skv: int, causal: Causal) -> Array:
    """Return which keys each query may see, as a boolean (sq, skv)."""
    if causal is None:
        return np.ones((sq, skv), np.bool_)
    if causal not in get_args(get_args(Causal)[0]):
        raise ContractError(f"causal is None, 'top_left' or 'bottom_right', not {causal!r}")
    shift = skv - sq if causal == "bottom_right" else 0
    return np.arange(skv)[None, :] <= np.arange(sq)[:, None] + shift


def default_scale(d: int) -> float:
    """Return 1/sqrt(d)."""
    return 1.0 / math.sqrt(d)


def mask_for(shape: Shape, causal: Causal, mask: Array | None) -> Array:
    """Return the mask (sq, skv) if it is given (some rows of a longer sequence), else that of `causal`."""
    if mask is None:
        return visible(shape.sq, shape.skv, causal)
    if causal is not None or mask.shape != (shape.sq, shape.skv):
        raise ContractError(
            f"a mask {mask.shape} for ({shape.sq}, {shape.skv}) with causal {causal!r}: give only one of them"
        )
    return mask


def attention(
    q: Array, k: Array, v: Array, *, scale: float | None = None, causal: Causal = None, mask: Array | None = None
) -> Attended:
    """Return softmax(q·kᵀ·scale)·v in float64. A row without a visible key gives o = 0 and lse = -inf."""
    shape = shape_of(q, k, v)
    mask = mask_for(shape, causal, mask)
    factor = default_scale(shape.d) if scale is None else scale
    q64, k64, v64 = (x.astype(np.float64) for x in (q, k, v))
    o, lse = np.zeros(shape.q), np.full(shape.lse, -np.inf)
    for batch in range(shape.b):
        for head in range(shape.hq):
            kv_head = head // shape.group
            scores = q64[batch, head] @ k64[batch, kv_head].T * factor
            weights, lse[batch, head] = softmax(np.where(mask, scores, -np.inf))
            o[batch, head] = weights @ v64[batch, kv_head]
    return Attended(o, lse)


def attention16(
    q: Array, k: Array, v: Array, *, scale: float | None = None, causal: Causal = None, mask: Array | None = None
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

    def to_dtype_and_back(x: Array) -> Array:
        with np.errstate(over="ignore"):
            return x.astype(dtype).astype(np.float32)

    q32, k32, v32 = (x.astype(np.float32) for x in (q, k, v))
    q32 = to_dtype_and_back(q32 * factor)
    o, lse = np.zeros(shape.q, dtype), np.full(shape.lse, -np.inf, np.float32)
    for batch in range(shape.b):
        for head in range(shape.hq):
            kv_head = head // shape.group
            scores = to_dtype_and_back(q32[batch, head] @ k32[batch, kv_head].T)
            weights, lse[batch, head] = softmax(np.where(mask, scores, np.float32(-np.inf)))
            o[batch, head] = (to_dtype_and_back(weights) @ v32[batch, kv_head]).astype(dtype)
    return Attended(o, lse)


def softmax(scores: Array) -> tuple[Array, Array]:
    """Return row-wise weights and log-sum-exp; a row of -inf gives zeros and -inf, without computing -inf - -inf."""
    m = scores.max(axis=-1, keepdims=True)
    empty = np.isneginf(m)
    p = np.exp(scores - np.where(empty, 0, m))
    l = p.sum(axis=-1, keepdims=True)
    some = np.where(empty, 1, l)  # divisor and logarithm of an empty row are never used
    lse = np.where(empty, -np.inf, m + np.log(some))
    return p / some, lse[..., 0]
