"""f16 and bf16 arithmetic, single and in pairs (PTX ISA 9.7.4)."""

from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np

from weft.ptx.module import Instruction

from .exact import lanes_from_bits, round_bits, rounded, sum_sign
from .floating import canonical, extreme, flush, fused_plain, saturate
from .warp import Lanes, Warp

_Execute = Callable[[Warp, Instruction], None]
_Compute = Callable[[Instruction, str, list[Lanes]], Lanes]
_DTYPE = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def _unpacked(w: Warp, ins: Instruction, name: str) -> list[Lanes]:
    """Return an operand as one array, or the lower and the upper halves of a pair."""
    value = w.src(ins, name)
    if not ins.type.endswith("x2"):
        return [value]
    dtype = _DTYPE[ins.type.removesuffix("x2")]
    return [(value >> np.uint32(shift)).astype(np.uint16).view(dtype) for shift in (0, 16)]


def _lanewise(names: str, compute: _Compute) -> _Execute:
    def execute(w: Warp, ins: Instruction) -> None:
        base = ins.type.removesuffix("x2")
        parts = []
        with np.errstate(all="ignore"):
            for values in zip(*(_unpacked(w, ins, name) for name in names), strict=True):
                inputs = [flush(x) for x in values] if ins.has("ftz") else list(values)
                parts.append(compute(ins, base, inputs))
        if len(parts) == 1:
            w.dst(ins, parts[0])
        else:
            low, high = (part.view(np.uint16).astype(np.uint32) for part in parts)
            w.dst(ins, low | high << np.uint32(16))

    return execute


def _finish(ins: Instruction, result: Lanes) -> Lanes:
    if ins.has("ftz"):
        result = flush(result)
    if ins.has("sat"):
        return saturate(result)
    if ins.has("relu"):
        result = np.where(np.isnan(result) | (result > 0), result, result.dtype.type(0))
    return canonical(result)


def _binary(operation: Callable[[Lanes, Lanes], Lanes]) -> _Compute:
    def compute(ins: Instruction, base: str, inputs: list[Lanes]) -> Lanes:
        # One operation in f32 and one rounding give the same as a single rounding for 11 and 8 digits.
        wide = operation(inputs[0].astype(np.float32), inputs[1].astype(np.float32))
        return _finish(ins, wide.astype(_DTYPE[base]))

    return compute


def _fused(x: Fraction, y: Fraction, z: Fraction, sx: bool, sy: bool, sz: bool) -> tuple[Fraction, bool]:
    return x * y + z, sum_sign(sx != sy, sz, "rn")


def _fma(ins: Instruction, base: str, inputs: list[Lanes]) -> Lanes:
    plain = fused_plain(*inputs)
    return _finish(ins, rounded(plain, inputs, base, "rn", _fused))


def _extreme(name: str) -> _Compute:
    def compute(ins: Instruction, base: str, inputs: list[Lanes]) -> Lanes:
        return _finish(ins, extreme(ins, name, inputs[0], inputs[1]))

    return compute


def _in_double(function: Callable[[Lanes], Lanes]) -> _Compute:
    def compute(ins: Instruction, base: str, inputs: list[Lanes]) -> Lanes:
        wide = function(inputs[0].astype(np.float64))
        plain = wide.astype(_DTYPE[base])
        bits = [int(special) for special in plain.view(np.uint16)]
        for lane in np.flatnonzero(np.isfinite(wide)):
            negative = bool(np.signbit(wide[lane]))
            bits[lane] = round_bits(Fraction(float(wide[lane])), base, "rn", negative_zero=negative)
        return _finish(ins, lanes_from_bits(bits, base))

    return compute


def _neg(ins: Instruction, base: str, inputs: list[Lanes]) -> Lanes:
    return (inputs[0].view(np.uint16) ^ np.uint16(0x8000)).view(inputs[0].dtype)


def _abs(ins: Instruction, base: str, inputs: list[Lanes]) -> Lanes:
    return (inputs[0].view(np.uint16) & np.uint16(0x7FFF)).view(inputs[0].dtype)


EXECUTE: dict[str, _Execute] = {
    "add": _lanewise("ab", _binary(np.add)),
    "sub": _lanewise("ab", _binary(np.subtract)),
    "mul": _lanewise("ab", _binary(np.multiply)),
    "fma": _lanewise("abc", _fma),
    "min": _lanewise("ab", _extreme("min")),
    "max": _lanewise("ab", _extreme("max")),
    "tanh": _lanewise("a", _in_double(np.tanh)),
    "ex2": _lanewise("a", _in_double(np.exp2)),
    "neg": _lanewise("a", _neg),
    "abs": _lanewise("a", _abs),
}
