"""The arithmetic of `mma`, slow and simple: the definition that compiled functions equal bit for bit.

`hardware` mode, per output element, one fused step after another (the architecture's rule says how many):
  1. every operand is sign * significand * 2^exponent, where a denormal keeps its format's smallest exponent; a product
     multiplies significands (left in [1, 4)) and adds exponents; a product or an accumulator that is zero counts with
     the rule's `zero_exponent`;
  2. if the exact sum is NaN or infinite because an operand is, that is the result (NaN: 0x7FFFFFFF / 0x7FFF);
  3. otherwise every term is aligned to the largest exponent and truncated toward zero to `fraction_bits`;
  4. the integers are added exactly, and the sum is converted: toward zero for f32, to nearest even for f16.
A result of zero is +0, also if it is a negative sum that rounds to zero; a finite sum of 2^128 or more becomes infinity
(f16: what round to nearest even gives), so truncation never turns an overflow into the largest finite number.

`ieee` mode: one single-rounded fused multiply-add per product in increasing k, in f32; an f16 accumulator is
widened first and rounded once at the end. Integer kinds are exact.

f64 is that chain in f64 in both modes, for every shape: one IEEE fused multiply-add per product in increasing k, with
denormals. Xie et al., "MMA-Sim" (arXiv 2511.10909), compared this model with A100 and later GPUs bit for bit, rounded
to nearest even. With .rz, .rm or .rp every fused multiply-add is rounded that way, which no published test covers.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.core.errors import UsageError
from weft.vm.mma_kind import FORMATS, GROUP, FloatFormat, FusedRule, MmaKind, check_kind, fused_rule, half_kind

from .exact import sum_sign

Array = NDArray[Any]
NAN_F32 = 0x7FFFFFFF
NAN_F16 = 0x7FFF
_INFINITY_F64 = 0x7FF << 52
NAN_F64 = 0xFFF8000000000000  # the NaN of CUDA's double arithmetic; payloads are not propagated
_TILES_AT_ONCE = 32  # keeps the (tiles, M, K, N) temporaries in the cache


@dataclass(frozen=True)
class Decoded:
    """Operands as integers: sign * significand * 2^(exponent - mantissa_bits), unless NaN or infinite."""

    sign: Array  # +1 or -1
    exponent: Array
    significand: Array
    nan: Array
    infinite: Array


def decode(bits: Array, fmt: FloatFormat) -> Decoded:
    """Split raw bits into sign, exponent and significand."""
    word = bits.astype(np.int64)
    if fmt.name == "tf32":
        word = (word & 0xFFFFFFFF) >> 13  # 19 bits remain: sign, 8 exponent, 10 fraction
    word = word >> fmt.first_bit
    mantissa = word & ((1 << fmt.mantissa_bits) - 1)
    field = (word >> fmt.mantissa_bits) & ((1 << fmt.exponent_bits) - 1)
    sign = 1 - 2 * ((word >> (fmt.mantissa_bits + fmt.exponent_bits)) & 1)
    significand = np.where(field > 0, mantissa + (1 << fmt.mantissa_bits), mantissa)
    exponent = np.maximum(field, 1) - fmt.bias
    top = field == (1 << fmt.exponent_bits) - 1
    if fmt.has_infinity:
        nan, infinite = top & (mantissa != 0), top & (mantissa == 0)
    else:
        nan, infinite = top & (mantissa == (1 << fmt.mantissa_bits) - 1) & fmt.has_nan, np.zeros(word.shape, bool)
    return Decoded(sign, exponent, significand, nan, infinite)


def _shift_toward_zero(magnitude: Array, left: Array) -> Array:
    """Return floor(magnitude * 2^left) of non-negative integers; the callers' left shifts never overflow 63 bits."""
    up, down = magnitude << np.clip(left, 0, 62), magnitude >> np.clip(-left, 0, 62)
    return np.asarray(np.where(left >= 0, up, down))


