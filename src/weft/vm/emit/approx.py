"""Elementary functions of floats, in double and without a math library; `.approx` rounds them once.

Relative errors are below 2^-45, so the rounded f32 is the correctly rounded value but for about one operand
in a million, and then off by one unit in the last place.
"""

from collections.abc import Sequence
from math import factorial, pi

from ..ir import Value
from .emitter import Emitter

# (2^x - 1) / x on [-1/2, 1/2], Chebyshev interpolation, relative error 2^-49.
_EX2 = tuple(map(float.fromhex, (
    "0x1.62e42fefa39f7p-1", "0x1.ebfbdff82c590p-3", "0x1.c6b08d7044119p-5", "0x1.3b2ab6fba385fp-7",
    "0x1.5d87fe908f88ap-10", "0x1.4309130378460p-13", "0x1.ffcb76789860fp-17", "0x1.62bfe46117445p-20",
    "0x1.b6571de2f2351p-24", "0x1.e5e9f548e5726p-28",
)))  # fmt: skip
# log2((1 + s) / (1 - s)) / s as a polynomial in s^2 on [0, 0.0295], relative error 2^-55.
_LG2 = tuple(map(float.fromhex, (
    "0x1.71547652b82fep+1", "0x1.ec709dc3a03fcp-1", "0x1.2776c50ef9fdbp-1", "0x1.a61762a7062fap-2",
    "0x1.484b1449afa11p-2", "0x1.0c9a5930cf5a2p-2", "0x1.c6a2b85588f36p-3", "0x1.877127336453bp-3",
    "0x1.87f2d23e5dd47p-3",
)))  # fmt: skip
# sin and cos of 2 pi t for |t| <= 1/8, as polynomials in t^2; the next Taylor term is below 2^-53.
_SIN = tuple((-1) ** k * (2 * pi) ** (2 * k + 1) / factorial(2 * k + 1) for k in range(9))
_COS = tuple((-1) ** k * (2 * pi) ** (2 * k) / factorial(2 * k) for k in range(9))
_MAGIC = 6755399441055744.0
"""1.5 * 2^52: adding it rounds to an integer and leaves that integer in the low bits."""

_TURN_BITS = "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458"
"""1 / (2 pi) as a binary fraction, in hexadecimal digits."""
_TURN = tuple(int(_TURN_BITS[6 * k : 6 * k + 6], 16) * 2.0 ** (-24 * (k + 1)) for k in range(9))
"""The same in pieces of 24 bits: the product of a float and a piece is exact in a double."""


