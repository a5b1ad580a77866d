"""Integer arithmetic as LLVM IR (PTX ISA 9.7.1 and 9.7.2)."""

from collections.abc import Callable

from weft.ptx.module import WIDTH, Imm, Instruction

from ..ir import Value, const
from .emitter import Emitter
from .shifts import low_mask, resize, shift, shift_signed

CARRY = "%cc"
"""The carry flag of the condition-code register, an ordinary predicate register."""


def _signed(ptx_type: str) -> bool:
    return ptx_type[0] == "s"


def _packed(ins: Instruction) -> bool:
    return ins.type.endswith("x2")


def _source(e: Emitter, ins: Instruction, name: str) -> Value:
    """Return an operand; packed half words as a vector of twice as many i16."""
    value = e.src(ins, name)
    return e.b.cast("bitcast", value, f"<{2 * e.lanes} x i16>") if _packed(ins) else value


def _result(e: Emitter, ins: Instruction, value: Value) -> None:
    e.dst(ins, e.b.cast("bitcast", value, e.ty("i32")) if _packed(ins) else value)


def _add_sub(name: str) -> Callable[[Emitter, Instruction], None]:
    def emit(e: Emitter, ins: Instruction) -> None:
        a, b = _source(e, ins, "a"), _source(e, ins, "b")
        if ins.has("sat"):
            e.dst(ins, e.b.intrinsic(f"s{name}.sat", a.ty, [a, b]))
        elif ins.has("cc"):
            _with_carry(e, ins, name, a, b, None)
        else:
            _result(e, ins, e.b.op(name, a, b))

    return emit


def _add_sub_carry(name: str) -> Callable[[Emitter, Instruction], None]:
    def emit(e: Emitter, ins: Instruction) -> None:
        _with_carry(e, ins, name, e.src(ins, "a"), e.src(ins, "b"), e.get(CARRY))

    return emit


def _with_carry(e: Emitter, ins: Instruction, name: str, a: Value, b: Value, carry: Value | None) -> None:
    """Compute a ± b ± carry, and the carry or borrow out if the instruction requires it."""
    first = e.b.op(name, a, b)
    wrapped = e.b.icmp("ult", first if name == "add" else a, a if name == "add" else b)
    result = first
    if carry is not None:
        extra = e.b.cast("zext", carry, a.ty)
        result = e.b.op(name, first, extra)
        again = e.b.icmp("ult", result, first) if name == "add" else e.b.icmp("ult", first, extra)
        wrapped = e.b.op("or", wrapped, again)
    e.dst(ins, result)
    if ins.has("cc"):
        e.put(CARRY, wrapped)


def _widen(e: Emitter, value: Value, ptx_type: str) -> Value:
    return e.b.cast("sext" if _signed(ptx_type) else "zext", value, e.ty(f"i{2 * WIDTH[ptx_type]}"))


def _product(e: Emitter, ins: Instruction) -> Value:
    """Return the part of a·b that the instruction names: `lo`, `hi`, or all of it."""
    a, b = e.src(ins, "a"), e.src(ins, "b")
    mode = "wide" if ins.has("wide") else ins.mods.get("mode", "hi")
    if mode == "lo":
        return e.b.op("mul", a, b)
    whole = e.b.op("mul", _widen(e, a, ins.type), _widen(e, b, ins.type))
    if mode == "wide":
        return whole
    width = WIDTH[ins.type]
    high = e.b.op("lshr", whole, const(whole.ty, width))
    return e.b.cast("trunc", high, a.ty)


def _mul(e: Emitter, ins: Instruction) -> None:
    e.dst(ins, _product(e, ins))


def _plus_c(e: Emitter, ins: Instruction, product: Value) -> None:
    c = e.src(ins, "c")
    if ins.has("sat"):
        e.dst(ins, e.b.intrinsic("sadd.sat", c.ty, [product, c]))
    else:
        e.dst(ins, e.b.op("add", product, c))


def _mad(e: Emitter, ins: Instruction) -> None:
    product = _product(e, ins)
    if ins.has("cc"):
        _with_carry(e, ins, "add", product, e.src(ins, "c"), None)
    else:
        _plus_c(e, ins, product)


def _madc(e: Emitter, ins: Instruction) -> None:
    _with_carry(e, ins, "add", _product(e, ins), e.src(ins, "c"), e.get(CARRY))


def _product24(e: Emitter, ins: Instruction) -> Value:
    """Return bits 31..0 or 47..16 of the product of the low 24 bits."""
    right = "ashr" if _signed(ins.type) else "lshr"
    spare = e.const("i64", 40)

    def low24(name: str) -> Value:
        wide = e.b.cast("zext", e.src(ins, name), e.ty("i64"))
        return e.b.op(right, e.b.op("shl", wide, spare), spare)

    whole = e.b.op("mul", low24("a"), low24("b"))
    if ins.mods.get("mode", "hi") == "hi":
        whole = e.b.op("lshr", whole, e.const("i64", 16))
    return e.b.cast("trunc", whole, e.ty("i32"))


