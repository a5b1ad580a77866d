"""cvt and cvt.pack (PTX ISA 9.7.9.21, 9.7.9.22): every number as a fraction, rounded once."""

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor, frexp, trunc
from typing import Any

import numpy as np

from weft.ptx.module import WIDTH, Instruction

from .exact import FORMATS, lanes_from_bits, round_bits
from .floating import flush
from .warp import Lanes, Warp

_NAN = {
    "f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "tf32": 0x7FFFFFFF, "e4m3": 0x7F, "e5m2": 0x7F,
}  # fmt: skip
_SMALL = {"e3m2": (6, 2, 3), "e2m3": (6, 3, 1), "e2m1": (4, 1, 1)}
"""Bits, bits of the fraction, bias."""
_INTEGRAL: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": trunc, "rmi": floor, "rpi": ceil}


def _is_integer(ptx_type: str) -> bool:
    return ptx_type[0] in "us"


def _bounds(ptx_type: str) -> tuple[int, int]:
    width = int(ptx_type[1:])
    return (0, 2**width - 1) if ptx_type[0] == "u" else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)


def _clamp(value: int, ptx_type: str) -> int:
    low, high = _bounds(ptx_type)
    return min(max(value, low), high)


def _integer(ins: Instruction, value: Any, dtype: str, atype: str) -> int:
    """Return one lane converted to an integer, as the bits of `dtype`."""
    mask = (1 << WIDTH[dtype]) - 1
    if _is_integer(atype):
        return (_clamp(int(value), dtype) if ins.has("sat") else int(value)) & mask
    if np.isnan(value):
        return 1 << (WIDTH[dtype] - 1) if atype == "f64" or WIDTH[dtype] == 64 else 0
    if np.isinf(value):
        return _bounds(dtype)[int(value > 0)] & mask
    return _clamp(_INTEGRAL[ins.mods["irnd"]](Fraction(float(value))), dtype) & mask


def _float(ins: Instruction, value: Any, dtype: str, rounding: str) -> int:
    """Return one lane (an int or a NumPy float) as the bits of a floating type."""
    form = FORMATS[dtype]
    if not isinstance(value, int) and np.isnan(value):
        if ins.has("sat"):
            return 0
        # Doubles keep sign and payload.
        return _NAN[dtype] if dtype != "f64" else int(np.float64(value).view(np.uint64)) | 1 << 51
    negative = bool(value < 0) if isinstance(value, int) else bool(np.signbit(value))
    if negative and (ins.has("relu") or ins.has("sat")):
        return 0
    if not isinstance(value, int) and np.isinf(value):
        if ins.has("sat"):
            return round_bits(Fraction(1), dtype, "rn")
        bits = form.infinity | (form.sign if negative else 0)
    else:
        exact = Fraction(value) if isinstance(value, int) else Fraction(float(value))
        if ins.has("irnd"):
            exact = Fraction(_INTEGRAL[ins.mods["irnd"]](exact))
        if ins.has("sat"):
            exact = min(exact, Fraction(1))
        bits = round_bits(exact, dtype, rounding, negative_zero=negative)
    if ins.has("satfinite") and bits & ~form.sign == form.infinity:
        bits -= 1
    # A tf32 is in the upper 19 bits of its register.
    return bits << 13 if dtype == "tf32" else bits


def _single(w: Warp, ins: Instruction) -> None:
    dtype, atype = ins.mods["dtype"], ins.mods["atype"]
    source = w.src(ins, "a")
    if ins.has("ftz") and atype == "f32":
        source = flush(source)
    if atype in ("f16", "bf16") and dtype == "f32" and not ins.has("sat"):
        # Every number of these types is one of f32: nothing is rounded.
        wide = source.astype(np.float32)
        nan = lanes_from_bits([_NAN["f32"]] * 32, "f32")
        w.dst(ins, np.where(np.isnan(wide), nan, flush(wide) if ins.has("ftz") else wide))
        return
    values = [int(x) for x in source] if _is_integer(atype) else list(source)
    if _is_integer(dtype):
        bits = [_integer(ins, x, dtype, atype) for x in values]
    else:
        bits = [_float(ins, x, dtype, ins.mods.get("rnd", "rn")) for x in values]
    result = lanes_from_bits(bits, dtype)
    w.dst(ins, flush(result) if ins.has("ftz") and dtype == "f32" else result)


