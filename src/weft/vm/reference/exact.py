"""Exact rounding: rational numbers to the bits of a binary format, in any mode. Slow and simple."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

from .warp import Lanes, dtype_of


@dataclass(frozen=True)
class Format:
    """A binary format: digits of the significand, least normal exponent, bits of infinity, sign bit."""

    digits: int
    least: int
    infinity: int
    sign: int


FORMATS = {
    "f16": Format(11, -14, 0x7C00, 1 << 15),
    "bf16": Format(8, -126, 0x7F80, 1 << 15),
    "tf32": Format(11, -126, 0xFF << 10, 1 << 18),
    "f32": Format(24, -126, 0x7F800000, 1 << 31),
    "f64": Format(53, -1022, 0x7FF << 52, 1 << 63),
    # The code above the largest finite one is infinity; e4m3 has none.
    "e4m3": Format(4, -6, 0x7F, 1 << 7),
    "e5m2": Format(3, -14, 0x7C, 1 << 7),
    # In these every code is finite, so the sign is one bit higher here than in a code.
    "e3m2": Format(3, -2, 0x20, 1 << 6),
    "e2m3": Format(4, 0, 0x20, 1 << 6),
    "e2m1": Format(2, 0, 0x08, 1 << 4),
}


def round_bits(value: Fraction, ptx_type: str, rounding: str, *, negative_zero: bool = False) -> int:
    """Return the bits of `value` rounded by rn, rz, rm, rp or rna; an exact zero takes the given sign."""
    form = FORMATS[ptx_type]
    negative = value < 0 or (value == 0 and negative_zero)
    sign = form.sign if negative else 0
    magnitude = abs(value)
    if magnitude == 0:
        return sign
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    quantum = max(exponent, form.least) - (form.digits - 1)
    count, rest = divmod(magnitude / Fraction(2) ** quantum, 1)
    half = Fraction(1, 2)
    away = {
        "rn": rest > half or (rest == half and count % 2 == 1),
        "rna": rest >= half,
        "rz": False,
        "rm": rest > 0 and negative,
        "rp": rest > 0 and not negative,
    }[rounding]
    # The hidden bit in `count` carries into the exponent field without further work.
    bits = int(count) + int(away) + ((quantum - form.least + form.digits - 1) << (form.digits - 1))
    if bits >= form.infinity:
        inward = rounding == "rz" or rounding == ("rp" if negative else "rm")
        bits = form.infinity - 1 if inward else form.infinity
    return sign | bits


def square_root(value: Fraction) -> Fraction:
    """Return a fraction that rounds like the square root in every format: more bits than any, the last one sticky."""
    scaled = value * (1 << 3000)
    whole = scaled.numerator // scaled.denominator
    root = isqrt(whole)
    sticky = root * root != whole or scaled.denominator != 1
    return Fraction(2 * root + int(sticky), 1 << 1501)


def lanes_from_bits(bits: list[int], ptx_type: str) -> Lanes:
    """Return 32 results given by their bits, in the NumPy type of `ptx_type`."""
    dtype = dtype_of(ptx_type)
    return np.array(bits, f"uint{8 * dtype.itemsize}").view(dtype)


def rounded(
    plain: Lanes,
    operands: list[Lanes],
    ptx_type: str,
    rounding: str,
    exact: Callable[..., tuple[Fraction, bool]],
    known: Lanes | None = None,
) -> Lanes:
    """Return `plain`, the result to nearest, replaced in finite cases by `exact(operands)`, rounded; not in the lanes
    `known`, where it is right.

    `exact` takes the operands as fractions, then their signs; it returns the value and the sign of a zero.
    If an operand or the result is not finite (a division by zero), the rounding has no effect.
    """
    bits = plain.view(f"uint{8 * plain.dtype.itemsize}").copy()
    for lane in range(len(plain)) if known is None else np.flatnonzero(~known):
        items: list[Any] = [Fraction(float(x[lane])) if np.isfinite(x[lane]) else None for x in operands]
        signs = [bool(np.signbit(x[lane])) for x in operands]
        if None in items:
            continue
        try:
            value, negative_zero = exact(*items, *signs)
        except (ZeroDivisionError, ValueError):
            continue
        bits[lane] = round_bits(value, ptx_type, rounding, negative_zero=negative_zero)
    return bits.view(plain.dtype)


def sum_sign(left_negative: bool, right_negative: bool, rounding: str) -> bool:
    """Return whether an exact zero sum is -0: both terms negative, or opposite ones when rounding down."""
    if left_negative == right_negative:
        return left_negative
    return rounding == "rm"