def _fused_step(
    a: Decoded, b: Decoded, c: Decoded, kind: MmaKind, rule: FusedRule, scales: tuple[Decoded, Decoded] | None = None
) -> Array:
    """Compute one step on a (T, M, S), b (T, S, N), c (T, M, N); return raw bits. Scales (T, M, 1), (T, 1, N)."""
    product_sign = a.sign[..., :, :, None] * b.sign[..., None, :, :]  # (T, M, S, N)
    product_significand = a.significand[..., :, :, None] * b.significand[..., None, :, :]
    product_exponent = a.exponent[..., :, :, None] + b.exponent[..., None, :, :]
    if scales is not None:
        product_exponent += scales[0].exponent[..., None] + scales[1].exponent[..., None, :, :]
    product_exponent = np.where(product_significand == 0, rule.zero_exponent, product_exponent)
    c_exponent = np.where(c.significand == 0, rule.zero_exponent, c.exponent)
    product_fraction_bits = FORMATS[kind.a_type].mantissa_bits + FORMATS[kind.b_type].mantissa_bits
    c_fraction_bits = FORMATS[kind.c_type].mantissa_bits

    largest = np.maximum(product_exponent.max(axis=-2), c_exponent)  # (T, M, N)
    shift = rule.fraction_bits - product_fraction_bits + product_exponent - largest[..., :, None, :]
    terms = product_sign * _shift_toward_zero(product_significand, shift)
    c_shift = rule.fraction_bits - c_fraction_bits + c_exponent - largest
    total = terms.sum(axis=-2) + c.sign * _shift_toward_zero(c.significand, c_shift)

    a_zero, b_zero = a.significand == 0, b.significand == 0
    either_infinite = a.infinite[..., :, :, None] | b.infinite[..., None, :, :]
    either_zero = a_zero[..., :, :, None] | b_zero[..., None, :, :]
    invalid = a.nan[..., :, :, None] | b.nan[..., None, :, :] | (either_infinite & either_zero)
    up = (either_infinite & (product_sign > 0)).any(axis=-2) | (c.infinite & (c.sign > 0))
    down = (either_infinite & (product_sign < 0)).any(axis=-2) | (c.infinite & (c.sign < 0))
    nan = invalid.any(axis=-2) | c.nan | (up & down)
    if scales is not None:
        nan = nan | scales[0].nan | scales[1].nan

    if kind.d_type == "f16":
        finite = _encode(total, largest - rule.fraction_bits, FORMATS["f16"], 10, nearest=True)
        infinity, canonical_nan = 0x7C00, NAN_F16
    else:
        finite = _encode(total, largest - rule.fraction_bits, FORMATS["f32"], rule.result_bits, nearest=False)
        infinity, canonical_nan = 0x7F800000, NAN_F32
    negative = 1 << (FORMATS[kind.d_type].storage_bits - 1)
    result = np.where(up, infinity, np.where(down, infinity | negative, finite))
    return np.where(nan, canonical_nan, result)


def _encode(total: Array, exponent: Array, fmt: FloatFormat, fraction_bits: int, *, nearest: bool) -> Array:
    """Return the raw bits of total * 2^exponent, rounded to `fraction_bits` (at most the format's mantissa)."""
    magnitude = np.abs(total)
    # |total| < 2^53, so frexp of its float64 is exact: magnitude = f * 2^length with f in [0.5, 1)
    length = np.frexp(magnitude.astype(np.float64))[1].astype(np.int64)
    leading = np.maximum(exponent + length - 1, fmt.min_exponent)
    unit = leading - fraction_bits  # exponent of the last kept bit
    drop = np.clip(unit - exponent, 0, 62)
    kept = np.where(unit > exponent, magnitude >> drop, magnitude << np.clip(exponent - unit, 0, 62))
    if nearest:
        rest = magnitude - ((magnitude >> drop) << drop)
        half = np.where(drop > 0, np.int64(1) << np.maximum(drop - 1, 0), 0)
        up = (drop > 0) & ((rest > half) | ((rest == half) & (kept & 1 == 1)))
        kept = kept + up
    kept = kept << (fmt.mantissa_bits - fraction_bits)
    # A normal `kept` carries its leading one, which adds one to the exponent field; a denormal does not.
    infinity = ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits
    field = np.minimum(leading - fmt.min_exponent, 1 << fmt.exponent_bits)
    bits = np.minimum((field << fmt.mantissa_bits) + kept, infinity)
    return np.where(kept == 0, 0, np.where(total < 0, bits | (1 << (fmt.storage_bits - 1)), bits))


def to_float64(bits: Array, fmt: FloatFormat) -> Array:
    """Return the value of each bit pattern; every format here fits float64 exactly."""
    d = decode(bits, fmt)
    scale = (d.exponent - fmt.mantissa_bits).astype(np.int32)
    value = d.sign * np.ldexp(d.significand.astype(np.float64), scale)
    value = np.where((d.significand == 0) & (d.sign < 0), -0.0, value)
    return np.where(d.nan, np.nan, np.where(d.infinite, d.sign * np.inf, value))


