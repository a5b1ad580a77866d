"""Comparison and selection as LLVM IR (PTX ISA 9.7.6 and 9.7.7)."""

from collections.abc import Callable

from weft.ptx.module import WIDTH, Instruction, Pair

from ..ir import Value, const, element
from .emitter import Emitter

_FLOAT_PREDICATES = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
    "num": "ord", "nan": "uno",
}  # fmt: skip
_UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
_EXPONENT = {"float": 0x7F800000, "half": 0x7C00}
_ONE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def _flush(e: Emitter, value: Value) -> Value:
    """Return subnormals as zero. Its sign does not matter to a comparison, so it is dropped."""
    bits = e.bits(value)
    exponent = e.b.op("and", bits, const(bits.ty, _EXPONENT[element(value.ty)]))
    tiny = e.b.icmp("eq", exponent, const(bits.ty, 0))
    return e.b.select(tiny, const(value.ty, 0.0), value)


def _widen_bf16(e: Emitter, bits: Value) -> Value:
    """Return bf16 bits as the float of the same value."""
    wide = e.b.op("shl", e.b.cast("zext", bits, e.ty("i32")), e.const("i32", 16))
    return e.as_float(wide, "float")


def _comparable(e: Emitter, ins: Instruction, name: str) -> list[Value]:
    """Return an operand as values LLVM can compare: one, or the low and the high half of a packed one."""
    value = e.src(ins, name)
    parts = [value]
    if ins.type.endswith("x2"):
        high = e.b.op("lshr", value, e.const("i32", 16))
        parts = [e.b.cast("trunc", part, e.ty("i16")) for part in (value, high)]
    if ins.type == "f16x2":
        parts = [e.as_float(part, "half") for part in parts]
    elif ins.type in ("bf16", "bf16x2"):
        parts = [_widen_bf16(e, part) for part in parts]
    return [_flush(e, part) for part in parts] if ins.has("ftz") else parts


def _is_float(ptx_type: str) -> bool:
    return ptx_type[0] == "f" or ptx_type.startswith("bf")


def _compare(e: Emitter, ins: Instruction) -> list[Value]:
    """Return the comparison itself, before any boolean operator: one i1 per half."""
    operator = ins.mods["cmp"]
    pairs = zip(_comparable(e, ins, "a"), _comparable(e, ins, "b"), strict=True)
    if _is_float(ins.type):
        return [e.b.fcmp(_FLOAT_PREDICATES[operator], a, b) for a, b in pairs]
    sign = "s" if ins.type[0] == "s" else "u"
    predicate = operator if operator in ("eq", "ne") else _UNSIGNED.get(operator, sign + operator)
    return [e.b.icmp(predicate, a, b) for a, b in pairs]


def _combine(e: Emitter, ins: Instruction, truth: Value) -> Value:
    """Return `truth` combined with the predicate operand, if there is one."""
    return e.b.op(ins.mods["bool"], truth, e.src(ins, "c")) if ins.has("bool") else truth


def _setp(e: Emitter, ins: Instruction) -> None:
    truths = _compare(e, ins)
    target = ins.operand("p")
    first = _combine(e, ins, truths[0])
    if isinstance(target, Pair):
        other = truths[1] if len(truths) == 2 else e.b.op("xor", truths[0], e.const("i1", 1))
        second = _combine(e, ins, other)
        e.write(target.first, first, "pred", ins.line)
        e.write(target.second, second, "pred", ins.line)
    else:
        e.write(target, first, "pred", ins.line)


def _set(e: Emitter, ins: Instruction) -> None:
    truths = [_combine(e, ins, truth) for truth in _compare(e, ins)]
    dtype = ins.mods["dtype"]
    width = WIDTH[dtype] // len(truths)
    one = _ONE[dtype.removesuffix("x2")] if _is_float(dtype) else -1
    scalar = f"i{width}"
    parts = [e.b.select(truth, e.const(scalar, one), e.const(scalar, 0)) for truth in truths]
    result = parts[0]
    if len(parts) == 2:
        low, high = (e.b.cast("zext", part, e.ty("i32")) for part in parts)
        result = e.b.op("or", low, e.b.op("shl", high, e.const("i32", 16)))
    e.dst(ins, result)


def _selp(e: Emitter, ins: Instruction) -> None:
    # Selected as bits, so that a NaN passes unchanged.
    e.dst(ins, e.b.select(e.src(ins, "c"), e.bits(e.src(ins, "a")), e.bits(e.src(ins, "b"))))


def _slct(e: Emitter, ins: Instruction) -> None:
    c = e.src(ins, "c")
    if ins.type == "f32":
        c = _flush(e, c) if ins.has("ftz") else c
        chosen = e.b.fcmp("oge", c, const(c.ty, 0.0))
    else:
        chosen = e.b.icmp("sge", c, const(c.ty, 0))
    e.dst(ins, e.b.select(chosen, e.bits(e.src(ins, "a")), e.bits(e.src(ins, "b"))))


EMIT: dict[str, Callable[[Emitter, Instruction], None]] = {
    "set": _set,
    "setp": _setp,
    "selp": _selp,
    "slct": _slct,
}
