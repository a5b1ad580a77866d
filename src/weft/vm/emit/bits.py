"""Logic, shifts and byte permutes as LLVM IR (PTX ISA 9.7.8 and 9.7.9.7)."""

from collections.abc import Callable

from weft.core.errors import Unsupported
from weft.ptx.module import Imm, Instruction, Pair

from ..ir import Value, const
from .emitter import Emitter
from .shifts import shift, shift_signed

PERMUTES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
"""The generic selector that each mode of prmt means, by the two low bits of its control."""


def _logic(name: str) -> Callable[[Emitter, Instruction], None]:
    def emit(e: Emitter, ins: Instruction) -> None:
        e.dst(ins, e.b.op(name, e.src(ins, "a"), e.src(ins, "b")))

    return emit


def _not(e: Emitter, ins: Instruction) -> None:
    a = e.src(ins, "a")
    e.dst(ins, e.b.op("xor", a, const(a.ty, -1)))


def _cnot(e: Emitter, ins: Instruction) -> None:
    a = e.src(ins, "a")
    e.dst(ins, e.b.cast("zext", e.b.icmp("eq", a, const(a.ty, 0)), a.ty))


def _table(e: Emitter, table: int, inputs: list[Value]) -> Value:
    """Return the function of `inputs` whose truth table is `table`; the first input is the highest index bit."""
    rows = 1 << len(inputs)
    full = (1 << rows) - 1
    if table in (0, full):
        return e.const("i32", -1 if table else 0)
    first, rest = inputs[0], inputs[1:]
    half = full >> (rows // 2)
    off, on = table & half, table >> (rows // 2)
    if off == on:
        return _table(e, off, rest)
    if off == 0 and on == half:
        return first
    if off == 0:
        return e.b.op("and", first, _table(e, on, rest))
    if on == half:
        return e.b.op("or", first, _table(e, off, rest))
    if on == off ^ half:
        return e.b.op("xor", first, _table(e, off, rest))
    return e.b.op("xor", e.b.op("and", first, _table(e, on ^ off, rest)), _table(e, off, rest))


def _lop3(e: Emitter, ins: Instruction) -> None:
    lut = ins.operand("lut")
    if not isinstance(lut, Imm) or not 0 <= lut.value <= 255:
        raise Unsupported(f"lop3 with the table {lut}", ins.line)
    result = _table(e, lut.value, [e.src(ins, name) for name in "abc"])
    if not ins.has("bool"):
        e.dst(ins, result)
        return
    some = e.b.icmp("ne", result, e.const("i32", 0))
    predicate = e.b.op(ins.mods["bool"], some, e.src(ins, "q"))
    target = ins.operand("d")
    if not isinstance(target, Pair):
        raise Unsupported("lop3 with a boolean operator and one destination", ins.line)
    e.write(target.first, result, "b32", ins.line)
    e.write(target.second, predicate, "pred", ins.line)


def _shf(e: Emitter, ins: Instruction) -> None:
    low, high, amount = e.src(ins, "a"), e.src(ins, "b"), e.src(ins, "c")
    left = ins.mods["dir"] == "l"
    result = e.b.intrinsic("fshl" if left else "fshr", low.ty, [high, low, amount])
    if ins.mods["mode"] == "clamp":
        beyond = e.b.icmp("ugt", amount, e.const("i32", 31))
        result = e.b.select(beyond, low if left else high, result)
    e.dst(ins, result)


def _shl(e: Emitter, ins: Instruction) -> None:
    e.dst(ins, shift(e, "shl", e.src(ins, "a"), e.src(ins, "b")))


def _shr(e: Emitter, ins: Instruction) -> None:
    a, amount = e.src(ins, "a"), e.src(ins, "b")
    e.dst(ins, shift_signed(e, a, amount) if ins.type[0] == "s" else shift(e, "lshr", a, amount))


def _permute(e: Emitter, a: Value, b: Value, selector: int) -> Value:
    """Return prmt with a known selector: one byte shuffle, and a blend where signs are replicated."""
    count = 4 * e.lanes
    bytes_type = f"<{count} x i8>"
    left, right = e.b.cast("bitcast", a, bytes_type), e.b.cast("bitcast", b, bytes_type)
    picks = [(selector >> (4 * at)) & 0xF for at in range(4)]
    places = [(pick & 3) + (count if pick & 4 else 0) for pick in picks]
    chosen = e.b.shuffle(left, right, [4 * lane + place for lane in range(e.lanes) for place in places])
    if any(pick & 8 for pick in picks):
        signs = e.b.op("ashr", chosen, const(bytes_type, 7))
        chosen = e.b.shuffle(chosen, signs, [at + (count if picks[at % 4] & 8 else 0) for at in range(count)])
    return e.b.cast("bitcast", chosen, a.ty)


def _permute_by_value(e: Emitter, a: Value, b: Value, selector: Value) -> Value:
    """Return prmt with a selector known only at run time."""
    wide = e.ty("i64")
    high = e.b.op("shl", e.b.cast("zext", b, wide), e.const("i64", 32))
    both = e.b.op("or", e.b.cast("zext", a, wide), high)
    result = e.const("i32", 0)
    for at in range(4):
        pick = e.b.op("lshr", selector, e.const("i32", 4 * at))
        position = e.b.op("shl", e.b.op("and", pick, e.const("i32", 7)), e.const("i32", 3))
        byte = e.b.cast("trunc", e.b.op("lshr", both, e.b.cast("zext", position, wide)), e.ty("i8"))
        signed = e.b.icmp("ne", e.b.op("and", pick, e.const("i32", 8)), e.const("i32", 0))
        byte = e.b.select(signed, e.b.op("ashr", byte, e.const("i8", 7)), byte)
        placed = e.b.op("shl", e.b.cast("zext", byte, e.ty("i32")), e.const("i32", 8 * at))
        result = e.b.op("or", result, placed)
    return result


def _prmt(e: Emitter, ins: Instruction) -> None:
    a, b, control = e.src(ins, "a"), e.src(ins, "b"), ins.operand("c")
    selectors = PERMUTES.get(ins.mods.get("mode", ""))
    if isinstance(control, Imm):
        selector = control.value & 0xFFFF if selectors is None else selectors[control.value & 3]
        e.dst(ins, _permute(e, a, b, selector))
        return
    value = e.src(ins, "c")
    if selectors is not None:
        low = e.b.op("and", value, e.const("i32", 3))
        value = e.const("i32", selectors[3])
        for number in (2, 1, 0):
            here = e.b.icmp("eq", low, e.const("i32", number))
            value = e.b.select(here, e.const("i32", selectors[number]), value)
    e.dst(ins, _permute_by_value(e, a, b, value))


EMIT: dict[str, Callable[[Emitter, Instruction], None]] = {
    "and": _logic("and"),
    "or": _logic("or"),
    "xor": _logic("xor"),
    "not": _not,
    "cnot": _cnot,
    "lop3": _lop3,
    "shf": _shf,
    "shl": _shl,
    "shr": _shr,
    "prmt": _prmt,
}
