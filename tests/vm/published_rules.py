"""The published rules of the tensor cores, written again in float64, without any code of the virtual GPU.

Source: MMA-Sim (Xie et al., arXiv 2511.10909), rules and constants of release 2.1.1, which its authors compared with
GPUs. A step takes the accumulator and some exact products. Every term has an exponent: a product the sum of its
factors' (a denormal's is its format's smallest), a zero the constant of the architecture. Terms are truncated to F bits
after the binary point of the largest exponent and added exactly; the sum is truncated to an f32, to an f32 with 13
bits, or rounded to the nearest f16. All of these numbers fit float64 exactly. sm_90 has no fp8 `mma`: ptxas 13 writes
two f16 ones and an addition. With scales, a term of k 32 is a product times both scales, and its exponent is the sum of
theirs; a term of k 64 is an exact sum of 16 products times both scales, with the exponent of the scales alone.
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
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m3": ml_dtypes.float6_e2m3fn, "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn,
}  # fmt: skip
_LEAST = {
    "f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -6, "e5m2": -14, "e3m2": -2, "e2m3": 0, "e2m1": 0,
    "ue8m0": -127, "ue4m3": -6,
}  # fmt: skip
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
    scale: str = ""
    scales: int = 0

    def __str__(self) -> str:
        end = ".satfinite" * self.satfinite + (f".{self.scale}x{self.scales}" if self.scale else "")
        return f"{self.chip} k{self.k} {self.result}.{self.a}.{self.b}{end}"


@dataclass(frozen=True)
class _Rule:
    products: int
    fraction: int
    kept: int
    zero: int


def _rule(form: Form) -> _Rule:
    """Return the row of the published table."""
    fp8 = form.a in ("e4m3", "e5m2")
    if form.k == 64:
        return _Rule(64, 35, 23, -139)
    later = form.chip in ("sm_90", "sm_120", "wgmma")
    zero = {("f16", True): -21, ("f16", False): -20, ("f32", True): -133, ("f32", False): -132}[form.result, later]
    if fp8 and form.chip in ("sm_89", "wgmma"):
        return _Rule(16 if form.chip == "sm_89" else 32, 13, 13, zero)
    size = {"tf32": 4, "f16": 2, "bf16": 2}.get(form.a, 1)
    return _Rule((32 if later else 16) // size, 25 if later else 24, 23, zero)


def product(a: Array, b: Array, c: Array, form: Form, scales: tuple[Array, ...] = ()) -> Array:
    """Return D on raw bits: a (T, 16, K), b (T, K, 8), c (T, 16, 8), scales (T, 16, n) and (T, n, 8).

    Two e2m1 of k 64 are a byte, the first in its low half.
    """
    parts = [slice(first, first + _AT_ONCE) for first in range(0, len(a), _AT_ONCE)]
    with np.errstate(all="ignore"):
        return np.concatenate(
            [_product(a[part], b[part], c[part], form, *(each[part] for each in scales)) for part in parts]
        )


def _product(a: Array, b: Array, c: Array, form: Form, *scales: Array) -> Array:
    if form.k == 64:
        a = np.stack([a & 15, a >> 4], axis=3).reshape(len(a), 16, 64) << 2
        b = np.stack([b & 15, b >> 4], axis=2).reshape(len(b), 64, 8) << 2
    x, y = _values(a, form.a), _values(b, form.b)
    if scales:
        return _bits(_scaled(x, y, c.view(np.float32).astype(np.float64), form, *scales), form.result)
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
    if name in ("e3m2", "e2m3"):
        bits = bits & np.uint8(0x3F)
    elif name == "e2m1":
        bits = bits >> np.uint8(2) & np.uint8(15)
    elif name == "ue4m3":
        bits = bits & np.uint8(0x7F)
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
    return _sum(terms, exponents, c, form, rule)


def _scaled(x: Array, y: Array, c: Array, form: Form, codes_a: Array, codes_b: Array) -> Array:
    """Return the sum of terms with scales, aligned as in a step."""
    rule = _rule(form)
    sa, sb = _values(codes_a, form.scale), _values(codes_b, form.scale)
    products = x[:, :, :, None] * y[:, None, :, :]
    each = 16 if form.k == 64 else 1
    groups = products.reshape(len(x), 16, form.k // each, each, 8)
    repeats = form.k // each // form.scales
    scale = sa.repeat(repeats, 2)[:, :, :, None] * sb.repeat(repeats, 1)[:, None]
    exponents = (_exponent(sa, form.scale).repeat(repeats, 2)[:, :, :, None]
                 + _exponent(sb, form.scale).repeat(repeats, 1)[:, None])  # fmt: skip
    if each == 1:
        exponents = exponents + _exponent(x, form.a)[:, :, :, None] + _exponent(y, form.b)[:, None]
    nothing = (groups == 0).all(axis=3) | (scale == 0)
    return _sum(groups.sum(axis=3) * scale, np.where(nothing, rule.zero, exponents), c, form, rule)


def _sum(terms: Array, exponents: Array, c: Array, form: Form, rule: _Rule) -> Array:
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
