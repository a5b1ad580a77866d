"""Floating-point formats in LLVM IR: flushing, clamping, canonical NaN, and narrowing with any rounding.

Narrowing uses round to odd: a value that does not fit is replaced by the neighbour whose last bit is set.
If the intermediate format has two bits more than the target, a second rounding in any mode then gives
the same result as a single rounding of the exact value.
"""

from collections.abc import Sequence

from ..ir import Builder, Value, element, lanes_of, vec
from .emitter import Emitter

_WIDTH = {"half": 16, "float": 32, "double": 64}
_EXPONENT = {"half": 0x7C00, "float": 0x7F800000, "double": 0x7FF0000000000000}
_CANONICAL = {"half": 0x7FFF, "float": 0x7FFFFFFF}
_QUIET_F64 = 0x0008000000000000
_INVALID_F64 = 0xFFF8000000000000
"""The NaN that an invalid operation on doubles produces."""
_MODE = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
"""The numbers of llvm.set.rounding."""


def integer_of(e: Emitter, scalar: str, value: int) -> Value:
    """Return an integer constant as wide as the float type `scalar`."""
    return e.const(f"i{_WIDTH[scalar]}", value)


def is_nan(e: Emitter, x: Value) -> Value:
    return e.b.fcmp("uno", x, x)


def canonical(e: Emitter, x: Value) -> Value:
    """Return every NaN of a half or float as PTX's canonical one.

    Selected among integers: LLVM treats all float NaNs as equal and would drop the selection.
    """
    scalar = element(x.ty)
    return e.as_float(e.b.select(is_nan(e, x), integer_of(e, scalar, _CANONICAL[scalar]), e.bits(x)), scalar)


def quiet_f64(e: Emitter, result: Value, inputs: list[Value]) -> Value:
    """Return a double result whose NaN is the first NaN input, made quiet (payloads are kept)."""
    nan = e.const("i64", _INVALID_F64)
    for x in reversed(inputs):
        nan = e.b.select(is_nan(e, x), e.b.op("or", e.bits(x), e.const("i64", _QUIET_F64)), nan)
    return e.as_float(e.b.select(is_nan(e, result), nan, e.bits(result)), "double")


def flush(e: Emitter, x: Value) -> Value:
    """Return subnormal numbers as zero of the same sign."""
    scalar = element(x.ty)
    bits = e.bits(x)
    exponent = e.b.op("and", bits, integer_of(e, scalar, _EXPONENT[scalar]))
    zero = e.b.op("and", bits, integer_of(e, scalar, 1 << (_WIDTH[scalar] - 1)))
    small = e.b.icmp("eq", exponent, integer_of(e, scalar, 0))
    return e.as_float(e.b.select(small, zero, bits), scalar)


def saturate(e: Emitter, x: Value) -> Value:
    """Return the value clamped to [0, 1]; NaN becomes +0."""
    scalar = element(x.ty)
    low = e.b.select(e.b.fcmp("ogt", x, e.const(scalar, 0.0)), x, e.const(scalar, 0.0))
    return e.b.select(e.b.fcmp("ogt", low, e.const(scalar, 1.0)), e.const(scalar, 1.0), low)


def relu(e: Emitter, x: Value) -> Value:
    """Return negative numbers and -0 as +0; NaN stays."""
    scalar = element(x.ty)
    return e.b.select(e.b.fcmp("ugt", x, e.const(scalar, 0.0)), x, e.const(scalar, 0.0))


def two_sum(e: Emitter, a: Value, b: Value) -> tuple[Value, Value]:
    """Return a + b rounded, and the exact rounding error (Knuth). The error is NaN if the sum is not finite."""
    op = e.b.op
    s = op("fadd", a, b)
    of_b = op("fsub", s, a)
    of_a = op("fsub", s, of_b)
    return s, op("fadd", op("fsub", a, of_a), op("fsub", b, of_b))


def step(e: Emitter, x: Value, up: Value, down: Value) -> Value:
    """Return the next number above or below in the lanes where the flag is set (never both)."""
    scalar = element(x.ty)
    bits = e.bits(x)
    negative = e.b.icmp("slt", bits, integer_of(e, scalar, 0))
    grow = e.b.op("xor", up, negative)
    delta = e.b.select(grow, integer_of(e, scalar, 1), integer_of(e, scalar, -1))
    moved = e.b.op("add", bits, delta)
    return e.as_float(e.b.select(e.b.op("or", up, down), moved, bits), scalar)


def to_odd(e: Emitter, x: Value, above: Value, below: Value) -> Value:
    """Return `x` rounded to odd, where the exact value is `above` or `below` x (neither if x is exact)."""
    scalar = element(x.ty)
    last = e.b.op("and", e.bits(x), integer_of(e, scalar, 1))
    even = e.b.icmp("eq", last, integer_of(e, scalar, 0))
    return step(e, x, e.b.op("and", above, even), e.b.op("and", below, even))


