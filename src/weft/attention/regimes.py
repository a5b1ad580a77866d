"""Named kinds of input. Each stresses one property of attention kernels; rows without keys come from causal shapes.

`make` is deterministic in (regime, shape's sizes, dtype, seed), and every value is finite in the dtype.
"""

import zlib
from collections.abc import Callable, Mapping

import numpy as np

from weft.core.names import did_you_mean

from .dtypes import Array, largest, numpy_dtype, smallest_normal
from .errors import ContractError
from .shapes import Shape

Inputs = tuple[Array, Array, Array]
Regime = Callable[[np.random.Generator, Shape, str], Inputs]

INPUT_DTYPES = ("f32", "f16", "bf16")


def unit_normal(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """Everything N(0, 1): logits are N(0, 1) too."""
    return rng.standard_normal(shape.q), rng.standard_normal(shape.kv), rng.standard_normal(shape.kv)


def _logits(factor: float) -> Regime:
    def regime(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
        q, k, v = unit_normal(rng, shape, dtype)
        return q * factor, k, v

    regime.__doc__ = f"Logits N(0, {factor:g}²): a few keys dominate each row" + (
        "; exp overflows unless the maximum is subtracted." if factor == 32 else "."
    )
    return regime


def one_hot(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """Keys of ±1 and each query 16 times one of them: one key has all the weight of a row, so o is a row of v."""
    k = rng.choice((-1.0, 1.0), shape.kv)
    chosen = rng.integers(0, shape.skv, (shape.b, shape.hq, shape.sq, 1))
    q = 16 * np.take_along_axis(np.repeat(k, shape.group, axis=1), chosen, axis=2)
    return q, k, rng.standard_normal(shape.kv)


def v_offset(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """V around 4: it shows weights that do not sum to one, and a quantiser's bias."""
    q, k, v = unit_normal(rng, shape, dtype)
    return q, k, v + 4


def offsets(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """K close to a long vector that is opposite to every query, and V around 4: logits are -128 + N(0, 1).

    V shows weights that do not sum to one; K shows a mean that is not subtracted, and the remainder, which is below 1;
    the logits show a maximum that starts at 0.
    """
    q, k, v = unit_normal(rng, shape, dtype)
    direction = rng.choice((-1.0, 1.0), (shape.b, shape.hkv, 1, shape.d))
    away = np.repeat(direction, shape.group, axis=1)
    across = q - (q * away).mean(axis=-1, keepdims=True) * away
    return 8 * across - 16 / np.sqrt(shape.d) * away, 8 * direction + k / 8, v + 4


def zeros(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """All zero: o is exactly zero, and a quantiser must not divide by a scale of 0."""
    return np.zeros(shape.q), np.zeros(shape.kv), np.zeros(shape.kv)


def all_equal(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """One value per tensor: o equals it for any number of keys."""
    q, k, v = rng.uniform(0.5, 2.0, 3)
    return np.full(shape.q, q), np.full(shape.kv, k), np.full(shape.kv, v)


def outlier_channels(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """One channel in 16 of K and V is 50 times larger, so the others lose precision with a per-head scale."""
    q, k, v = unit_normal(rng, shape, dtype)
    channels = rng.choice(shape.d, max(1, shape.d // 16), replace=False)
    k[..., channels] *= 50
    v[..., channels] *= 50
    return q, k, v


def uneven_channels(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """Channels of K and V from 1 down to 2^-18 of the largest: a per-head scale loses the small ones."""
    q, k, v = unit_normal(rng, shape, dtype)
    sizes = np.exp2(-18 * rng.permutation(shape.d) / max(1, shape.d - 1))
    return q, k * sizes, v * sizes


def large_magnitude(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """K and V near the dtype's limit, Q small so that logits stay N(0, 1).

    An fp32 accumulator of unnormalised rows does not overflow: where it has no more range than the dtype, V leaves
    room for the sum over all keys.
    """
    q, k, v = unit_normal(rng, shape, dtype)
    room = 1 if dtype == "f16" else 4 * shape.skv
    k_size = 2.0**14 if dtype == "f16" else 2.0**112
    v_limit = largest(dtype) / 2 / room
    return q / k_size, np.clip(k, -3.9, 3.9) * k_size, np.clip(v / 4, -1, 1) * v_limit


def denormals(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """Magnitudes from far below the smallest normal to 16 times it: o, their mean, must not be flushed to zero."""

    def values(size: tuple[int, ...]) -> Array:
        sign = rng.choice((-1.0, 1.0), size)
        return np.asarray(sign * smallest_normal(dtype) * np.exp2(rng.uniform(-6, 4, size)))

    return values(shape.q), values(shape.kv), values(shape.kv)


def sorted_keys(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """All queries of a head have one direction, and the keys ascend along it: the running maximum always rises."""
    k, v = rng.standard_normal(shape.kv), rng.standard_normal(shape.kv)
    direction = 4 * rng.standard_normal((shape.b, shape.hkv, shape.d, 1))
    order = np.argsort(k @ direction, axis=2, kind="stable")
    gain = rng.uniform(0.5, 1.5, (shape.b, shape.hq, shape.sq, 1))
    q = gain * np.repeat(direction[..., 0], shape.group, axis=1)[:, :, None, :]
    return q, np.take_along_axis(k, order, axis=2), v


def reversed_keys(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """As `sorted_keys`, with descending keys: after the first tile the running maximum never rises."""
    q, k, v = sorted_keys(rng, shape, dtype)
    return q, k[:, :, ::-1], v


def zero_rows(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """One query in three and one key in five are all ±0, and so is all of V in the last of several heads.

    A kernel that divides by a norm or by a scale of 0 gives NaN there.
    """
    q, k, v = unit_normal(rng, shape, dtype)
    q[:, :, ::3] *= 0.0
    k[:, :, 1::5] *= 0.0
    if shape.b * shape.hkv > 1:
        v[-1, -1] *= 0.0
    return q, k, v


def small_values(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """Channels of V from 2^-4 down to twice the smallest normal f16: O is small, and most of it is still normal."""
    q, k, v = unit_normal(rng, shape, dtype)
    return q, k, v * np.exp2(-4 - 9 * rng.permutation(shape.d) / max(1, shape.d - 1))


def long_tail(rng: np.random.Generator, shape: Shape, dtype: str) -> Inputs:
    """The first key outweighs all others together (e^-9 to e^-18 of its weight), but its V is zero: O is their sum.

    It shows small weights that are skipped, and weights that are too large because an exponent is clamped from below.
    """
    q, k, v = unit_normal(rng, shape, dtype)
    direction = rng.choice((-1.0, 1.0), (shape.b, shape.hkv, 1, shape.d))
    along = np.repeat(direction, shape.group, axis=1)
    across = q - (q * along).mean(axis=-1, keepdims=True) * along
    below = rng.uniform(9, 18, (shape.b, shape.hkv, shape.skv, 1))
    below[:, :, 0] = 0.0
    v = v + 8
    v[:, :, 0] = 0.0
    return across + 4 / np.sqrt(shape.d) * along, k / 8 - below / 4 * direction, v


REGIMES: Mapping[str, Regime] = {
    "unit_normal": unit_normal,
    "logits_8": _logits(8),
    "logits_16": _logits(16),
    "logits_32": _logits(32),
    "one_hot": one_hot,
    "v_offset": v_offset,
    "offsets": offsets,
    "zeros": zeros,
    "all_equal": all_equal,
    "outlier_channels": outlier_channels,
    "uneven_channels": uneven_channels,
    "large_magnitude": large_magnitude,
    "denormals": denormals,
    "sorted_keys": sorted_keys,
    "reversed_keys": reversed_keys,
    "zero_rows": zero_rows,
    "small_values": small_values,
    "long_tail": long_tail,
}
"""The regimes by name."""


def fits_f16(regime: str, dtype: str) -> bool:
    """Whether the regime's values of this type are within ±65504."""
    return dtype == "f16" or regime != "large_magnitude"


def make(regime: str, shape: Shape, dtype: str, seed: int) -> Inputs:
    """Return q, k and v of the regime, rounded to the dtype."""
    if regime not in REGIMES:
        known = ", ".join(REGIMES)
        raise ContractError(f"unknown regime {regime!r}{did_you_mean(regime, REGIMES)}; use one of {known}")
    if dtype not in INPUT_DTYPES:
        raise ContractError(f"inputs are {', '.join(INPUT_DTYPES)}, not {dtype!r}")
    sizes = (shape.b, shape.hq, shape.hkv, shape.sq, shape.skv, shape.d)
    rng = np.random.default_rng([seed, zlib.crc32(regime.encode()), *sizes])
    q, k, v = (np.ascontiguousarray(x).astype(numpy_dtype(dtype)) for x in REGIMES[regime](rng, shape, dtype))
    return q, k, v
