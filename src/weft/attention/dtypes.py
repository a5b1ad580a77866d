"""The element types an attention kernel reads and writes: rounding, spacing and limits in one place."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from .errors import ContractError

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES: Mapping[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
}
"""Name in launch lines → NumPy type."""

_finfo: Any = ml_dtypes.finfo  # NumPy's own supports neither bf16 nor e4m3


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy type of a name."""
    if name not in DTYPES:
        raise ContractError(f"unknown dtype {name!r}; use one of {', '.join(DTYPES)}")
    return DTYPES[name]


def largest(name: str) -> float:
    """Return the largest finite value."""
    return float(_finfo(numpy_dtype(name)).max)


def smallest_normal(name: str) -> float:
    """Return the smallest positive value that is not denormal."""
    return float(_finfo(numpy_dtype(name)).smallest_normal)


def epsilon(name: str) -> float:
    """Return the distance from 1 to the next value."""
    return float(_finfo(numpy_dtype(name)).eps)


def ulp(values: Array, name: str) -> Array:
    """Return the distance to the next larger magnitude of the type at each value, in float64; 0 where not finite."""
    magnitude = np.asarray(np.abs(values.astype(np.float64, copy=False)))
    steps = _power_of_two(np.maximum(magnitude, smallest_normal(name))) * epsilon(name)
    return np.where(np.isfinite(magnitude), steps, 0.0)


def rounded(values: Array, name: str) -> Array:
    """Return values rounded to the type, in their own type; e4m3 saturates, as the hardware's conversion does."""
    dtype = numpy_dtype(name)
    if values.dtype == dtype:
        return values
    if name == "e4m3":
        values = np.clip(values, -448.0, 448.0)
        if values.dtype == np.float32 and values.ndim and np.isfinite(values).all():
            return _rounded_by_adding(values)
    with np.errstate(over="ignore"):  # beyond the limit is infinity, which is the type's own rule
        return values.astype(dtype).astype(values.dtype)


def _power_of_two(values: Array) -> Array:
    """Return the largest power of two in each positive normal value, from its exponent bits; infinite values stay."""
    bits = np.dtype(f"u{values.itemsize}")
    return np.asarray((values.view(bits) & np.array(np.inf, values.dtype).view(bits)).view(values.dtype))


def _rounded_by_adding(values: Array) -> Array:
    """Return the same as a conversion of float32 values within ±448 to e4m3 and back, in a quarter of the time.

    1.5 * 2^23 steps of e4m3 are added and taken off again: the last bit of the sum is a step, so that the addition
    rounds to the type, and to even.
    """
    added = np.maximum(_power_of_two(np.abs(values)), np.float32(smallest_normal("e4m3")))
    added *= np.float32(1.5 * 2.0**23 * epsilon("e4m3"))
    near = values + added
    near -= added
    return np.asarray(np.copysign(near, values, out=near))