def _small(ins: Instruction, value: Any, dtype: str) -> int:
    """Return one lane as a code of 4 or 6 bits; NaN is the largest number, infinity the largest of its sign."""
    form = FORMATS[dtype]
    if np.isnan(value):
        return form.infinity - 1
    bits = _float(ins, value, dtype, "rn")
    return bits % form.sign | (form.sign >> 1 if bits & form.sign else 0)


def _power_of_two(ins: Instruction, value: Any, rounding: str) -> int:
    """Return the ue8m0 of one lane: an exponent with bias 127, 255 is NaN; the sign has no meaning."""
    if np.isnan(value):
        return 255
    magnitude, largest = abs(float(value)), 254 if ins.has("satfinite") else 255
    if np.isinf(magnitude):
        return largest
    if magnitude <= 2.0**-127:
        return 0
    below = max(frexp(magnitude)[1] - 1, -127)  # frexp's fraction is in [1/2, 1)
    return min(below + 127 + (rounding == "rp" and magnitude != 2.0**below), largest)


def _pair(w: Warp, ins: Instruction) -> None:
    """Write two values to the upper (first) and lower half of the destination."""
    base, width = ins.mods["dtype"].removesuffix("x2"), WIDTH[ins.mods["dtype"]] // 2
    rounding = ins.mods.get("rnd", "rn")

    def code(value: Any) -> int:
        if base == "ue8m0":
            return _power_of_two(ins, value, rounding)
        return _small(ins, value, base) if base in _SMALL else _float(ins, value, base, rounding)

    bits = [code(upper) << width | code(lower) for upper, lower in zip(*_pair_sources(w, ins), strict=True)]
    w.dst(ins, lanes_from_bits(bits, ins.mods["dtype"]))


def _pair_sources(w: Warp, ins: Instruction) -> tuple[Lanes, Lanes]:
    atype = ins.mods["atype"]
    if atype == "f32":
        return w.src(ins, "a"), w.src(ins, "b")
    packed = w.src(ins, "a")
    width = WIDTH[atype] // 2
    fields = [packed >> packed.dtype.type(width), packed & packed.dtype.type(2**width - 1)]
    if atype == "f16x2":
        return fields[0].astype(np.uint16).view(np.float16), fields[1].astype(np.uint16).view(np.float16)
    if atype == "bf16x2":
        high, low = ((field.astype(np.uint32) << 16).view(np.float32) for field in fields)
        return high, low
    kind = atype.removesuffix("x2")
    high, low = (np.array([_value(int(code), kind) for code in field]) for field in fields)
    return high, low


def _value(code: int, kind: str) -> float:
    """Return the number that a code of an 8-bit or smaller type means."""
    if kind == "ue8m0":
        return 2.0 ** (code - 127) if code != 255 else float("nan")
    bits, fraction_bits, bias = {"e4m3": (8, 3, 7), "e5m2": (8, 2, 15), **_SMALL}[kind]
    magnitude = code & ((1 << (bits - 1)) - 1)
    sign = -1.0 if code >> (bits - 1) & 1 else 1.0
    exponent, fraction = magnitude >> fraction_bits, code & ((1 << fraction_bits) - 1)
    if kind == "e4m3" and code & 0x7F == 0x7F:
        return float("nan")
    if kind == "e5m2" and exponent == 31:
        return float("nan") if fraction else sign * float("inf")
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - fraction_bits)
    return sign * float(1 + fraction / (1 << fraction_bits)) * 2.0 ** (exponent - bias)


def _pack(w: Warp, ins: Instruction) -> None:
    kind = ins.mods["ctype"]
    width = int(kind[1:])
    mask = 2**width - 1
    upper = w.src(ins, "c") if ins.find("c") is not None else np.zeros(32, np.uint32)
    bits = [
        (int(c) << 2 * width | (_clamp(int(a), kind) & mask) << width | _clamp(int(b), kind) & mask) & 0xFFFFFFFF
        for a, b, c in zip(w.src(ins, "a"), w.src(ins, "b"), upper, strict=True)
    ]
    w.dst(ins, lanes_from_bits(bits, "b32"))


def _cvt(w: Warp, ins: Instruction) -> None:
    # A signalling NaN makes NumPy warn even if it is only tested for NaN.
    with np.errstate(all="ignore"):
        if ins.has("pack"):
            _pack(w, ins)
        elif ins.mods["dtype"].endswith("x2"):
            _pair(w, ins)
        else:
            _single(w, ins)


EXECUTE: dict[str, Callable[[Warp, Instruction], None]] = {"cvt": _cvt}
