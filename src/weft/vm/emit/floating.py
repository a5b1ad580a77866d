"""f32 and f64 arithmetic (PTX ISA 9.7.3). A NaN result is 0x7fffffff for f32, the first NaN input for f64."""

from collections.abc import Callable, Sequence

from weft.ptx.module import Instruction

from ..ir import Value, const, element, vec
from . import approx
from .emitter import Emitter
from .rounding import canonical, directed, flush, is_nan, quiet_f64, saturate, widen

_Emit = Callable[[Emitter, Instruction], None]
_CURRENT_ROUNDING = 4


def _inputs(e: Emitter, ins: Instruction, names: str) -> list[Value]:
    values = [e.src(ins, name) for name in names]
    kinds = [ins.operand_type(name) for name in names]
    values = [widen(e, x, kind) if kind in ("f16", "bf16") else x for x, kind in zip(values, kinds, strict=True)]
    return [flush(e, value) for value in values] if ins.has("ftz") else values


def _finish(e: Emitter, ins: Instruction, result: Value, inputs: list[Value]) -> None:
    """Flush, clamp and make NaN canonical, then write."""
    if ins.has("ftz"):
        result = flush(e, result)
    if ins.has("sat"):
        result = saturate(e, result)
    elif element(result.ty) == "double":
        result = quiet_f64(e, result, inputs)
    elif not e.hides_nan(ins):
        result = canonical(e, result)
    e.dst(ins, result)


def _rounded(e: Emitter, ins: Instruction, operation: str, args: Sequence[Value]) -> Value:
    rounding = ins.mods.get("rnd", "rn")
    if rounding != "rn":
        return directed(e.b, operation, rounding, args)
    if operation in ("fma", "sqrt"):
        return e.b.intrinsic(operation, args[0].ty, args)
    return e.b.op(operation, args[0], args[1])


def _arithmetic(operation: str, names: str) -> _Emit:
    def emit(e: Emitter, ins: Instruction) -> None:
        if ins.type == "f32x2":
            _pairs(e, ins, operation, names)
            return
        inputs = _inputs(e, ins, names)
        _finish(e, ins, _rounded(e, ins, operation, inputs), inputs)

    return emit


def _pairs(e: Emitter, ins: Instruction, operation: str, names: str) -> None:
    """Compute two floats in each register: twice as many lanes."""
    lanes = e.lanes
    values = [e.src(ins, name) for name in names]
    e.lanes = 2 * lanes
    try:
        floats = [e.b.cast("bitcast", value, e.ty("float")) for value in values]
        inputs = [flush(e, value) for value in floats] if ins.has("ftz") else floats
        result = _rounded(e, ins, operation, inputs)
        result = e.bits(canonical(e, flush(e, result) if ins.has("ftz") else result))
    finally:
        e.lanes = lanes
    e.dst(ins, e.b.cast("bitcast", result, e.ty("i64")))


def _div(e: Emitter, ins: Instruction) -> None:
    a, b = inputs = _inputs(e, ins, "ab")
    quotient = _rounded(e, ins, "fdiv", inputs)
    if ins.mods.get("accuracy") == "approx":
        # a * (1/b) where 1/b is flushed: for 2^126 < |b| < 2^128 zero, or NaN if a is infinite.
        magnitude = e.b.op("and", e.bits(b), e.const("i32", 0x7FFFFFFF))
        above = e.b.icmp("ugt", magnitude, e.const("i32", 0x7E800000))
        finite = e.b.icmp("ult", magnitude, e.const("i32", 0x7F800000))
        zero = e.b.intrinsic("copysign", b.ty, [e.const("float", 0.0), b])
        quotient = e.b.select(e.b.op("and", above, finite), e.b.op("fmul", a, zero), quotient)
    _finish(e, ins, quotient, inputs)


def _upper(e: Emitter, value: Value) -> Value:
    """Return a double without its lower 32 bits."""
    return e.as_float(e.b.op("and", e.bits(value), e.const("i64", -1 << 32)), "double")


def _gross(e: Emitter, ins: Instruction) -> None:
    """Compute rcp and rsqrt.approx.ftz.f64 on the upper halves of operand and result only."""
    a = flush(e, _upper(e, e.src(ins, "a")))
    below = a if ins.form.name == "rcp" else e.b.intrinsic("sqrt", a.ty, [a])
    result = flush(e, e.b.op("fdiv", e.const("double", 1.0), below))
    nan = e.as_float(e.const("i64", 0x7FFFFFFF << 32), "double")
    e.dst(ins, e.b.select(is_nan(e, result), nan, _upper(e, result)))


def _rcp(e: Emitter, ins: Instruction) -> None:
    if ins.has("approx") and ins.type == "f64":
        _gross(e, ins)
        return
    (a,) = inputs = _inputs(e, ins, "a")
    _finish(e, ins, _rounded(e, ins, "fdiv", [e.const(element(a.ty), 1.0), a]), inputs)


def _bit_operation(operation: str) -> _Emit:
    """Return the emitter of abs, which clears the sign, or neg, which flips it; NaN included."""

    def emit(e: Emitter, ins: Instruction) -> None:
        (a,) = _inputs(e, ins, "a")
        e.dst(ins, e.b.fneg(a) if operation == "neg" else e.b.intrinsic("fabs", a.ty, [a]))

    return emit


def _copysign(e: Emitter, ins: Instruction) -> None:
    # The sign is a's, the magnitude b's.
    a, b = _inputs(e, ins, "ab")
    e.dst(ins, e.b.intrinsic("copysign", a.ty, [b, a]))


