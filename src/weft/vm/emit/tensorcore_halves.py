"""fp8 `mma` where tensor cores have no instruction for it: two f16 instructions and an addition, as ptxas writes it.

Bytes 0 and 1 of every word of A and B are converted to f16 and multiplied, then bytes 2 and 3 (`mma_kind.half_kind`).
A register of four bytes becomes two registers of two halves in the same place of the fragment.
"""

from contextlib import AbstractContextManager
from typing import Protocol

from weft.vm.ir import LANES, Builder, Value, const, vec
from weft.vm.mma_kind import MmaKind

_REGISTER = 4 * LANES
_WORDS, _BYTE_PAIRS = vec("i32"), vec("i16", 2 * LANES)


class Operands(Protocol):
    """The operands of one instruction."""

    @property
    def b(self) -> Value: ...
    @property
    def c(self) -> Value: ...
    @property
    def d(self) -> Value: ...


def halves_body(b: Builder, kind: MmaKind, multiply: str, sets: AbstractContextManager[Operands]) -> None:
    """Write the instruction as two calls of the f16 function `multiply` and an addition."""
    a_registers, b_registers = kind.m * kind.k // _REGISTER, kind.k * kind.n // _REGISTER
    results = 2 if kind.d_type == "f16" else 4
    parts = [b.alloca(f"[{_REGISTER * a_registers} x i8]") for _ in range(2)]
    columns = [b.alloca(f"[{_REGISTER * b_registers} x i8]") for _ in range(2)]
    sums = [b.alloca(f"[{_REGISTER * results} x i8]") for _ in range(2)]
    _convert(b, b.param("a"), parts, a_registers, kind.a_type)
    with sets as here:
        _convert(b, here.b, columns, b_registers, kind.b_type)
        for number in range(results):
            b.store(const(_WORDS, 0), b.offset(sums[0], _REGISTER * number), align=64)
        b.call(multiply, "void", [sums[1], parts[0], columns[0], sums[0]])
        b.call(multiply, "void", [sums[0], parts[1], columns[1], sums[1]])
        for number in range(results):
            at = _REGISTER * number
            total = _added(b, b.offset(sums[0], at), b.offset(here.c, at), half=kind.d_type == "f16")
            b.store(total, b.offset(here.d, at), align=64)


def _convert(b: Builder, source: Value, into: list[Value], registers: int, name: str) -> None:
    """Convert registers of four bytes to f16: bytes 0 and 1 of every word to the first place, 2 and 3 to the other."""
    for number in range(registers):
        at = _REGISTER * number
        pairs = b.load(_BYTE_PAIRS, b.offset(source, at), align=64)
        low = _f16(b, b.op("shl", pairs, const(_BYTE_PAIRS, 8)), name)
        high = _f16(b, b.op("and", pairs, const(_BYTE_PAIRS, -256)), name)
        for half, place in enumerate(into):
            order = [at for lane in range(half, 2 * LANES, 2) for at in (lane, 2 * LANES + lane)]
            b.store(b.shuffle(low, high, order), b.offset(place, at), align=64)


def _f16(b: Builder, top: Value, name: str) -> Value:
    """Return fp8 codes in the upper bytes as the bits of an f16, exactly."""
    if name == "e5m2":
        return top
    ty = top.ty
    magnitude = b.op("lshr", b.op("and", top, const(ty, 0x7F00)), const(ty, 1))
    fields = b.op("or", b.op("and", top, const(ty, -32768)), magnitude)
    # The fields of an e4m3 in an f16 are 2^-8 of the value, as the bias is 15 instead of 7.
    floats = b.cast("fpext", b.cast("bitcast", fields, vec("half", 2 * LANES)), vec("float", 2 * LANES))
    scaled = b.op("fmul", floats, const(floats.ty, 256.0))
    bits = b.cast("bitcast", b.cast("fptrunc", scaled, vec("half", 2 * LANES)), ty)
    return b.select(b.icmp("eq", magnitude, const(ty, 0x7F << 7)), const(ty, 0x7FFF), bits)


def _added(b: Builder, x: Value, y: Value, *, half: bool) -> Value:
    """Return the sum of two registers of f32, or of pairs of f16, rounded to nearest even; NaN is canonical."""
    floats = vec("half", 2 * LANES) if half else vec("float")
    total = b.op("fadd", b.load(floats, x, align=64), b.load(floats, y, align=64))
    integers = _BYTE_PAIRS if half else _WORDS
    canonical = const(integers, 0x7FFF if half else 0x7FFFFFFF)
    return b.select(b.fcmp("uno", total, total), canonical, b.cast("bitcast", total, integers))
