"""The exact path of a fused kind: a scalar loop in 64-bit integers that handles every bit pattern.

It is used for the rare tiles that the vector path cannot handle, so it is written to be short, not fast.
"""

from math import inf, nan
from typing import NamedTuple

from weft.vm.emit.tensorcore_operands import repeat
from weft.vm.ir import Builder, Value, const
from weft.vm.mma_kind import FORMATS, FloatFormat, FusedRule, MmaKind
from weft.vm.runtime.shape import Variable


def _i64(value: int) -> Value:
    return const("i64", value)


def _f64(value: float) -> Value:
    return const("double", value)


class Number(NamedTuple):
    """A decoded operand."""

    significand: Value  # signed
    exponent: Value
    stand_in: Value  # 0, +-1, +-infinity or NaN as a double: sums of products of these show the class


def exact_function(name: str, kind: MmaKind, rule: FusedRule) -> Builder:
    """Return `void @name(d, a, b, c)`."""
    params = [("ptr", "d"), ("ptr", "a"), ("ptr", "b"), ("ptr", "c")]
    b = Builder(name, "void", params, "cold noinline nounwind")
    place = 2 if kind.c_type == "f16" else 4
    with repeat(b, 128) as index:
        m, n = b.op("lshr", index, _i64(3)), b.op("and", index, _i64(7))
        at = _accumulator_offset(b, kind, m, n)
        word = f"i{8 * place}"
        bits = Variable(b, b.cast("zext", b.load(word, b.offset(b.param("c"), at), align=place), "i64"))
        with repeat(b, kind.k // rule.step_k) as step:
            start = b.op("mul", step, _i64(rule.step_k))
            bits.set(_step(b, kind, rule, m, n, start, bits.get()))
        b.store(b.cast("trunc", bits.get(), word), b.offset(b.param("d"), at), align=place)
    b.ret()
    return b


def _accumulator_offset(b: Builder, kind: MmaKind, m: Value, n: Value) -> Value:
    """Return lane 4 (m mod 8) + n / 2 of register m / 8 (f16: two in a word) or 2 (m / 8) + n mod 2 (f32)."""
    lane = b.op("add", b.op("shl", b.op("and", m, _i64(7)), _i64(2)), b.op("lshr", n, _i64(1)))
    parity = b.op("and", n, _i64(1))
    register = b.op("lshr", m, _i64(3))
    if kind.c_type == "f32":
        register = b.op("add", b.op("shl", register, _i64(1)), parity)
    at = b.op("shl", b.op("add", b.op("shl", register, _i64(5)), lane), _i64(2))
    return at if kind.c_type == "f32" else b.op("add", at, b.op("shl", parity, _i64(1)))


def _step(b: Builder, kind: MmaKind, rule: FusedRule, m: Value, n: Value, start: Value, c_bits: Value) -> Value:
    """Return the bits of the new accumulator after one step of element (m, n)."""
    a_format, b_format = FORMATS[kind.a_type], FORMATS[kind.b_type]
    c = _decoded(b, FORMATS[kind.c_type], c_bits)
    # First pass: the largest exponent, and the class of the exact sum.
    zero = _i64(rule.zero_exponent)
    c_exponent = b.select(b.icmp("eq", c.significand, _i64(0)), zero, c.exponent)
    largest, sum_class = Variable(b, c_exponent), Variable(b, c.stand_in)
    with repeat(b, rule.step_k) as turn:
        k = b.op("add", start, turn)
        x, y = _operand(b, "a", m, k, a_format), _operand(b, "b", n, k, b_format)
        product, exponent = b.op("mul", x.significand, y.significand), b.op("add", x.exponent, y.exponent)
        exponent = b.select(b.icmp("eq", product, _i64(0)), zero, exponent)
        largest.set(b.intrinsic("smax", "i64", [largest.get(), exponent]))
        sum_class.set(b.op("fadd", sum_class.get(), b.op("fmul", x.stand_in, y.stand_in)))
    # Second pass: add the aligned, truncated terms.
    top = largest.get()
    c_left = rule.fraction_bits - FORMATS[kind.c_type].mantissa_bits
    total = Variable(b, _aligned(b, c.significand, c.exponent, top, c_left))
    with repeat(b, rule.step_k) as turn:
        k = b.op("add", start, turn)
        x, y = _operand(b, "a", m, k, a_format), _operand(b, "b", n, k, b_format)
        product, exponent = b.op("mul", x.significand, y.significand), b.op("add", x.exponent, y.exponent)
        left = rule.fraction_bits - a_format.mantissa_bits - b_format.mantissa_bits
        total.set(b.op("add", total.get(), _aligned(b, product, exponent, top, left)))
    return _encoded(b, kind, rule, total.get(), top, sum_class.get())


def _operand(b: Builder, name: str, major: Value, k: Value, fmt: FloatFormat) -> Number:
    """Decode element (m, k) of A or (k, n) of B; see tensorcore_operands for the layout."""
    per_word = 32 // fmt.storage_bits
    pair = b.op("udiv", k, _i64(4 * per_word))
    column = b.op("and", b.op("udiv", k, _i64(per_word)), _i64(3))
    item = b.op("and", k, _i64(per_word - 1))
    if name == "a":  # two registers per pair: rows 0-7 and rows 8-15
        pair = b.op("add", b.op("shl", pair, _i64(1)), b.op("lshr", major, _i64(3)))
    lane = b.op("add", b.op("shl", b.op("and", major, _i64(7)), _i64(2)), column)
    index = b.op("add", b.op("shl", pair, _i64(5)), lane)
    word = b.load("i32", b.offset(b.param(name), b.op("shl", index, _i64(2))), align=4)
    shifted = b.op("lshr", b.cast("zext", word, "i64"), b.op("mul", item, _i64(fmt.storage_bits)))
    return _decoded(b, fmt, b.op("and", shifted, _i64((1 << fmt.storage_bits) - 1)))


def _decoded(b: Builder, fmt: FloatFormat, bits: Value) -> Number:
    if fmt.name == "tf32":
        bits = b.op("lshr", bits, _i64(13))
    all_ones = (1 << fmt.mantissa_bits) - 1
    mantissa = b.op("and", bits, _i64(all_ones))
    top = (1 << fmt.exponent_bits) - 1
    exponent_field = b.op("and", b.op("lshr", bits, _i64(fmt.mantissa_bits)), _i64(top))
    negative = b.cast("trunc", b.op("lshr", bits, _i64(fmt.mantissa_bits + fmt.exponent_bits)), "i1")
    denormal = b.icmp("eq", exponent_field, _i64(0))
    significand = b.op("or", mantissa, b.select(denormal, _i64(0), _i64(1 << fmt.mantissa_bits)))
    is_zero = b.icmp("eq", significand, _i64(0))
    exponent = b.op("sub", b.select(denormal, _i64(1), exponent_field), _i64(fmt.bias))
    at_top = b.icmp("eq", exponent_field, _i64(top))
    stand_in = b.select(is_zero, _f64(0.0), _f64(1.0))
    if fmt.has_infinity:
        special = b.select(b.icmp("eq", mantissa, _i64(0)), _f64(inf), _f64(nan))
        stand_in = b.select(at_top, special, stand_in)
    else:
        is_nan = b.op("and", at_top, b.icmp("eq", mantissa, _i64(all_ones)))
        stand_in = b.select(is_nan, _f64(nan), stand_in)
    stand_in = b.select(negative, b.fneg(stand_in), stand_in)
    signed = b.select(negative, b.op("sub", _i64(0), significand), significand)
    return Number(signed, exponent, stand_in)


def _magnitude(b: Builder, value: Value) -> Value:
    return b.intrinsic("abs", "i64", [value, const("i1", 0)])


def _at_most(b: Builder, value: Value, limit: int) -> Value:
    return b.intrinsic("umin", "i64", [value, _i64(limit)])


def _aligned(b: Builder, significand: Value, exponent: Value, largest: Value, left: int) -> Value:
    """Return significand * 2^(left + exponent - largest), truncated toward zero."""
    magnitude = _magnitude(b, significand)
    distance = b.op("sub", largest, exponent)
    if left >= 0:
        magnitude = b.op("shl", magnitude, _i64(left))
    else:
        distance = b.op("add", distance, _i64(-left))
    shifted = b.op("lshr", magnitude, _at_most(b, distance, 63))
    return b.select(b.icmp("slt", significand, _i64(0)), b.op("sub", _i64(0), shifted), shifted)


def _encoded(b: Builder, kind: MmaKind, rule: FusedRule, total: Value, largest: Value, sum_class: Value) -> Value:
    """Return the bits of total * 2^(largest - F), or of the class if that is not finite."""
    fmt = FORMATS[kind.d_type]
    kept_bits = 10 if kind.d_type == "f16" else rule.result_bits
    infinity = ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits
    magnitude = _magnitude(b, total)
    exponent = b.op("sub", largest, _i64(rule.fraction_bits))
    length = b.op("sub", _i64(64), b.intrinsic("ctlz", "i64", [magnitude, const("i1", 0)]))
    leading = b.op("add", b.op("add", exponent, length), _i64(-1))
    leading = b.intrinsic("smax", "i64", [leading, _i64(fmt.min_exponent)])
    # Widen first so that only right shifts remain: the sum has at most 33 bits, the widening adds 24.
    drop = b.op("add", b.op("sub", leading, exponent), _i64(24 - kept_bits))
    drop = _at_most(b, drop, 62)
    wide = b.op("shl", magnitude, _i64(24))
    kept = b.op("lshr", wide, drop)
    if kind.d_type == "f16":  # nearest even: add half, less one unit when the kept part is even
        half = b.op("lshr", b.op("shl", _i64(1), drop), _i64(1))
        below_half = b.op("add", b.op("sub", half, _i64(1)), b.op("and", kept, _i64(1)))
        kept = b.op("lshr", b.op("add", wide, below_half), drop)
    kept = b.op("shl", kept, _i64(fmt.mantissa_bits - kept_bits))
    # A normal `kept` carries its leading one, which adds one to the exponent field; a denormal does not.
    above = b.op("sub", leading, _i64(fmt.min_exponent))
    bits = b.op("add", b.op("shl", above, _i64(fmt.mantissa_bits)), kept)
    bits = _at_most(b, bits, infinity)
    sign_bit = 1 << (fmt.storage_bits - 1)
    bits = b.op("or", bits, b.select(b.icmp("slt", total, _i64(0)), _i64(sign_bit), _i64(0)))
    bits = b.select(b.icmp("eq", kept, _i64(0)), _i64(0), bits)
    for predicate, bound, pattern in (
        ("oeq", inf, infinity),
        ("oeq", -inf, infinity | sign_bit),
        ("uno", 0.0, sign_bit - 1),
    ):
        bits = b.select(b.fcmp(predicate, sum_class, _f64(bound)), _i64(pattern), bits)
    return bits


__all__ = ["exact_function"]