def _mul24(e: Emitter, ins: Instruction) -> None:
    e.dst(ins, _product24(e, ins))


def _mad24(e: Emitter, ins: Instruction) -> None:
    _plus_c(e, ins, _product24(e, ins))


def _sad(e: Emitter, ins: Instruction) -> None:
    a, b = e.src(ins, "a"), e.src(ins, "b")
    sign = "s" if _signed(ins.type) else "u"
    larger, smaller = e.b.intrinsic(f"{sign}max", a.ty, [a, b]), e.b.intrinsic(f"{sign}min", a.ty, [a, b])
    e.dst(ins, e.b.op("add", e.src(ins, "c"), e.b.op("sub", larger, smaller)))


def _quotient(e: Emitter, ins: Instruction, a: Value, b: Value) -> Value:
    """Return a / b for a divisor that is neither 0 nor an overflow.

    CPUs have no integer vector division, but a double is precise enough for a quotient of 32-bit integers to be
    truncated: one that is not an integer is at least 1/b away from any, far more than its last place.
    """
    sign = "s" if _signed(ins.type) else "u"
    if e.lanes == 1 or WIDTH[ins.type] > 32 or isinstance(ins.operand("b"), Imm):
        return e.b.op(f"{sign}div", a, b)
    double = e.ty("double")
    ratio = e.b.op("fdiv", e.b.cast(f"{sign}itofp", a, double), e.b.cast(f"{sign}itofp", b, double))
    return e.b.cast(f"fpto{sign}i", ratio, a.ty)


def _division(e: Emitter, ins: Instruction) -> tuple[Value, Value, Value]:
    """Return quotient and remainder, and whether the divisor is 0 (then they are of a division by 1)."""
    a, b = e.src(ins, "a"), e.src(ins, "b")
    by_zero = e.b.icmp("eq", b, const(b.ty, 0))
    unsafe = by_zero
    if _signed(ins.type):
        least = e.b.icmp("eq", a, const(a.ty, 1 << (WIDTH[ins.type] - 1)))
        unsafe = e.b.op("or", by_zero, e.b.op("and", least, e.b.icmp("eq", b, const(b.ty, -1))))
    # Dividing by 1 is also correct for the only overflow: the least integer over -1 wraps to itself.
    divisor = e.b.select(unsafe, const(b.ty, 1), b)
    quotient = _quotient(e, ins, a, divisor)
    return quotient, e.b.op("sub", a, e.b.op("mul", quotient, divisor)), by_zero


def _div(e: Emitter, ins: Instruction) -> None:
    quotient, _, by_zero = _division(e, ins)
    e.dst(ins, e.b.select(by_zero, const(quotient.ty, -1), quotient))


def _rem(e: Emitter, ins: Instruction) -> None:
    _, rest, by_zero = _division(e, ins)
    e.dst(ins, e.b.select(by_zero, e.src(ins, "a"), rest))


def _abs(e: Emitter, ins: Instruction) -> None:
    a = e.src(ins, "a")
    e.dst(ins, e.b.intrinsic("abs", a.ty, [a, const("i1", 0)]))


def _neg(e: Emitter, ins: Instruction) -> None:
    a = e.src(ins, "a")
    e.dst(ins, e.b.op("sub", const(a.ty, 0), a))


def _min_max(name: str) -> Callable[[Emitter, Instruction], None]:
    def emit(e: Emitter, ins: Instruction) -> None:
        a, b = _source(e, ins, "a"), _source(e, ins, "b")
        result = e.b.intrinsic(("s" if _signed(ins.type) else "u") + name, a.ty, [a, b])
        if ins.has("relu"):
            result = e.b.intrinsic("smax", a.ty, [result, const(a.ty, 0)])
        _result(e, ins, result)

    return emit


def _popc(e: Emitter, ins: Instruction) -> None:
    a = e.src(ins, "a")
    e.dst(ins, resize(e, e.b.intrinsic("ctpop", a.ty, [a]), 32))


def _leading_zeros(e: Emitter, a: Value) -> Value:
    return resize(e, e.b.intrinsic("ctlz", a.ty, [a, const("i1", 0)]), 32)


def _clz(e: Emitter, ins: Instruction) -> None:
    e.dst(ins, _leading_zeros(e, e.src(ins, "a")))


def _bfind(e: Emitter, ins: Instruction) -> None:
    a = e.src(ins, "a")
    top = WIDTH[ins.type] - 1
    if _signed(ins.type):
        a = e.b.op("xor", a, e.b.op("ashr", a, const(a.ty, top)))
    zeros = _leading_zeros(e, a)
    found = zeros if ins.has("shiftamt") else e.b.op("sub", e.const("i32", top), zeros)
    none = e.b.icmp("eq", a, const(a.ty, 0))
    e.dst(ins, e.b.select(none, e.const("i32", -1), found))


def _brev(e: Emitter, ins: Instruction) -> None:
    a = e.src(ins, "a")
    e.dst(ins, e.b.intrinsic("bitreverse", a.ty, [a]))


