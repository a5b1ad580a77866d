"""f32 and f64 arithmetic (PTX ISA 9.7.3), by IEEE operations of NumPy and exact fractions."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from weft.ptx.module import Instruction

from .exact import rounded, square_root, sum_sign
from .warp import Lanes, Warp

_Execute = Callable[[Warp, Instruction], None]
_Exact = Callable[..., tuple[Fraction, bool]]


def bits_of(x: Lanes) -> Lanes:
    """Return the same bits as unsigned integers."""
    return x.view(f"uint{8 * x.dtype.itemsize}")


def flush(x: Lanes) -> Lanes:
    """Return subnormal numbers as zero of the same sign."""
    tiny = np.float32(2.0**-126) if x.dtype == np.dtype(ml_dtypes.bfloat16) else np.finfo(x.dtype).tiny
    return np.where(np.abs(x) < tiny, np.copysign(x.dtype.type(0), x), x)


def saturate(x: Lanes) -> Lanes:
    """Return the values clamped to [0, 1], NaN as +0."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    return np.where(np.isnan(x) | (x <= 0), zero, np.where(x > 1, one, x))


def canonical(x: Lanes) -> Lanes:
    """Return NaN with every bit set but the sign."""
    width = 8 * x.dtype.itemsize
    nan = np.array([(1 << (width - 1)) - 1], f"uint{width}").view(x.dtype)[0]
    return np.where(np.isnan(x), nan, x)


def quiet(result: Lanes, inputs: list[Lanes]) -> Lanes:
    """Return a double NaN as the first NaN input made quiet, or the default one."""
    bits = bits_of(result).copy()
    for lane in np.flatnonzero(np.isnan(result)):
        payloads = [int(bits_of(x)[lane]) for x in inputs if np.isnan(x[lane])]
        bits[lane] = payloads[0] | 1 << 51 if payloads else 0xFFF8 << 48
    return bits.view(np.float64)


def _inputs(w: Warp, ins: Instruction, names: str) -> list[Lanes]:
    values = [w.src(ins, name) for name in names]
    if ins.has("atype"):  # 16-bit operands of f32 arithmetic
        values = [value.astype(np.float32) for value in values]
    return [flush(value) for value in values] if ins.has("ftz") else values


def _finish(w: Warp, ins: Instruction, result: Lanes, inputs: list[Lanes]) -> None:
    if ins.has("ftz"):
        result = flush(result)
    if ins.has("sat"):
        result = saturate(result)
    else:
        result = quiet(result, inputs) if result.dtype == np.float64 else canonical(result)
    w.dst(ins, result)


def _exact_of(name: str, rounding: str) -> _Exact:
    """Return the exact value of an operation and the sign of a zero result, from fractions and signs."""

    def product(x: Fraction, y: Fraction, sx: bool, sy: bool) -> tuple[Fraction, bool]:
        return x * y, sx != sy

    def quotient(x: Fraction, y: Fraction, sx: bool, sy: bool) -> tuple[Fraction, bool]:
        return x / y, sx != sy

    def total(x: Fraction, y: Fraction, sx: bool, sy: bool) -> tuple[Fraction, bool]:
        return x + y, sum_sign(sx, sy, rounding)

    def difference(x: Fraction, y: Fraction, sx: bool, sy: bool) -> tuple[Fraction, bool]:
        return x - y, sum_sign(sx, not sy, rounding)

    def fused(x: Fraction, y: Fraction, z: Fraction, sx: bool, sy: bool, sz: bool) -> tuple[Fraction, bool]:
        return x * y + z, sum_sign(sx != sy, sz, rounding)

    def root(x: Fraction, sx: bool) -> tuple[Fraction, bool]:
        if x < 0:
            raise ValueError("the root of a negative number")
        return square_root(x), sx

    table: dict[str, _Exact] = {
        "add": total,
        "sub": difference,
        "mul": product,
        "div": quotient,
        "fma": fused,
        "mad": fused,
        "sqrt": root,
    }
    return table[name]