def _add_rounded_to_odd(x: Array, y: Array) -> Array:
    """Return x + y in float64, rounded to odd, so that rounding it again to f32 gives the once-rounded sum."""
    total = x + y
    y_part = total - x
    error = (x - (total - y_part)) + (y - y_part)
    even = (total.view(np.int64) & 1) == 0
    adjust = (error != 0) & even & np.isfinite(total)
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(adjust, np.nextafter(total, toward), total)


def _ieee_chain(x: Array, y: Array, c: Array, kind: MmaKind) -> Array:
    """Return D of the values of A and B and the bits of C."""
    acc = to_float64(c, FORMATS[kind.c_type])
    with np.errstate(all="ignore"):
        for k in range(kind.k):
            product = x[..., :, k, None] * y[..., None, k, :]  # exact: at most 22 significant bits
            acc = _add_rounded_to_odd(product, acc).astype(np.float32).astype(np.float64)
        if kind.d_type == "f16":
            result = acc.astype(np.float32).astype(np.float16).view(np.uint16)
            return np.where(np.isnan(acc), np.uint16(NAN_F16), result)
        result = acc.astype(np.float32).view(np.uint32)
        return np.where(np.isnan(acc), np.uint32(NAN_F32), result)


def _fma_f64(a: int, b: int, c: int, rounding: str) -> int:
    """Return a * b + c on float64 bit patterns, rounded once, in Python integers."""
    parts = []
    for bits in (a, b, c):
        field, mantissa = (bits >> 52) & 0x7FF, bits & ((1 << 52) - 1)
        sign = -1 if bits >> 63 else 1
        parts.append((sign, max(field, 1) - 1075, mantissa + (1 << 52 if field else 0), field == 0x7FF))
    (sa, ea, ma, top_a), (sb, eb, mb, top_b), (sc, ec, mc, top_c) = parts
    if top_a or top_b or top_c:
        x, y, z = (np.array([v], np.uint64).view(np.float64) for v in (a, b, c))
        # Only the class matters now; +-1 replaces every finite non-zero operand so that nothing overflows.
        x, y, z = (np.where(np.isfinite(v), np.sign(v), v) for v in (x, y, z))
        with np.errstate(invalid="ignore"):
            special = x * y + z
        return NAN_F64 if np.isnan(special[0]) else int(special.view(np.uint64)[0])
    exponent = min(ea + eb, ec)
    total = sa * sb * (ma * mb << (ea + eb - exponent)) + sc * (mc << (ec - exponent))
    if total == 0:
        return 1 << 63 if sum_sign(sa * sb < 0, sc < 0, rounding) else 0
    magnitude, negative = abs(total), total < 0
    unit = max(exponent + magnitude.bit_length() - 53, -1074)
    if unit > exponent:
        drop = unit - exponent
        kept, rest = magnitude >> drop, magnitude & ((1 << drop) - 1)
        kept += {
            "rn": rest > 1 << (drop - 1) or (rest == 1 << (drop - 1) and bool(kept & 1)),
            "rz": False,
            "rm": rest > 0 and negative,
            "rp": rest > 0 and not negative,
        }[rounding]
    else:
        kept = magnitude << (exponent - unit)
    bits = ((unit + 1074) << 52) + kept
    if bits >= _INFINITY_F64:
        inward = rounding == "rz" or rounding == ("rp" if negative else "rm")
        bits = _INFINITY_F64 - 1 if inward else _INFINITY_F64
    return bits | (1 << 63 if negative else 0)


def _f64_chain(a: Array, b: Array, c: Array, rounding: str) -> Array:
    fma = np.frompyfunc(partial(_fma_f64, rounding=rounding), 3, 1)
    x, y, acc = a.astype(object), b.astype(object), c.astype(object)
    for k in range(x.shape[-1]):
        acc = fma(x[..., :, k, None], y[..., None, k, :], acc)
    return acc.astype(np.uint64)