def odd_sum(e: Emitter, a: Value, b: Value) -> Value:
    """Return a + b rounded to odd."""
    s, error = two_sum(e, a, b)
    zero = e.const(element(s.ty), 0.0)
    return to_odd(e, s, e.b.fcmp("ogt", error, zero), e.b.fcmp("olt", error, zero))


def narrow(e: Emitter, x: Value, to: str, rounding: str) -> Value:
    """Return a float or double as PTX type `to` (f32, f16, bf16 as bits), rounded once by rn, rz, rm or rp."""
    scalar = element(x.ty)
    if to == "bf16":
        return _bf16(e, x if scalar == "float" else _odd_float(e, x), rounding)
    if to == "f16" and scalar == "double":
        x = _odd_float(e, x)
    return _fptrunc(e, x, "half" if to == "f16" else "float", rounding)


def widen(e: Emitter, x: Value, ptx_type: str) -> Value:
    """Return an f16 (half) or bf16 (i16 bits) as float, exactly."""
    if ptx_type == "bf16":
        high = e.b.op("shl", e.b.cast("zext", x, e.ty("i32")), e.const("i32", 16))
        return e.as_float(high, "float")
    return e.b.cast("fpext", x, e.ty("float"))


def _fptrunc(e: Emitter, x: Value, scalar: str, rounding: str) -> Value:
    near = e.b.cast("fptrunc", x, vec(scalar, lanes_of(x.ty)))
    if rounding == "rn":
        return near
    above, below = _side(e, x, near)
    no = e.const("i1", 0)
    if rounding == "rp":
        return step(e, near, above, no)
    if rounding == "rm":
        return step(e, near, no, below)
    negative = e.b.fcmp("olt", x, e.const(element(x.ty), 0.0))
    positive = e.b.fcmp("ogt", x, e.const(element(x.ty), 0.0))
    return step(e, near, e.b.op("and", above, negative), e.b.op("and", below, positive))


def _side(e: Emitter, x: Value, near: Value) -> tuple[Value, Value]:
    """Return whether x is above and whether it is below its rounded value."""
    back = e.b.cast("fpext", near, x.ty)
    return e.b.fcmp("ogt", x, back), e.b.fcmp("olt", x, back)


def _odd_float(e: Emitter, x: Value) -> Value:
    near = e.b.cast("fptrunc", x, e.ty("float"))
    above, below = _side(e, x, near)
    return to_odd(e, near, above, below)


def _bf16(e: Emitter, x: Value, rounding: str) -> Value:
    """Return the upper half of a float, rounded in integers; NaN is 0x7fff."""
    op = e.b.op
    bits = e.bits(x)
    if rounding == "rn":
        last = op("and", op("lshr", bits, e.const("i32", 16)), e.const("i32", 1))
        bits = op("add", bits, op("add", last, e.const("i32", 0x7FFF)))
    elif rounding != "rz":
        # A carry out of the lower half increases the magnitude: wanted below zero for rm, above zero for rp.
        away = e.b.icmp("slt" if rounding == "rm" else "sge", bits, e.const("i32", 0))
        bits = op("add", bits, e.b.select(away, e.const("i32", 0xFFFF), e.const("i32", 0)))
    high = e.b.cast("trunc", op("lshr", bits, e.const("i32", 16)), e.ty("i16"))
    return e.b.select(is_nan(e, x), e.const("i16", 0x7FFF), high)


def directed(b: Builder, operation: str, rounding: str, args: Sequence[Value]) -> Value:
    """Return `fadd`, `fsub`, `fmul`, `fdiv`, `fma` or `sqrt` of floats or doubles, rounded by rz, rm or rp.

    The processor computes it in that rounding mode, in a function that is never inlined, so that no other arithmetic
    is scheduled while the mode is changed.
    """
    ty = args[0].ty
    scalar = {"float": "f32", "double": "f64"}[element(ty)]
    suffix = scalar if lanes_of(ty) == 1 else f"v{lanes_of(ty)}{scalar}"
    name = f"weft.{operation}.{rounding}.{suffix}"
    constrained = f"llvm.experimental.constrained.{operation}.{suffix}"
    types = ", ".join([ty] * len(args))
    params = ", ".join(f"{ty} %a{at}" for at in range(len(args)))
    declarations = b.declarations
    declarations.setdefault("llvm.set.rounding", "declare void @llvm.set.rounding(i32)")
    declarations.setdefault(constrained, f"declare {ty} @{constrained}({types}, metadata, metadata)")
    declarations.setdefault(
        name,
        f"define internal {ty} @{name}({params}) noinline strictfp {{\n"
        f"  call void @llvm.set.rounding(i32 {_MODE[rounding]}) strictfp\n"
        f"  %r = call {ty} @{constrained}({params}, "
        'metadata !"round.dynamic", metadata !"fpexcept.strict") strictfp\n'
        f"  call void @llvm.set.rounding(i32 {_MODE['rn']}) strictfp\n"
        f"  ret {ty} %r\n}}",
    )
    return b.call(name, ty, args)