def _byte(e: Emitter, ins: Instruction, name: str) -> Value:
    """Return the low byte of a position or length operand."""
    return e.b.op("and", e.src(ins, name), e.const("i32", 0xFF))


def _bfe(e: Emitter, ins: Instruction) -> None:
    a, position, length = e.src(ins, "a"), _byte(e, ins, "b"), _byte(e, ins, "c")
    width = WIDTH[ins.type]
    if not _signed(ins.type):
        e.dst(ins, e.b.op("and", shift(e, "lshr", a, position), low_mask(e, width, length)))
        return
    # Beyond the top bit a field is filled with the sign of `a`, as an arithmetic shift does.
    field = shift_signed(e, a, position)
    spare = e.b.intrinsic("usub.sat", length.ty, [e.const("i32", width), length])
    field = shift_signed(e, shift(e, "shl", field, spare), spare)
    empty = e.b.icmp("eq", length, e.const("i32", 0))
    e.dst(ins, e.b.select(empty, const(a.ty, 0), field))


def _bfi(e: Emitter, ins: Instruction) -> None:
    a, b = e.src(ins, "a"), e.src(ins, "b")
    position, length = _byte(e, ins, "c"), _byte(e, ins, "e")
    mask = shift(e, "shl", low_mask(e, WIDTH[ins.type], length), position)
    kept = e.b.op("and", b, e.b.op("xor", mask, const(mask.ty, -1)))
    e.dst(ins, e.b.op("or", kept, e.b.op("and", shift(e, "shl", a, position), mask)))


def _position(e: Emitter, ins: Instruction, name: str) -> Value:
    """Return a bit position, which `.wrap` takes modulo 32."""
    value = e.src(ins, name)
    return e.b.op("and", value, e.const("i32", 31)) if ins.mods["mode"] == "wrap" else value


def _szext(e: Emitter, ins: Instruction) -> None:
    a, count = e.src(ins, "a"), _position(e, ins, "b")
    if not _signed(ins.type):
        e.dst(ins, e.b.op("and", a, low_mask(e, 32, count)))
        return
    spare = e.b.intrinsic("usub.sat", count.ty, [e.const("i32", 32), count])
    extended = shift_signed(e, shift(e, "shl", a, spare), spare)
    empty = e.b.icmp("eq", count, e.const("i32", 0))
    e.dst(ins, e.b.select(empty, e.const("i32", 0), extended))


def _bmsk(e: Emitter, ins: Instruction) -> None:
    start, count = _position(e, ins, "a"), _position(e, ins, "b")
    e.dst(ins, shift(e, "shl", low_mask(e, 32, count), start))


def _parts(e: Emitter, value: Value, ptx_type: str, width: int, first: int, count: int) -> list[Value]:
    """Return `count` fields of `width` bits from field `first` on, each extended to 32 bits."""
    right = "ashr" if _signed(ptx_type) else "lshr"
    fields = []
    for index in range(first, first + count):
        raised = e.b.op("shl", value, e.const("i32", 32 - width * (index + 1)))
        fields.append(e.b.op(right, raised, e.const("i32", 32 - width)))
    return fields


def _dot(e: Emitter, ins: Instruction, a: list[Value], b: list[Value]) -> None:
    total = e.src(ins, "c")
    for left, right in zip(a, b, strict=True):
        total = e.b.op("add", total, e.b.op("mul", left, right))
    e.dst(ins, total)


def _dp4a(e: Emitter, ins: Instruction) -> None:
    a, b = e.src(ins, "a"), e.src(ins, "b")
    _dot(e, ins, _parts(e, a, ins.mods["atype"], 8, 0, 4), _parts(e, b, ins.mods["btype"], 8, 0, 4))


def _dp2a(e: Emitter, ins: Instruction) -> None:
    a, b = e.src(ins, "a"), e.src(ins, "b")
    first = 2 if ins.mods["mode"] == "hi" else 0
    _dot(e, ins, _parts(e, a, ins.mods["atype"], 16, 0, 2), _parts(e, b, ins.mods["btype"], 8, first, 2))


EMIT: dict[str, Callable[[Emitter, Instruction], None]] = {
    "add": _add_sub("add"),
    "sub": _add_sub("sub"),
    "addc": _add_sub_carry("add"),
    "subc": _add_sub_carry("sub"),
    "mul": _mul,
    "mad": _mad,
    "madc": _madc,
    "mul24": _mul24,
    "mad24": _mad24,
    "sad": _sad,
    "div": _div,
    "rem": _rem,
    "abs": _abs,
    "neg": _neg,
    "min": _min_max("min"),
    "max": _min_max("max"),
    "popc": _popc,
    "clz": _clz,
    "bfind": _bfind,
    "brev": _brev,
    "bfe": _bfe,
    "bfi": _bfi,
    "szext": _szext,
    "bmsk": _bmsk,
    "dp4a": _dp4a,
    "dp2a": _dp2a,
}
