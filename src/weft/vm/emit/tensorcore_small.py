"""LLVM IR of the kinds that only sm_120a has: operands of 4 and 6 bits, and operands with scales.

    void @NAME(ptr d, ptr a, ptr b, ptr c[, ptr s])

s has a word for each of 16 rows of A and then of 8 columns of B: the row's scales, the first in the low byte.
Everything is computed in f64, a row of D at a time (8 lanes): products, scales and aligned terms are exact there,
infinity and NaN need no separate path, and the sum of a step is an integer below 2^53. The meaning is that of
weft.vm.reference.tensorcore.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from math import inf, nan
from typing import Protocol

from weft.vm.emit.tensorcore_operands import repeat, scaled
from weft.vm.ir import Builder, Value, const, lanes_of, vec
from weft.vm.mma_kind import FORMATS, GROUP, FusedRule, MmaKind, fused_rule
from weft.vm.runtime.shape import ATTRIBUTES

PARAMETERS = [("ptr", "d"), ("ptr", "a"), ("ptr", "b"), ("ptr", "c")]
F64, I64, F32 = vec("double", 8), vec("i64", 8), vec("float", 8)
NO_EXPONENT = -4096.0
"""Of a factor that is zero: lower than the sum of any two exponents."""
ZERO_TERM = -2000.0
"""Below it, a sum of exponents is that of a product that is zero."""


class Operands(Protocol):
    """The operands of one instruction."""

    @property
    def b(self) -> Value: ...
    @property
    def c(self) -> Value: ...
    @property
    def d(self) -> Value: ...


Sets = Callable[[Builder, MmaKind, int], AbstractContextManager[Operands]]


class _Decoded:
    """A and B as f64 on the stack: values and exponents of A [row][k], of B [k][column], and their scales."""

    def __init__(self, b: Builder, kind: MmaKind) -> None:
        sizes = {"a": 16 * kind.k, "b": 8 * kind.k, "scale_a": 16 * 4, "scale_b": 8 * 4}
        self.values = {name: b.alloca(f"[{8 * size} x i8]") for name, size in sizes.items()}
        self.exponents = {name: b.alloca(f"[{8 * size} x i8]") for name, size in sizes.items()}


def small_function(name: str, kind: MmaKind, mode: str, arch: str, sets: Sets, count: int) -> Builder:
    """Return the function of a kind."""
    parameters = [*PARAMETERS, ("ptr", "s")] if kind.scale_type else PARAMETERS
    b = Builder(f"{name}.x{count}" if count > 1 else name, "void", parameters, ATTRIBUTES)
    held = _Decoded(b, kind)
    _decode_rows(b, kind, b.param("a"), "a", held)
    if kind.scale_type:
        _decode_scales(b, kind, held)
    with sets(b, kind, count) as here:
        _decode_rows(b, kind, here.b, "b", held)
        with repeat(b, 16) as row:
            c = _load_row(b, kind, here.c, row)
            if mode == "ieee":
                result = _ieee_row(b, kind, held, row, c)
            elif kind.k == 64:
                result = _grouped_row(b, kind, fused_rule(kind, arch), held, row, c)
            else:
                result = _fused_row(b, kind, fused_rule(kind, arch), held, row, c)
            _store_row(b, kind, here.d, row, result)
    b.ret()
    return b


# -- operands ------------------------------------------------------------------------------------------------------


def _decode_rows(b: Builder, kind: MmaKind, source: Value, name: str, held: _Decoded) -> None:
    """Decode the 16 bytes that a register has of every row of A (column of B): its eight rows follow each other."""
    ptx_type = kind.a_type if name == "a" else kind.b_type
    strips = 2 if name == "a" else 1
    per_row = 32 if kind.element_bits == 4 else 16
    registers = strips * kind.k // per_row
    with repeat(b, 8 * registers) as index:
        codes = b.load(vec("i8", 16), scaled(b, source, index, 16), align=16)
        if kind.element_bits == 4:
            low = b.op("shl", b.op("and", codes, const(codes.ty, 15)), const(codes.ty, 2))
            high = b.op("shl", b.op("lshr", codes, const(codes.ty, 4)), const(codes.ty, 2))
            codes = b.shuffle(low, high, [place for k in range(16) for place in (k, 16 + k)])
        value, exponent = _decoded(b, codes, ptx_type)
        register, row = b.op("lshr", index, const("i64", 3)), b.op("and", index, const("i64", 7))
        if name == "a":  # registers in turn: rows 0 to 7, rows 8 to 15
            row = b.op("add", row, b.op("shl", b.op("and", register, const("i64", 1)), const("i64", 3)))
            register = b.op("lshr", register, const("i64", 1))
        first = b.op("mul", register, const("i64", per_row))
        for part, places in ((value, held.values), (exponent, held.exponents)):
            if name == "a":
                at = b.op("add", b.op("mul", row, const("i64", kind.k)), first)
                b.store(part, scaled(b, places["a"], at, 8), align=64)
            else:
                column = scaled(b, scaled(b, places["b"], first, 64), row, 8)
                for k in range(per_row):
                    b.store(b.extract(part, k), b.offset(column, 64 * k), align=8)


def _decoded(b: Builder, codes: Value, ptx_type: str) -> tuple[Value, Value]:
    """Return the values of codes (bytes) and their exponents, as f64."""
    fmt = FORMATS[ptx_type]
    ty, floats = vec("i64", lanes_of(codes.ty)), vec("double", lanes_of(codes.ty))
    bits = b.op("lshr", b.cast("zext", codes, ty), const(ty, fmt.first_bit))
    ones, top = (1 << fmt.mantissa_bits) - 1, (1 << fmt.exponent_bits) - 1
    mantissa = b.op("and", bits, const(ty, ones))
    field = b.op("and", b.op("lshr", bits, const(ty, fmt.mantissa_bits)), const(ty, top))
    negative = b.op("and", b.op("lshr", bits, const(ty, fmt.mantissa_bits + fmt.exponent_bits)), const(ty, 1))
    denormal = b.icmp("eq", field, const(ty, 0))
    significand = b.op("or", mantissa, b.select(denormal, const(ty, 0), const(ty, ones + 1)))
    exponent = b.op("sub", b.select(denormal, const(ty, 1), field), const(ty, fmt.bias))
    power = _power(b, b.op("sub", exponent, const(ty, fmt.mantissa_bits)))
    value = b.op("fmul", b.cast("sitofp", significand, floats), power)
    at_top = b.icmp("eq", field, const(ty, top))
    if fmt.has_infinity:
        special = b.select(b.icmp("eq", mantissa, const(ty, 0)), const(floats, inf), const(floats, nan))
        value = b.select(at_top, special, value)
    elif fmt.has_nan:
        is_nan = b.op("and", at_top, b.icmp("eq", mantissa, const(ty, ones)))
        value = b.select(is_nan, const(floats, nan), value)
    sign = b.op("shl", negative, const(ty, 63))
    value = b.cast("bitcast", b.op("or", b.cast("bitcast", value, ty), sign), floats)
    zero = b.icmp("eq", significand, const(ty, 0))
    return value, b.select(zero, const(floats, NO_EXPONENT), b.cast("sitofp", exponent, floats))


def _power(b: Builder, exponent: Value) -> Value:
    """Return 2^exponent of integers."""
    bits = b.op("shl", b.op("add", exponent, const(exponent.ty, 1023)), const(exponent.ty, 52))
    return b.cast("bitcast", bits, vec("double", lanes_of(exponent.ty)))


def _power_of(b: Builder, exponent: Value) -> Value:
    """Return 2^exponent of f64 that are integers."""
    return _power(b, b.cast("fptosi", exponent, I64))


def _decode_scales(b: Builder, kind: MmaKind, held: _Decoded) -> None:
    """Decode scales of A to [row][4], those of B to [4][column]. 255 is the NaN of ue8m0; ue4m3 has no sign."""
    for name, first, rows in (("scale_a", 0, 16), ("scale_b", 64, 8)):
        with repeat(b, rows) as row:
            codes = b.load(vec("i8", 4), b.offset(scaled(b, b.param("s"), row, 4), first), align=4)
            if kind.scale_type == "ue4m3":
                value, exponent = _decoded(b, b.op("and", codes, const(codes.ty, 127)), "e4m3")
            else:
                wide = b.cast("zext", codes, vec("i64", 4))
                unbiased = b.op("sub", wide, const(wide.ty, 127))
                is_nan = b.icmp("eq", wide, const(wide.ty, 255))
                value = b.select(is_nan, const(vec("double", 4), nan), _power(b, unbiased))
                exponent = b.cast("sitofp", unbiased, vec("double", 4))
            for part, places in ((value, held.values[name]), (exponent, held.exponents[name])):
                if name == "scale_a":
                    b.store(part, scaled(b, places, row, 32), align=32)
                else:
                    for k in range(4):
                        b.store(b.extract(part, k), b.offset(scaled(b, places, row, 8), 64 * k), align=8)


def _row_of(b: Builder, places: dict[str, Value], name: str, row: Value, k: int, per_row: int) -> Value:
    """Return an element of A, or a scale of it, in all lanes."""
    return b.splat(b.load("double", b.offset(scaled(b, places[name], row, 8 * per_row), 8 * k), align=8), 8)


def _columns_of(b: Builder, places: dict[str, Value], name: str, k: int) -> Value:
    return b.load(F64, b.offset(places[name], 64 * k), align=64)


def _scale_pair(b: Builder, places: dict[str, Value], row: Value, block: int) -> tuple[Value, Value]:
    return _row_of(b, places, "scale_a", row, block, 4), _columns_of(b, places, "scale_b", block)


# -- accumulators --------------------------------------------------------------------------------------------------


def _row_places(b: Builder, kind: MmaKind, base: Value, row: Value) -> list[Value]:
    """Return where a row of C or D is: eight halves, or its even and its odd columns."""
    top, below = b.op("lshr", row, const("i64", 3)), b.op("and", row, const("i64", 7))
    if kind.c_type == "f16":
        return [scaled(b, scaled(b, base, top, 128), below, 16)]
    even = scaled(b, scaled(b, base, top, 256), below, 16)
    return [even, b.offset(even, 128)]


def _load_row(b: Builder, kind: MmaKind, base: Value, row: Value) -> Value:
    """Return a row of C as f64."""
    places = _row_places(b, kind, base, row)
    if kind.c_type == "f16":
        return b.cast("fpext", b.cast("fpext", b.load(vec("half", 8), places[0], align=16), F32), F64)
    even, odd = (b.load(vec("float", 4), place, align=16) for place in places)
    return b.cast("fpext", b.shuffle(even, odd, [0, 4, 1, 5, 2, 6, 3, 7]), F64)


def _store_row(b: Builder, kind: MmaKind, base: Value, row: Value, values: Value) -> None:
    """Store a row of D, f32; NaN is canonical."""
    places = _row_places(b, kind, base, row)
    is_nan = b.fcmp("uno", values, values)
    if kind.d_type == "f16":
        halves = vec("i16", 8)
        bits = b.cast("bitcast", b.cast("fptrunc", values, vec("half", 8)), halves)
        b.store(b.select(is_nan, const(halves, 0x7FFF), bits), places[0], align=16)
        return
    words = vec("i32", 8)
    bits = b.select(is_nan, const(words, 0x7FFFFFFF), b.cast("bitcast", values, words))
    for place, first in zip(places, (0, 1), strict=True):
        b.store(b.shuffle(bits, None, range(first, 8, 2)), place, align=16)


# -- arithmetic ----------------------------------------------------------------------------------------------------


def _trunc(b: Builder, value: Value) -> Value:
    return b.intrinsic("trunc", F64, [value])


def _largest(b: Builder, values: Sequence[Value]) -> Value:
    return reduce(lambda x, y: b.intrinsic("maxnum", F64, [x, y]), values)


def _c_exponent(b: Builder, kind: MmaKind, c: Value, rule: FusedRule) -> Value:
    """Return the exponent of C: of a denormal its format's smallest, of a zero the rule's."""
    field = b.op("and", b.op("lshr", b.cast("bitcast", c, I64), const(I64, 52)), const(I64, 0x7FF))
    exponent = b.cast("sitofp", b.op("sub", field, const(I64, 1023)), F64)
    exponent = _largest(b, [exponent, const(F64, FORMATS[kind.c_type].min_exponent)])
    exponent = b.intrinsic("minnum", F64, [exponent, const(F64, 128)])  # infinity: any in the range of `_power`
    return b.select(b.fcmp("oeq", c, const(F64, 0.0)), const(F64, rule.zero_exponent), exponent)


def _fused_row(b: Builder, kind: MmaKind, rule: FusedRule, held: _Decoded, row: Value, c: Value) -> Value:
    """Return one step over all of K: 32 products, whose exponents include those of the two scales."""
    highest, lowest = const(F64, 2 * NO_EXPONENT), const(F64, 0.0)
    for k in range(kind.k):
        both = b.op("fadd", _row_of(b, held.exponents, "a", row, k, kind.k), _columns_of(b, held.exponents, "b", k))
        highest, lowest = _largest(b, [highest, both]), b.intrinsic("minnum", F64, [lowest, both])
    shift = const(F64, 0.0)
    if kind.scale_type:
        shift = b.op("fadd", *_scale_pair(b, held.exponents, row, 0))
    has_zero = b.fcmp("olt", lowest, const(F64, ZERO_TERM))
    of_zero = b.select(has_zero, const(F64, rule.zero_exponent), const(F64, NO_EXPONENT))
    exponent = _largest(b, [b.op("fadd", highest, shift), of_zero, _c_exponent(b, kind, c, rule)])
    unit = b.op("fsub", const(F64, rule.fraction_bits), exponent)
    factor = _power_of(b, b.op("fadd", unit, shift))
    total = _trunc(b, b.op("fmul", c, _power_of(b, unit)))
    for k in range(kind.k):
        product = b.op("fmul", _row_of(b, held.values, "a", row, k, kind.k), _columns_of(b, held.values, "b", k))
        total = b.op("fadd", total, _trunc(b, b.op("fmul", product, factor)))
    if kind.scale_type:  # a scale that is NaN makes the sum NaN; any other adds 0
        first, second = _scale_pair(b, held.values, row, 0)
        invalid = b.fcmp("uno", first, second)
        total = b.select(invalid, const(F64, nan), total)
    return _rounded(b, kind, total, unit)


def _grouped_row(b: Builder, kind: MmaKind, rule: FusedRule, held: _Decoded, row: Value, c: Value) -> Value:
    """Return exact sums of 16 products, each with the exponent of its two scales, aligned and added to C."""
    terms, exponents = [c], [_c_exponent(b, kind, c, rule)]
    for group in range(kind.k // GROUP):
        products = []
        for k in range(GROUP * group, GROUP * (group + 1)):
            x, y = _row_of(b, held.values, "a", row, k, kind.k), _columns_of(b, held.values, "b", k)
            products.append(b.op("fmul", x, y))
        most = _largest(b, [b.intrinsic("fabs", F64, [product]) for product in products])
        block = group * GROUP * kind.scales // kind.k
        scale = b.op("fmul", *_scale_pair(b, held.values, row, block))
        none = b.fcmp("oeq", b.op("fmul", most, scale), const(F64, 0.0))
        shift = b.op("fadd", *_scale_pair(b, held.exponents, row, block))
        exponents.append(b.select(none, const(F64, rule.zero_exponent), shift))
        terms.append(b.op("fmul", reduce(lambda x, y: b.op("fadd", x, y), products), scale))
    unit = b.op("fsub", const(F64, rule.fraction_bits), _largest(b, exponents))
    factor = _power_of(b, unit)
    aligned = [_trunc(b, b.op("fmul", term, factor)) for term in terms]
    return _rounded(b, kind, reduce(lambda x, y: b.op("fadd", x, y), aligned), unit)


def _rounded(b: Builder, kind: MmaKind, total: Value, unit: Value) -> Value:
    """Return total / 2^unit as f32: truncated; for an f16 result with the last bit set if bits are lost (to odd)."""
    value = b.op("fmul", total, _power_of(b, b.fneg(unit)))
    bits = b.cast("bitcast", value, I64)
    kept = b.cast("bitcast", b.op("and", bits, const(I64, -(1 << 29))), F64)
    if kind.d_type == "f16":
        lost = b.op("and", bits, const(I64, (1 << 29) - 1))
        odd = b.op("or", b.cast("bitcast", kept, I64), const(I64, 1 << 29))
        kept = b.cast("bitcast", b.select(b.icmp("eq", lost, const(I64, 0)), b.cast("bitcast", kept, I64), odd), F64)
    else:
        small = b.fcmp("olt", b.intrinsic("fabs", F64, [value]), const(F64, 2.0**-126))
        units = _trunc(b, b.op("fmul", value, const(F64, 2.0**149)))
        kept = b.select(small, b.op("fmul", units, const(F64, 2.0**-149)), kept)
    kept = b.select(b.fcmp("uno", value, value), value, kept)
    # Zero plus: a result of zero is never -0.
    narrow = b.cast("fptrunc", kept, F32)
    if kind.d_type == "f16":  # half of the smallest f16 or less, a tie or below, and its sign
        tiny = b.fcmp("ole", b.intrinsic("fabs", F32, [narrow]), const(F32, 2.0**-25))
        narrow = b.select(tiny, const(F32, 0.0), narrow)
    return b.op("fadd", narrow, const(F32, 0.0))


def _ieee_row(b: Builder, kind: MmaKind, held: _Decoded, row: Value, c: Value) -> Value:
    """Return a chain of fused multiply-adds in f32: the sum in f64 is rounded to odd before it becomes an f32."""
    total = c
    for k in range(kind.k):
        x, y = _row_of(b, held.values, "a", row, k, kind.k), _columns_of(b, held.values, "b", k)
        product = b.op("fmul", x, y)
        if kind.scale_type:
            scales = _scale_pair(b, held.values, row, k * kind.scales // kind.k)
            product = b.op("fmul", product, b.op("fmul", *scales))
        total = b.cast("fpext", b.cast("fptrunc", _sum_to_odd(b, product, total), F32), F64)
    return b.cast("fptrunc", total, F32)


def _sum_to_odd(b: Builder, x: Value, y: Value) -> Value:
    """Return x + y; if that is rounded, the neighbour with an odd last bit (Knuth's two-sum finds the error)."""
    total = b.op("fadd", x, y)
    part = b.op("fsub", total, x)
    error = b.op("fadd", b.op("fsub", x, b.op("fsub", total, part)), b.op("fsub", y, part))
    bits = b.cast("bitcast", total, I64)
    outward = b.fcmp("ogt", b.op("fmul", error, total), const(F64, 0.0))
    moved = b.op("add", bits, b.select(outward, const(I64, 1), const(I64, -1)))
    even = b.icmp("eq", b.op("and", bits, const(I64, 1)), const(I64, 0))
    finite = b.fcmp("olt", b.intrinsic("fabs", F64, [total]), const(F64, inf))
    inexact = b.op("and", b.op("and", b.fcmp("one", error, const(F64, 0.0)), even), finite)
    return b.select(inexact, b.cast("bitcast", moved, F64), total)


__all__ = ["small_function"]