def extreme(e: Emitter, ins: Instruction, name: str, a: Value, b: Value) -> Value:
    """Return min or max, NaN not yet canonical: -0 < +0; if one operand is NaN, the other one, or NaN with .NaN."""
    sign = e.b.op("xor", e.bits(a), e.bits(b))
    if ins.has("xorsign"):
        a, b = (e.b.intrinsic("fabs", x.ty, [x]) for x in (a, b))
    if ins.has("NaN"):
        result = e.b.intrinsic({"min": "minimum", "max": "maximum"}[name], a.ty, [a, b])
    else:
        at_once = a.ty == vec("float") and e.ranges(ins)
        result = _range(e, name, a, b) if at_once else _number_extreme(e, name, a, b)
    if ins.has("xorsign"):
        result = e.b.intrinsic("copysign", a.ty, [result, e.as_float(sign, element(a.ty))])
    return result


def _number_extreme(e: Emitter, name: str, a: Value, b: Value) -> Value:
    """Return LLVM's maximumnum, with all comparisons on the operands so that they do not wait for each other."""
    order, zeros = ("ogt", "and") if name == "max" else ("olt", "or")
    larger = e.b.select(e.b.fcmp(order, a, b), a, b)  # b if either is NaN
    chosen = e.b.select(e.b.fcmp("uno", b, b), a, larger)
    equal = e.as_float(e.b.op(zeros, e.bits(a), e.bits(b)), element(a.ty))  # decides between -0 and +0
    return e.b.select(e.b.fcmp("oeq", a, b), equal, chosen)


def _range(e: Emitter, name: str, a: Value, b: Value) -> Value:
    """Return the same by one instruction for 16 lanes, with the sign of the operand that is chosen."""
    half = vec("float", 16)
    halves = []
    for start in (0, 16):
        x, y = (e.b.shuffle(value, None, range(start, start + 16)) for value in (a, b))
        choice = const("i32", 4 if name == "min" else 5)
        args = [x, y, choice, const(half, 0.0), const("i16", -1), const("i32", _CURRENT_ROUNDING)]
        halves.append(e.b.call("llvm.x86.avx512.mask.range.ps.512", half, args))
    return e.b.shuffle(halves[0], halves[1], range(32))


def _extreme(name: str) -> _Emit:
    def emit(e: Emitter, ins: Instruction) -> None:
        a, b, *third = inputs = _inputs(e, ins, "ab" if ins.find("c") is None else "abc")
        result = extreme(e, ins, name, a, b)
        for c in third:
            result = extreme(e, ins, name, result, c)
        _finish(e, ins, result, inputs)

    return emit


def _testp(e: Emitter, ins: Instruction) -> None:
    a = e.src(ins, "a")
    scalar = element(a.ty)
    least = {"float": 2.0**-126, "double": 2.0**-1022}[scalar]
    magnitude = e.b.intrinsic("fabs", a.ty, [a])
    infinity, smallest, zero = (e.const(scalar, value) for value in (float("inf"), least, 0.0))
    match ins.mods["op"]:
        case "finite":
            result = e.b.fcmp("olt", magnitude, infinity)
        case "infinite":
            result = e.b.fcmp("oeq", magnitude, infinity)
        case "number":
            result = e.b.fcmp("ord", a, a)
        case "notanumber":
            result = is_nan(e, a)
        case "subnormal":
            small = e.b.fcmp("olt", magnitude, smallest)
            result = e.b.op("and", small, e.b.fcmp("ogt", magnitude, zero))
        case _:
            # normal; zero counts as normal.
            usual = e.b.op("and", e.b.fcmp("oge", magnitude, smallest), e.b.fcmp("olt", magnitude, infinity))
            result = e.b.op("or", usual, e.b.fcmp("oeq", magnitude, zero))
    e.dst(ins, result, "p")


def _rsqrt(e: Emitter, ins: Instruction) -> None:
    if ins.has("ftz") and ins.type == "f64":
        _gross(e, ins)
        return
    (a,) = inputs = _inputs(e, ins, "a")
    wide = e.b.cast("fpext", a, e.ty("double"))
    root = e.b.intrinsic("sqrt", wide.ty, [wide])
    result = e.b.op("fdiv", e.const("double", 1.0), root)
    _finish(e, ins, e.b.cast("fptrunc", result, a.ty), inputs)


def _in_double(function: Callable[[Emitter, Value], Value]) -> _Emit:
    """Return the emitter of an f32 function that is evaluated in double and rounded once."""

    def emit(e: Emitter, ins: Instruction) -> None:
        (a,) = inputs = _inputs(e, ins, "a")
        _finish(e, ins, e.b.cast("fptrunc", function(e, a), a.ty), inputs)

    return emit


EMIT: dict[str, _Emit] = {
    "add": _arithmetic("fadd", "ab"),
    "sub": _arithmetic("fsub", "ab"),
    "mul": _arithmetic("fmul", "ab"),
    "fma": _arithmetic("fma", "abc"),
    "mad": _arithmetic("fma", "abc"),
    "div": _div,
    "rcp": _rcp,
    "sqrt": _arithmetic("sqrt", "a"),
    "rsqrt": _rsqrt,
    "abs": _bit_operation("abs"),
    "neg": _bit_operation("neg"),
    "min": _extreme("min"),
    "max": _extreme("max"),
    "copysign": _copysign,
    "testp": _testp,
    "ex2": _in_double(approx.ex2),
    "lg2": _in_double(approx.lg2),
    "tanh": _in_double(approx.tanh),
    "sin": _in_double(approx.sin),
    "cos": _in_double(approx.cos),
}