def fused_plain(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """Return a * b + c for operands that are not finite; not valid for others."""
    with np.errstate(all="ignore"):
        wide = [x.astype(np.float64) for x in (a, b, c)]
        return (np.where(np.isfinite(a) & np.isfinite(b), 0.0, wide[0] * wide[1]) + wide[2]).astype(a.dtype)


def _plain(name: str, inputs: list[Lanes]) -> Lanes:
    with np.errstate(all="ignore"):
        match name:
            case "add":
                result: Lanes = inputs[0] + inputs[1]
            case "sub":
                result = inputs[0] - inputs[1]
            case "mul":
                result = inputs[0] * inputs[1]
            case "div":
                result = inputs[0] / inputs[1]
            case "sqrt":
                result = np.sqrt(inputs[0])
            case _:
                result = fused_plain(inputs[0], inputs[1], inputs[2])
    return result


def _operation(w: Warp, ins: Instruction, name: str, inputs: list[Lanes]) -> Lanes:
    rounding = ins.mods.get("rnd", "rn")
    plain = _plain(name, inputs)
    known = None
    if rounding == "rn" and name not in ("fma", "mad"):
        return plain
    if rounding == "rn" and ins.type == "f32":
        # Where the sum is exact in double there is one rounding; elsewhere fractions are used.
        with np.errstate(all="ignore"):
            a, b, c = (x.astype(np.float64) for x in inputs)
            product, total = a * b, a * b + c
            known = (total - product == c) & (total - c == product)
            plain = np.where(known, total.astype(np.float32), plain)
    return rounded(plain, inputs, ins.type, rounding, _exact_of(name, rounding), known)


def _arithmetic(name: str, names: str) -> _Execute:
    def execute(w: Warp, ins: Instruction) -> None:
        if ins.type == "f32x2":
            _pairs(w, ins, name, names)
            return
        inputs = _inputs(w, ins, names)
        _finish(w, ins, _operation(w, ins, name, inputs), inputs)

    return execute


def _pairs(w: Warp, ins: Instruction, name: str, names: str) -> None:
    """Compute the lower and then the upper float of each register."""
    words = [np.ascontiguousarray(w.src(ins, each)).view(np.float32).reshape(32, 2) for each in names]
    single = replace(ins, mods={**ins.mods, "type": "f32"})
    result = np.zeros((32, 2), np.float32)
    for half in range(2):
        inputs = [np.ascontiguousarray(word[:, half]) for word in words]
        inputs = [flush(x) for x in inputs] if ins.has("ftz") else inputs
        value = _operation(w, single, name, inputs)
        result[:, half] = canonical(flush(value) if ins.has("ftz") else value)
    w.dst(ins, result.reshape(64).view(np.uint64))


def _div(w: Warp, ins: Instruction) -> None:
    a, b = inputs = _inputs(w, ins, "ab")
    quotient = _operation(w, ins, "div", inputs)
    if ins.mods.get("accuracy") == "approx":
        # 1/b is flushed to zero there: 0 * a.
        huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
        with np.errstate(all="ignore"):
            quotient = np.where(huge, a * np.copysign(np.float32(0), b), quotient)
    _finish(w, ins, quotient, inputs)


def _gross(w: Warp, ins: Instruction, function: Callable[[Lanes], Lanes]) -> None:
    """Apply `function` to a double of which only the upper 32 bits are read, and write only those of the result."""
    upper = np.uint64(0xFFFFFFFF << 32)
    a = flush((bits_of(w.src(ins, "a")) & upper).view(np.float64))
    with np.errstate(all="ignore"):
        result = flush(function(a))
    nan = np.full(32, 0x7FFFFFFF << 32, np.uint64)
    w.dst(ins, np.where(np.isnan(result), nan, bits_of(result) & upper).view(np.float64))


def _rcp(w: Warp, ins: Instruction) -> None:
    if ins.has("approx") and ins.type == "f64":
        _gross(w, ins, lambda x: np.float64(1) / x)
        return
    (a,) = inputs = _inputs(w, ins, "a")
    _finish(w, ins, _operation(w, ins, "div", [np.ones_like(a), a]), inputs)


def _neg(w: Warp, ins: Instruction) -> None:
    (a,) = _inputs(w, ins, "a")
    w.dst(ins, np.negative(a))


def _abs(w: Warp, ins: Instruction) -> None:
    (a,) = _inputs(w, ins, "a")
    w.dst(ins, np.abs(a))


def _copysign(w: Warp, ins: Instruction) -> None:
    a, b = _inputs(w, ins, "ab")
    w.dst(ins, np.copysign(b, a))


def extreme(ins: Instruction, name: str, a: Lanes, b: Lanes) -> Lanes:
    """Return min or max as in the manual's pseudo-code, lane by lane, with -0 < +0."""
    result = np.empty_like(a)
    for lane in range(len(a)):
        x, y = a[lane], b[lane]
        negative = np.signbit(x) != np.signbit(y)
        if ins.has("xorsign"):
            x, y = np.abs(x), np.abs(y)
        if np.isnan(x) or np.isnan(y):
            either: Any = y if np.isnan(x) else x
            value: Any = x.dtype.type("nan") if ins.has("NaN") else either
        else:
            x_first = (x, not np.signbit(x)) < (y, not np.signbit(y))
            value = x if x_first == (name == "min") else y
        if ins.has("xorsign") and not np.isnan(value):
            value = -np.abs(value) if negative else np.abs(value)
        result[lane] = value
    return result


def _extreme(name: str) -> _Execute:
    def execute(w: Warp, ins: Instruction) -> None:
        a, b, *third = inputs = _inputs(w, ins, "ab" if ins.find("c") is None else "abc")
        result = extreme(ins, name, a, b)
        for c in third:
            result = extreme(ins, name, result, c)
        _finish(w, ins, result, inputs)

    return execute


def _testp(w: Warp, ins: Instruction) -> None:
    a = w.src(ins, "a")
    subnormal = (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny)
    results = {
        "finite": np.isfinite(a),
        "infinite": np.isinf(a),
        "number": ~np.isnan(a),
        "notanumber": np.isnan(a),
        "normal": np.isfinite(a) & ~subnormal,
        "subnormal": subnormal,
    }
    w.dst(ins, results[ins.mods["op"]], "p")


def reciprocal_root(x: Lanes) -> Lanes:
    return np.float64(1) / np.sqrt(x)


def _rsqrt(w: Warp, ins: Instruction) -> None:
    if ins.has("ftz") and ins.type == "f64":
        _gross(w, ins, reciprocal_root)
    else:
        _in_double(reciprocal_root)(w, ins)


def _in_double(function: Callable[[Lanes], Lanes]) -> _Execute:
    """Evaluate in float64 and round once."""

    def execute(w: Warp, ins: Instruction) -> None:
        (a,) = inputs = _inputs(w, ins, "a")
        with np.errstate(all="ignore"):
            result = function(a.astype(np.float64)).astype(a.dtype)
        _finish(w, ins, result, inputs)

    return execute


EXECUTE: dict[str, _Execute] = {
    "add": _arithmetic("add", "ab"),
    "sub": _arithmetic("sub", "ab"),
    "mul": _arithmetic("mul", "ab"),
    "fma": _arithmetic("fma", "abc"),
    "mad": _arithmetic("mad", "abc"),
    "div": _div,
    "rcp": _rcp,
    "sqrt": _arithmetic("sqrt", "a"),
    "rsqrt": _rsqrt,
    "abs": _abs,
    "neg": _neg,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "copysign": _copysign,
    "testp": _testp,
    "ex2": _in_double(np.exp2),
    "lg2": _in_double(np.log2),
    "tanh": _in_double(np.tanh),
    "sin": _in_double(np.sin),
    "cos": _in_double(np.cos),
}