def _integer(a: Array, b: Array, c: Array, kind: MmaKind) -> Array:
    x = a.view(np.int8 if kind.a_type == "s8" else np.uint8).astype(np.int64)
    y = b.view(np.int8 if kind.b_type == "s8" else np.uint8).astype(np.int64)
    total = np.matmul(x, y) + c.view(np.int32).astype(np.int64)
    if kind.satfinite:
        total = np.clip(total, -(2**31), 2**31 - 1)
    return np.asarray(total.astype(np.int32))  # wraps


def _take(d: Decoded, index: Any) -> Decoded:
    return Decoded(d.sign[index], d.exponent[index], d.significand[index], d.nan[index], d.infinite[index])


def _fused_chain(a: Array, b: Array, c: Array, kind: MmaKind, rule: FusedRule) -> Array:
    x, y = decode(a, FORMATS[kind.a_type]), decode(b, FORMATS[kind.b_type])
    for start in range(0, kind.k, rule.step_k):
        part = slice(start, start + rule.step_k)
        z = decode(c, FORMATS[kind.c_type])
        c = _fused_step(_take(x, (..., part)), _take(y, (..., part, slice(None))), z, kind, rule)
    return c.astype(np.uint16 if kind.d_type == "f16" else np.uint32)


def _by_halves(a: Array, b: Array, c: Array, kind: MmaKind, halves: MmaKind, rule: FusedRule) -> Array:
    """Return fp8 products by f16 ones: k = 0 and 1 of every four, then the others, then C is added."""
    with np.errstate(invalid="ignore"):
        x, y = (
            to_float64(bits, FORMATS[name]).astype(np.float16).view(np.uint16)
            for bits, name in ((a, kind.a_type), (b, kind.b_type))
        )
    total = np.zeros_like(c)
    first = np.arange(kind.k) % 4 < 2
    for chosen in (first, ~first):
        total = _fused_chain(x[..., chosen], y[..., chosen, :], total, halves, rule)
    dtype, nan = (np.float16, NAN_F16) if kind.d_type == "f16" else (np.float32, NAN_F32)
    with np.errstate(all="ignore"):
        added = total.view(dtype) + c.view(dtype)
    return np.asarray(np.where(np.isnan(added), total.dtype.type(nan), added.view(total.dtype)))


def _nibbles(pairs: Array, axis: int) -> Array:
    """Return two e2m1 of every byte along K, the lower four bits first, each in bits 2 to 5 of a byte."""
    both = np.stack([(pairs & 15) << 2, pairs >> 4 << 2], axis=axis if axis == -1 else -2)
    shape = list(pairs.shape)
    shape[axis] *= 2
    return np.asarray(both.reshape(shape))


def _decode_scales(codes: Array, name: str) -> Decoded:
    """Return scales: ue8m0 is a power of two, 255 is NaN; ue4m3 is an e4m3 whose sign is ignored."""
    if name == "ue4m3":
        return decode(codes & 0x7F, FORMATS["e4m3"])
    ones = np.ones(codes.shape, np.int64)
    return Decoded(ones, codes.astype(np.int64) - 127, ones, codes == 255, codes != codes)


def _scaled(a: Array, b: Array, c: Array, scales: tuple[Array, Array], kind: MmaKind, arch: str, mode: str) -> Array:
    """Return D = (A scale_A) (B scale_B) + C, where a scale belongs to K / kind.scales elements."""
    first, second = (_decode_scales(codes, kind.scale_type) for codes in scales)
    if mode == "ieee":
        bits = 3 if kind.scale_type == "ue4m3" else 0
        x, y = to_float64(a, FORMATS[kind.a_type]), to_float64(b, FORMATS[kind.b_type])
        values = (np.where(s.nan, np.nan, np.ldexp(1.0 * s.significand, s.exponent - bits)) for s in (first, second))
        each = kind.k // kind.scales
        return _ieee_chain(x * next(values).repeat(each, -1), y * next(values).repeat(each, -2), c, kind)
    rule = fused_rule(kind, arch)
    factors = decode(a, FORMATS[kind.a_type]), decode(b, FORMATS[kind.b_type])
    start = decode(c, FORMATS["f32"])
    if kind.k == 64:
        return _grouped_step(*factors, start, (first, second), kind, rule)
    return _fused_step(*factors, start, kind, rule, (first, second)).astype(np.uint32)


