"""Comparison and selection in NumPy (PTX ISA 9.7.6 and 9.7.7)."""

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from weft.ptx.module import WIDTH, Instruction, Pair

from .warp import Lanes, Warp, dtype_of

_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
}  # fmt: skip
_BOOL: dict[str, Callable[[Any, Any], Any]] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip


def _is_float(ptx_type: str) -> bool:
    return ptx_type in ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2")


def _values(w: Warp, ins: Instruction, name: str) -> list[Lanes]:
    """Return an operand as numbers: one array, or two for a packed type. Floats widened to f64, which is exact."""
    value = w.src(ins, name)
    if not _is_float(ins.type):
        return [value]
    parts = [value]
    if ins.type.endswith("x2"):
        kind = np.float16 if ins.type == "f16x2" else ml_dtypes.bfloat16
        parts = [part.astype(np.uint16).view(kind) for part in (value & 0xFFFF, value >> 16)]
    if ins.has("ftz"):
        parts = [_flush(part) for part in parts]
    with np.errstate(invalid="ignore"):
        return [part.astype(np.float64) for part in parts]


def _flush(value: Lanes) -> Lanes:
    smallest = np.finfo(value.dtype).tiny
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(value) < smallest, value.dtype.type(0), value)


def _compared(ins: Instruction, a: Lanes, b: Lanes) -> Lanes:
    name = ins.mods["cmp"]
    if not _is_float(ins.type):
        return np.asarray(_ORDER[name](a, b))
    unordered = np.isnan(a) | np.isnan(b)
    if name == "num":
        return ~unordered
    if name == "nan":
        return unordered
    with np.errstate(invalid="ignore"):
        if name in _ORDER:
            return np.asarray(_ORDER[name](a, b)) & ~unordered
        return np.asarray(_ORDER[name.removesuffix("u")](a, b)) | unordered


def _truths(w: Warp, ins: Instruction) -> list[Lanes]:
    return [_compared(ins, a, b) for a, b in zip(_values(w, ins, "a"), _values(w, ins, "b"), strict=True)]


def _combined(w: Warp, ins: Instruction, truth: Lanes) -> Lanes:
    return np.asarray(_BOOL[ins.mods["bool"]](truth, w.src(ins, "c"))) if ins.has("bool") else truth


def _setp(w: Warp, ins: Instruction) -> None:
    truths = _truths(w, ins)
    if len(truths) == 1:  # otherwise the second destination is the other half of a packed comparison
        truths.append(~truths[0])
    results = [_combined(w, ins, truth) for truth in truths]
    target = ins.operand("p")
    if isinstance(target, Pair):
        w.write(target.first, results[0], "pred", ins.line)
        w.write(target.second, results[1], "pred", ins.line)
    else:
        w.write(target, results[0], "pred", ins.line)


def _set(w: Warp, ins: Instruction) -> None:
    results = [_combined(w, ins, truth) for truth in _truths(w, ins)]
    dtype = ins.mods["dtype"]
    if len(results) == 1:
        w.dst(ins, _true_value(dtype, results[0]))
        return
    half = {"f16x2": "f16", "bf16x2": "bf16"}.get(dtype, "u16")
    low, high = (_true_value(half, result).astype(np.uint32) for result in results)
    w.dst(ins, low | high << np.uint32(16))


def _true_value(ptx_type: str, truth: Lanes) -> Lanes:
    """Return 1.0 or all ones where true, as bits."""
    bits = f"uint{WIDTH[ptx_type]}"
    if _is_float(ptx_type):
        return np.asarray(truth.astype(np.float32).astype(dtype_of(ptx_type)).view(bits))
    return np.where(truth, -1, 0).astype(bits)


def _bits(value: Lanes) -> Lanes:
    """Return the bits: a NaN must pass a selection unchanged."""
    return value.view(f"uint{8 * value.dtype.itemsize}")


def _selp(w: Warp, ins: Instruction) -> None:
    w.dst(ins, np.where(w.src(ins, "c"), _bits(w.src(ins, "a")), _bits(w.src(ins, "b"))))


def _slct(w: Warp, ins: Instruction) -> None:
    c = w.src(ins, "c")
    if ins.has("ftz"):
        c = _flush(c)
    with np.errstate(invalid="ignore"):
        chosen = c >= 0
    w.dst(ins, np.where(chosen, _bits(w.src(ins, "a")), _bits(w.src(ins, "b"))))


EXECUTE: dict[str, Callable[[Warp, Instruction], None]] = {
    "set": _set,
    "setp": _setp,
    "selp": _selp,
    "slct": _slct,
}
