"""What the kernels must compute, in float64 through PyTorch or exactly in NumPy."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.kernels.case import Array

E4M3_LARGEST = 448.0
E4M3_MIN_EXPONENT = -6
F32_MIN_EXPONENT = -126
FP8_FRACTION_BITS = 13
FP8_STEP = 16
"""Products that one step of an FP8 mma adds: half of its K = 32."""


def _torch(x: Array) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(x.astype(np.float64)))


def attention(q: Array, k: Array, v: Array, *, scale: float, causal: bool) -> Array:
    """softmax(q · kᵀ · scale) · v over (..., S, D) in float64; causal is top-left."""
    from torch.nn.functional import scaled_dot_product_attention

    out = scaled_dot_product_attention(_torch(q), _torch(k), _torch(v), is_causal=causal, scale=scale)
    return np.asarray(out.numpy())


def log_sum_exp(q: Array, k: Array, *, scale: float, causal: bool) -> Array:
    """Natural log of the softmax denominators, (..., S), in float64."""
    import torch

    scores = _torch(q) @ _torch(k).transpose(-1, -2) * scale
    if causal:
        above = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(above, float("-inf"))
    return np.asarray(torch.logsumexp(scores, dim=-1).numpy())


def softmax(x: Array) -> Array:
    """Softmax of the last axis in float64."""
    import torch

    return np.asarray(torch.softmax(_torch(x), dim=-1).numpy())


def matmul(a: Array, b: Array) -> Array:
    """a · b in float64."""
    return np.asarray((_torch(a) @ _torch(b)).numpy())


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """Root-mean-square norm of the last axis in float64."""
    from torch.nn.functional import rms_norm as reference

    return np.asarray(reference(_torch(x), (x.shape[-1],), _torch(weight), epsilon).numpy())


def rotary(x: Array, positions: Array, *, base: float, scale: float, inverse: bool) -> Array:
    """Rotates the pairs (d, d + D/2) of x (tokens, heads, D), in complex float64."""
    D = x.shape[-1]
    frequencies = float(base) ** (-2.0 * np.arange(D // 2) / D)
    turns = np.exp((-1j if inverse else 1j) * positions[:, None].astype(np.float64) * frequencies)
    wide = x.astype(np.float64)
    turned = (wide[..., : D // 2] + 1j * wide[..., D // 2 :]) * turns[:, None, :] * scale
    return np.concatenate([turned.real, turned.imag], axis=-1)


def _exponent(x: Array, smallest: int) -> Array:
    """floor(log2 |x|), at least the format's smallest; zero counts as -126."""
    exponent = np.maximum(np.frexp(x)[1] - 1, smallest)
    return np.where(x == 0, F32_MIN_EXPONENT, exponent)


def _truncate(x: Array, quantum: Array) -> Array:
    return np.trunc(x / quantum) * quantum


@dataclass(frozen=True)
class Chain:
    """How a tensor core adds products: `step` of them at a time.

    A step aligns the accumulator and the exact products to the largest exponent, truncates each to `kept`
    fractional bits, adds exactly and truncates the sum to `result` fractional bits. `smallest` is the least
    exponent of the operands' type.
    """

    step: int
    kept: int
    result: int
    smallest: int = F32_MIN_EXPONENT

    def product(self, a: Array, b: Array, start: Array | None = None) -> Array:
        """start + a (M, K) · b (K, N) in float64, which holds every result exactly."""
        a, b = a.astype(np.float64)[:, None], b.astype(np.float64).T[None]
        c = np.zeros((a.shape[0], b.shape[1])) if start is None else start
        for k in range(0, a.shape[-1], self.step):
            a_step, b_step = a[..., k : k + self.step], b[..., k : k + self.step]
            terms = np.concatenate([a_step * b_step, c[..., None]], axis=-1)
            products = _exponent(a_step, self.smallest) + _exponent(b_step, self.smallest)
            exponents = np.concatenate([products, _exponent(c, F32_MIN_EXPONENT)[..., None]], axis=-1)
            quantum = np.exp2(exponents.max(axis=-1, keepdims=True) - self.kept)
            total = _truncate(terms, quantum).sum(axis=-1)
            c = _truncate(total, np.exp2(_exponent(total, F32_MIN_EXPONENT) - self.result))
        return c


E4M3_CHAIN = Chain(FP8_STEP, FP8_FRACTION_BITS, FP8_FRACTION_BITS, E4M3_MIN_EXPONENT)
"""Ada's rule for E4M3."""


def fp8_gemm(a: Array, b: Array, *, scale: np.float32, flush: int) -> Array:
    """scale · a · bᵀ: tensor-core chains of `flush` elements, added in float32."""
    total = np.zeros((len(a), len(b)), np.float32)
    for k in range(0, a.shape[1], flush):
        total += E4M3_CHAIN.product(a[:, k : k + flush], b[:, k : k + flush].T).astype(np.float32)
    return total * scale


def collatz(n: int) -> tuple[Array, Array]:
    """Length and peak of the Collatz sequences of 1 .. n."""
    steps, peaks = np.zeros(n, np.int32), np.zeros(n, np.uint64)
    for i in range(n):
        value = peak = i + 1
        count = 0
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            peak = max(peak, value)
            count += 1
        steps[i], peaks[i] = count, peak
    return steps, peaks
