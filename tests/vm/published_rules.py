"""The published rules of the tensor cores, written again in float64, without any code of the virtual GPU.

Source: MMA-Sim (Xie et al., arXiv 2511.10909), rules and constants of release 2.1.1, which its authors compared with
GPUs. A step takes the accumulator and some exact products. Every term has an exponent: a product the sum of its
factors' (a denormal's is its format's smallest), a zero the constant of the architecture. Terms are truncated to F bits
after the binary point of the largest exponent and added exactly; the sum is truncated to an f32, to an f32 with 13
bits, or rounded to the nearest f16. All of these numbers fit float64 exactly. sm_90 has no fp8 `mma`: ptxas 13 writes
two f16 ones and an addition.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8, "s32": np.int32,
}  # fmt: skip
_LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -6, "e5m2": -14}
"""The exponent of a format's denormals."""
_AT_ONCE = 64


@dataclass(frozen=True)
class Form:
    """An instruction on a chip: `wgmma` of sm_90, or `mma` of sm_80, sm_89, sm_90 or sm_120."""

    chip: str
    k: int
    a: str
    b: str
    result: str
    satfinite: bool = False

    def __str__(self) -> str:
        return f"{self.chip} k{self.k} {self.result}.{self.a}.{self.b}" + ".satfinite" * self.satfinite


@dataclass(frozen=True)
class _Rule:
    products: int
    fraction: int
    kept: int
    zero: int


def _rule(form: Form) -> _Rule:
    """Return the row of the published table."""
    fp8 = form.a in ("e4m3", "e5m2")
    later = form.chip in ("sm_90", "sm_120", "wgmma")
    zero = {("f16", True): -21, ("f16", False): -20, ("f32", True): -133, ("f32", False): -132}[form.result, later]
    if fp8 and form.chip in ("sm_89", "wgmma"):
        return _Rule(16 if form.chip == "sm_89" else 32, 13, 13, zero)
    size = {"tf32": 4, "f16": 2, "bf16": 2}.get(form.a, 1)
    return _Rule((32 if later else 16) // size, 25 if later else 24, 23, zero)


def product(a: Array, b: Array, c: Array, form: Form) -> Array:
    """Return D on raw bits: a (T, 16, K), b (T, K, 8), c (T, 16, 8)."""
    parts = [slice(first, first + _AT_ONCE) for first in range(0, len(a), _AT_ONCE)]
    with np.errstate(all="ignore"):
        return np.concatenate([_product(a[part], b[part], c[part], form) for part in parts])


def _product(a: Array, b: Array, c: Array, form: Form) -> Array:
    x, y = _values(a, form.a), _values(b, form.b)
    if form.result == "s32":
        total = (x @ y).astype(np.int64) + c.view(np.int32)
        if form.satfinite:
            total = total.clip(-(2**31), 2**31 - 1)
        return total.astype(np.int32).view(np.uint32)  # of a sum that does not fit, the low 32 bits
    if form.chip == "sm_90" and form.a in ("e4m3", "e5m2"):
        halves = Form("sm_90", form.k // 2, "f16", "f16", form.result)
        total = np.zeros(c.shape, _DTYPES[form.result])
        for first in (0, 2):
            chosen = np.arange(form.k) // 2 * 2 % 4 == first
            total = _steps(x[:, :, chosen], y[:, chosen], total, halves)
        return _bits(total + c.view(total.dtype), form.result)
    return _bits(_steps(x, y, c.view(_DTYPES[form.result]), form), form.result)


def _values(bits: Array, name: str) -> Array:
    if name == "tf32":
        bits = bits & np.uint32(0xFFFFE000)
    return bits.view(_DTYPES[name]).astype(np.float64)


def _bits(values: Array, name: str) -> Array:
    """Return the bits; every NaN has all of them set but the sign."""
    raw = np.uint16 if name == "f16" else np.uint32
    return np.where(np.isnan(values), raw(np.iinfo(raw).max >> 1), values.view(raw))


def _steps(x: Array, y: Array, c: Array, form: Form) -> Array:
    rule = _rule(form)
    for first in range(0, x.shape[2], rule.products):
        chosen = slice(first, first + rule.products)
        c = _step(x[:, :, chosen], y[:, chosen], c.astype(np.float64), form, rule)
    return c


def _step(x: Array, y: Array, c: Array, form: Form, rule: _Rule) -> Array:
    terms = x[:, :, :, None] * y[:, None, :, :]  # exact, also where it is infinite or NaN
    exponents = _exponent(x, form.a)[:, :, :, None] + _exponent(y, form.b)[:, None, :, :]
    exponents = np.where(terms == 0, rule.zero, exponents)
    c_exponents = np.where(c == 0, rule.zero, _exponent(c, form.result))
    largest = np.maximum(exponents.max(axis=2), c_exponents)
    unit = largest - rule.fraction
    # The integers have at most 33 bits, so that their order does not matter. An infinity stays, two may give NaN.
    units = np.trunc(np.ldexp(terms, -unit[:, :, None, :])).sum(axis=2) + np.trunc(np.ldexp(c, -unit))
    total = np.ldexp(units, unit)
    if form.result == "f16":
        rounded = _nearest_half(total)
    else:
        rounded = _toward_zero(total, rule.kept)
    return np.where(rounded == 0, rounded.dtype.type(0), rounded)  # never -0


def _exponent(values: Array, name: str) -> Array:
    """Return the exponent; infinity and NaN have any, because the sum is then not finite in any case."""
    exponent = np.frexp(np.where(np.isfinite(values), values, 1))[1] - 1
    return np.maximum(exponent, _LEAST[name])


def _toward_zero(total: Array, kept: int) -> Array:
    """Return the f32 of `kept` fraction bits that is next towards zero; from 2^128 on infinity."""
    exponent = np.maximum(np.frexp(np.where(np.isfinite(total), total, 1))[1] - 1, -126)
    return np.ldexp(np.trunc(np.ldexp(total, kept - exponent)), exponent - kept).astype(np.float32)


def _nearest_half(total: Array) -> Array:
    exponent = np.maximum(np.frexp(np.where(np.isfinite(total), total, 1))[1] - 1, -14)
    return np.ldexp(np.rint(np.ldexp(total, 10 - exponent)), exponent - 10).astype(np.float16)