def _polynomial(e: Emitter, x: Value, coefficients: Sequence[float]) -> Value:
    result = e.const("double", coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = e.b.intrinsic("fma", x.ty, [result, x, e.const("double", c)])
    return result


def _clamp(e: Emitter, x: Value, limit: float) -> Value:
    """Return a float clamped into [-limit, limit]; NaN stays."""
    low = e.b.select(e.b.fcmp("olt", x, e.const("float", -limit)), e.const("float", -limit), x)
    return e.b.select(e.b.fcmp("ogt", low, e.const("float", limit)), e.const("float", limit), low)


def _double(e: Emitter, x: Value) -> Value:
    return e.b.cast("fpext", x, e.ty("double"))


def _split_ex2(e: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """Split x = k + f; return the bits of k << 52, f, and the polynomial (2^f - 1) / f.

    A NaN that was a float has its low bits clear, so the first is zero and the others are NaN.
    """
    shifted = e.b.op("fadd", x, e.const("double", _MAGIC))
    whole = e.b.op("fsub", shifted, e.const("double", _MAGIC))
    f = e.b.op("fsub", x, whole)
    return e.b.op("shl", e.bits(shifted), e.const("i64", 52)), f, _polynomial(e, f, _EX2)


def ex2(e: Emitter, x: Value) -> Value:
    """Return 2^x; beyond +-400 as 2^+-400, which every caller rounds to infinity or zero."""
    exponent, f, q = _split_ex2(e, _double(e, _clamp(e, x, 400.0)))
    power = e.b.intrinsic("fma", f.ty, [q, f, e.const("double", 1.0)])
    return e.as_float(e.b.op("add", e.bits(power), exponent), "double")


def lg2(e: Emitter, x: Value) -> Value:
    """Return log2 with its limits: -inf at zero, NaN below, inf at inf."""
    zero, infinity = e.const("float", 0.0), e.const("float", float("inf"))
    usual = e.b.op("and", e.b.fcmp("ogt", x, zero), e.b.fcmp("olt", x, infinity))
    value = _lg2_usual(e, _double(e, e.b.select(usual, x, e.const("float", 1.0))))
    at_zero = e.b.fcmp("oeq", x, zero)
    other = e.b.select(at_zero, e.const("double", float("-inf")), e.const("double", float("nan")))
    limit = e.b.select(e.b.fcmp("oeq", x, infinity), e.const("double", float("inf")), other)
    return e.b.select(usual, value, limit)


def _lg2_usual(e: Emitter, x: Value) -> Value:
    """Return log2 of a positive, finite, normal double."""
    op = e.b.op
    bits = e.bits(x)
    # Exponent such that the fraction is in [sqrt(1/2), sqrt(2)).
    offset = op("sub", bits, e.const("i64", 0x3FE6A09E667F3BCD))
    exponent = op("ashr", offset, e.const("i64", 52))
    m = e.as_float(op("sub", bits, op("shl", exponent, e.const("i64", 52))), "double")
    one = e.const("double", 1.0)
    s = op("fdiv", op("fsub", m, one), op("fadd", m, one))
    tail = op("fmul", _polynomial(e, op("fmul", s, s), _LG2), s)
    whole = e.b.cast("sitofp", e.b.cast("trunc", exponent, e.ty("i32")), x.ty)
    return op("fadd", whole, tail)


def tanh(e: Emitter, x: Value) -> Value:
    """Return tanh, computed from expm1(-2|x|)."""
    op = e.b.op
    # Beyond 30 the result rounds to one in every format.
    magnitude = _double(e, _clamp(e, e.b.intrinsic("fabs", x.ty, [x]), 30.0))
    exponent, f, q = _split_ex2(e, op("fmul", magnitude, e.const("double", -2.8853900817779268)))
    one = e.const("double", 1.0)
    power = e.as_float(op("add", e.bits(one), exponent), "double")
    minus_one = e.b.intrinsic("fma", f.ty, [op("fmul", q, f), power, op("fsub", power, one)])
    result = op("fdiv", e.b.fneg(minus_one), op("fadd", minus_one, e.const("double", 2.0)))
    return e.b.intrinsic("copysign", f.ty, [result, _double(e, x)])


def sin(e: Emitter, x: Value) -> Value:
    """Return sin, with the sign of zero kept."""
    return e.b.select(e.b.fcmp("oeq", x, e.const("float", 0.0)), _double(e, x), _circular(e, x, cosine=False))


def cos(e: Emitter, x: Value) -> Value:
    return _circular(e, x, cosine=True)


def _circular(e: Emitter, x: Value, *, cosine: bool) -> Value:
    """Return sin or cos; the reduction is exact, so it is valid for every float. NaN if x is not finite."""
    magnitude = e.b.intrinsic("fabs", x.ty, [x])
    finite = e.b.fcmp("olt", magnitude, e.const("float", float("inf")))
    value = _sin_cos(e, _double(e, e.b.select(finite, x, e.const("float", 0.0))), cosine=cosine)
    return e.b.select(finite, value, e.const("double", float("nan")))


def _sin_cos(e: Emitter, x: Value, *, cosine: bool) -> Value:
    """Return sin or cos of a finite double that is a float."""
    op = e.b.op
    hi = lo = e.const("double", 0.0)
    for piece in _TURN:
        turns = op("fmul", x, e.const("double", piece))
        turns = op("fsub", turns, e.b.intrinsic("roundeven", x.ty, [turns]))
        s = op("fadd", hi, turns)
        of_turns = op("fsub", s, hi)
        error = op("fadd", op("fsub", hi, op("fsub", s, of_turns)), op("fsub", turns, of_turns))
        hi, lo = s, op("fadd", lo, error)
    # hi is a few turns at most: reduce it to the nearest quarter, then [-1/8, 1/8] turns remain.
    quarter = e.b.intrinsic("roundeven", x.ty, [op("fmul", hi, e.const("double", 4.0))])
    t = op("fadd", op("fsub", hi, op("fmul", quarter, e.const("double", 0.25))), lo)
    square = op("fmul", t, t)
    sine = op("fmul", _polynomial(e, square, _SIN), t)
    cosine_value = _polynomial(e, square, _COS)
    index = e.b.cast("fptosi", quarter, e.ty("i32"))
    if cosine:
        index = op("add", index, e.const("i32", 1))
    one = e.const("i32", 1)
    swapped = e.b.icmp("eq", op("and", index, one), one)
    two = e.const("i32", 2)
    negated = e.b.icmp("eq", op("and", index, two), two)
    value = e.b.select(swapped, cosine_value, sine)
    return e.b.select(negated, e.b.fneg(value), value)
