"""f16 and bf16 arithmetic, single and in pairs (PTX ISA 9.7.4). One rounding per operation, NaN is 0x7fff.

A pair is computed as twice as many lanes. Sums and products of two halves may be rounded to f32 first
(24 digits are two more than twice 11); fma uses round to odd.
"""

from collections.abc import Callable

from weft.ptx.module import Instruction

from ..ir import Value, vec
from . import approx
from .emitter import Emitter
from .floating import extreme
from .rounding import canonical, flush, narrow, odd_sum, relu, saturate, widen

_Emit = Callable[[Emitter, Instruction], None]
_Compute = Callable[[Emitter, Instruction, str, list[Value]], Value]
"""Operands as floats and the base type, f16 or bf16 → the result as half or bf16 bits."""


def _lanewise(e: Emitter, ins: Instruction, names: str, compute: Callable[[str, list[Value]], Value]) -> None:
    """Unpack the operands to half (f16) or i16 bits (bf16), compute, pack and write."""
    base = ins.type.removesuffix("x2")
    values = [e.src(ins, name) for name in names]
    if base == ins.type:
        e.dst(ins, compute(base, values))
        return
    lanes = e.lanes
    e.lanes = 2 * lanes
    try:
        scalar = "half" if base == "f16" else "i16"
        result = compute(base, [e.b.cast("bitcast", value, e.ty(scalar)) for value in values])
    finally:
        e.lanes = lanes
    e.dst(ins, e.b.cast("bitcast", result, vec("i32", lanes)))


def _flush_bf16(e: Emitter, bits: Value) -> Value:
    small = e.b.icmp("eq", e.b.op("and", bits, e.const("i16", 0x7F80)), e.const("i16", 0))
    return e.b.select(small, e.b.op("and", bits, e.const("i16", 0x8000)), bits)


def _arithmetic(names: str, compute: _Compute) -> _Emit:
    """Widen, compute, and apply flushing, clamping and canonical NaN."""

    def emit(e: Emitter, ins: Instruction) -> None:
        def lanes(base: str, values: list[Value]) -> Value:
            flushed = flush if base == "f16" else _flush_bf16
            if ins.has("ftz"):
                values = [flushed(e, value) for value in values]
            result = compute(e, ins, base, [widen(e, value, base) for value in values])
            if ins.has("ftz"):
                result = flushed(e, result)
            if base == "bf16":
                return result
            if ins.has("sat"):
                return saturate(e, result)
            return canonical(e, relu(e, result) if ins.has("relu") else result)

        _lanewise(e, ins, names, lanes)

    return emit


def _binary(operation: str) -> _Compute:
    def compute(e: Emitter, ins: Instruction, base: str, values: list[Value]) -> Value:
        return narrow(e, e.b.op(operation, values[0], values[1]), base, "rn")

    return compute


def _fma(e: Emitter, ins: Instruction, base: str, values: list[Value]) -> Value:
    # The product of two f16 is exact in f32; that of two bf16 may leave its range, so it is taken in f64.
    if base == "bf16":
        values = [e.b.cast("fpext", value, e.ty("double")) for value in values]
    a, b, c = values
    total = odd_sum(e, e.b.op("fmul", a, b), c)
    if base == "bf16" and ins.has("relu"):
        total = relu(e, total)
    return narrow(e, total, base, "rn")


def _extreme(name: str) -> _Compute:
    def compute(e: Emitter, ins: Instruction, base: str, values: list[Value]) -> Value:
        return narrow(e, extreme(e, ins, name, values[0], values[1]), base, "rn")

    return compute


def _in_double(function: Callable[[Emitter, Value], Value]) -> _Compute:
    def compute(e: Emitter, ins: Instruction, base: str, values: list[Value]) -> Value:
        return narrow(e, function(e, values[0]), base, "rn")

    return compute


def _bit_operation(operation: str, mask: int) -> _Emit:
    """Return the emitter of neg, which flips the sign bit, or abs, which clears it; NaN included."""

    def emit(e: Emitter, ins: Instruction) -> None:
        def lanes(base: str, values: list[Value]) -> Value:
            value = flush(e, values[0]) if ins.has("ftz") else values[0]
            return e.b.cast("bitcast", e.b.op(operation, e.bits(value), e.const("i16", mask)), values[0].ty)

        _lanewise(e, ins, "a", lanes)

    return emit


EMIT: dict[str, _Emit] = {
    "add": _arithmetic("ab", _binary("fadd")),
    "sub": _arithmetic("ab", _binary("fsub")),
    "mul": _arithmetic("ab", _binary("fmul")),
    "fma": _arithmetic("abc", _fma),
    "min": _arithmetic("ab", _extreme("min")),
    "max": _arithmetic("ab", _extreme("max")),
    "tanh": _arithmetic("a", _in_double(approx.tanh)),
    "ex2": _arithmetic("a", _in_double(approx.ex2)),
    "neg": _bit_operation("xor", 0x8000),
    "abs": _bit_operation("and", 0x7FFF),
}