def _grouped_step(
    a: Decoded, b: Decoded, c: Decoded, scales: tuple[Decoded, Decoded], kind: MmaKind, rule: FusedRule
) -> Array:
    """Compute exact sums of GROUP products, scale each, then align and add them and the accumulator."""
    x, y = (d.sign * (d.significand << d.exponent) for d in (a, b))  # e2m1 in halves
    products = x[..., :, :, None] * y[..., None, :, :]  # (T, M, K, N), in quarters
    shape = (*products.shape[:-2], kind.k // GROUP, GROUP, products.shape[-1])
    products = products.reshape(shape)
    sums, empty = products.sum(axis=-2), (products == 0).all(axis=-2)  # (T, M, groups, N)
    each = kind.k // GROUP // kind.scales
    left, right = (
        [part.repeat(each, axis) for part in (s.significand, s.exponent, s.nan)]
        for s, axis in zip(scales, (-1, -2), strict=True)
    )
    significand = left[0][..., None] * right[0][..., None, :, :]
    nan = (left[2][..., None] | right[2][..., None, :, :]).any(axis=-2) | c.nan
    exponent = left[1][..., None] + right[1][..., None, :, :]
    exponent = np.where(empty | (significand == 0), rule.zero_exponent, exponent)
    c_exponent = np.where(c.significand == 0, rule.zero_exponent, c.exponent)
    largest = np.maximum(exponent.max(axis=-2), c_exponent)
    fraction = 2 + (6 if kind.scale_type == "ue4m3" else 0)  # quarters; two scales of three bits
    shift = rule.fraction_bits - fraction + exponent - largest[..., None, :]
    total = (np.sign(sums) * _shift_toward_zero(np.abs(sums) * significand, shift)).sum(axis=-2)
    total += c.sign * _shift_toward_zero(c.significand, rule.fraction_bits - 23 + c_exponent - largest)
    finite = _encode(total, largest - rule.fraction_bits, FORMATS["f32"], rule.result_bits, nearest=False)
    infinite = np.where(c.sign > 0, 0x7F800000, 0xFF800000)
    return np.where(nan, NAN_F32, np.where(c.infinite, infinite, finite)).astype(np.uint32)


def mma(
    a: Array,
    b: Array,
    c: Array,
    scales: tuple[Array, Array] | None = None,
    *,
    kind: MmaKind,
    arch: str = "sm_89",
    mode: str = "hardware",
) -> Array:
    """Return D = A B + C on raw bits: a (..., M, K), b (..., K, N), c (..., M, N), with or without a batch axis.

    Scales are bytes (..., M, kind.scales) and (..., kind.scales, N). Two e2m1 of k 64 are a byte: K is 32 then.
    """
    check_kind(kind)
    if mode not in ("hardware", "ieee"):
        raise UsageError(f"tensor-core mode {mode!r}; use 'hardware' or 'ieee'")
    if kind.element_bits == 4:
        a, b = _nibbles(a, -1), _nibbles(b, -2)
    expected = ((kind.m, kind.k), (kind.k, kind.n), (kind.m, kind.n))
    if tuple(x.shape[-2:] for x in (a, b, c)) != expected:
        raise UsageError(f"mma {kind.label} takes {expected}, got {a.shape}, {b.shape}, {c.shape}")
    if a.ndim == 3:
        parts = [slice(i, i + _TILES_AT_ONCE) for i in range(0, a.shape[0], _TILES_AT_ONCE)]
        given = [None if scales is None else (scales[0][p], scales[1][p]) for p in parts]
        return np.concatenate([_mma(a[p], b[p], c[p], s, kind, arch, mode) for p, s in zip(parts, given, strict=True)])
    return _mma(a, b, c, scales, kind, arch, mode)


def _mma(
    a: Array, b: Array, c: Array, scales: tuple[Array, Array] | None, kind: MmaKind, arch: str, mode: str
) -> Array:
    if kind.is_integer:
        return _integer(a, b, c, kind)
    if kind.a_type == "f64":
        return _f64_chain(a, b, c, kind.rounding)
    if scales is not None:
        return _scaled(a, b, c, scales, kind, arch, mode)
    if mode == "ieee":
        return _ieee_chain(to_float64(a, FORMATS[kind.a_type]), to_float64(b, FORMATS[kind.b_type]), c, kind)
    halves = half_kind(kind, arch)
    if halves is not None:
        return _by_halves(a, b, c, kind, halves, fused_rule(halves, arch))
    return _fused_chain(a, b, c, kind, fused_rule(kind, arch))


__all__ = ["NAN_F16", "NAN_F32", "NAN_F64", "Decoded", "decode", "mma", "to_float64"]
