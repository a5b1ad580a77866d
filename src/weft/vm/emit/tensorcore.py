"""LLVM IR of the tensor-core instructions: one out-of-line function per kind, mode and architecture.

    void @NAME(ptr d, ptr a, ptr b, ptr c)

Each pointer names consecutive warp registers (32 x i32 each, f64: 32 x i64, 64-byte aligned); d may be c. With a
`count`, b, c and d hold that many operand sets one after the other, and a is shared.
The meaning is that of weft.vm.reference.tensorcore. The work is laid out for 16-lane vectors of C in its register
order (tensorcore_operands.py). `hardware` mode computes, per element and step,
    E = max exponent, S = sum over k of trunc(a b 2^(F - E)) + trunc(c 2^(F - E)), d = round(S) 2^(E - F)
in f32 and i32, where every product and scaling is exact. If S may need more than 32 bits, it is computed in parts.
Tiles for which this is not possible (infinity, NaN, exponents near the ends of f32's range, parts whose sum overflows)
are found by a few running vector tests and computed by a scalar integer loop (tensorcore_exact.py).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import reduce
from math import nan

from weft.core.errors import UsageError
from weft.vm.emit.rounding import directed
from weft.vm.emit.tensorcore_exact import exact_function
from weft.vm.emit.tensorcore_halves import halves_body
from weft.vm.emit.tensorcore_operands import (
    F32,
    I16,
    I32,
    Decoded,
    OperandCode,
    Tests,
    a_registers,
    any_lane,
    for_four_columns,
    four_columns,
    half_bits,
    load_a,
    load_accumulators,
    load_b,
    multiply_words,
    pick,
    register_bytes,
    repeat,
    scaled,
    store_results,
    umax,
    umin,
)
from weft.vm.emit.tensorcore_small import small_function
from weft.vm.ir import Builder, Value, const, lanes_of, module_text, vec
from weft.vm.mma_kind import FORMATS, FusedRule, MmaKind, check_kind, fused_rule, half_kind
from weft.vm.runtime.shape import ATTRIBUTES, Variable, when

PARAMETERS = [("ptr", "d"), ("ptr", "a"), ("ptr", "b"), ("ptr", "c")]
EXPONENT_MASK = 0x7F800000
LOWEST = 127 - 90  # biased; a larger E is kept: below it 2^(F - E) nears the end of f32's range
HIGHEST = 127 + 125  # biased; from here on a b may overflow f32
ROUND_TOWARD_ZERO = 11  # as _mm512_cvt_roundepi32_ps takes it, exceptions off
MOST_SETS = 8
"""Limit of the instructions that one function executes."""
PRODUCTS = vec("i32", 32)
F64 = vec("double", 8)


@dataclass(frozen=True)
class Set:
    """One instruction's operands. Instructions of one function share A; B, C and D hold one set after the other."""

    number: Value
    d: Value
    b: Value
    c: Value


def tensorcore_ir(
    kind: MmaKind, mode: str, arch: str, *, count: int = 1, embedded_rounding: bool = False
) -> tuple[str, str]:
    """Return the function's name and the text of an LLVM module that defines it.

    `embedded_rounding`: the CPU has AVX-512, whose instructions can name a rounding mode.
    """
    check_kind(kind)
    if mode not in ("hardware", "ieee"):
        raise UsageError(f"tensor-core mode {mode!r}; use 'hardware' or 'ieee'")
    if not 1 <= count <= MOST_SETS:
        raise UsageError(f"{count} tensor-core instructions at once; at most {MOST_SETS}")
    functions = _functions(kind, mode, arch, count, embedded_rounding)
    return functions[0].name, module_text(functions)


def _functions(kind: MmaKind, mode: str, arch: str, count: int, embedded_rounding: bool) -> list[Builder]:
    """Return the function of a kind, and those that it calls."""
    fused = not kind.is_integer and kind.a_type != "f64"
    name = f"weft.mma.{kind.label}"
    if kind.is_small:
        return [small_function(f"{name}.{'ieee' if mode == 'ieee' else arch}", kind, mode, arch, each_set, count)]
    if fused:
        name += ".ieee" if mode == "ieee" else f".{arch}"
    if count > 1:
        name += f".x{count}"
    b = Builder(name, "void", PARAMETERS, ATTRIBUTES)
    functions = [b]
    sets = each_set(b, kind, count)
    if kind.is_integer:
        integer_body(b, kind, sets)
    elif not fused:
        f64_body(b, kind, sets)
    elif mode == "ieee":
        _ieee_body(b, kind, count)
    elif (halves := half_kind(kind, arch)) is not None:
        functions += _functions(halves, mode, arch, 1, embedded_rounding)
        halves_body(b, kind, functions[1].name, sets)
    else:
        rule = fused_rule(kind, arch)
        exact = exact_function(f"{name}.exact", kind, rule)
        functions.append(exact)
        _fused_body(b, _Fused(kind, rule, embedded_rounding), exact.name, sets, count)
    b.ret()
    return functions


def operand_bytes(rows: int, columns: int, type_name: str) -> int:
    """Return the size of a matrix in registers; they hold it without gaps."""
    bits = FORMATS[type_name].storage_bits if type_name in FORMATS else int(type_name[1:])
    return rows * columns * bits // 8


@contextmanager
def each_set(b: Builder, kind: MmaKind, count: int) -> Iterator[Set]:
    """Loop over the operand sets; the code before it runs once, for the shared A."""
    with each_sets(b, kind, count, 1) as sets:
        yield sets[0]


@contextmanager
def each_sets(b: Builder, kind: MmaKind, count: int, together: int) -> Iterator[list[Set]]:
    """Loop as `each_set`, with several sets per iteration."""
    sizes = {
        "d": operand_bytes(kind.m, kind.n, kind.d_type),
        "b": operand_bytes(kind.k, kind.n, kind.b_type),
        "c": operand_bytes(kind.m, kind.n, kind.c_type),
    }
    with repeat(b, count // together) as number:
        first = {name: scaled(b, b.param(name), number, together * size) for name, size in sizes.items()}
        yield [
            Set(number, **{name: b.offset(first[name], place * size) for name, size in sizes.items()})
            for place in range(together)
        ]


def _products_per_sum(rule: FusedRule) -> int:
    """Return how many products, a power of two, and an accumulator always fit an i32."""
    most = ((1 << 31) - 1 - (2 << rule.fraction_bits)) // (4 << rule.fraction_bits)
    return int(2 ** (most.bit_length() - 1))


def _ieee_body(b: Builder, kind: MmaKind, count: int) -> None:
    code = OperandCode(kind, exponents=False)
    a = code.decode_a(b, b.param("a"))
    together = 2 if count % 2 == 0 else 1  # two sets are 16 independent chains: more than the latency of an fma
    floats = [b.alloca(f"[{code.b_float_bytes} x i8]") for _ in range(together)]
    rows = register_bytes(kind.c_type) // 2
    with each_sets(b, kind, count, together) as sets:
        start: list[Value] = []
        for here, place in zip(sets, floats, strict=True):
            code.decode_b(b, here.b, place, None)
            for top in range(2):
                start += load_accumulators(b, kind, b.offset(here.c, rows * top))
        sums = multiply_words(
            b,
            a.floats,
            floats,
            F32,
            [b.cast("bitcast", c, F32) for c in start],
            words=kind.k // code.per_word,
            per_word=code.per_word,
            add=lambda x, y, total: b.intrinsic("fma", F32, [x, y, total]),
        )
        results = [half_bits(b, x) if kind.d_type == "f16" else b.cast("bitcast", x, I32) for x in sums]
        places = [b.offset(here.d, rows * top) for here in sets for top in range(2)]
        for number, place in enumerate(places):
            store_results(b, kind, results[4 * number : 4 * number + 4], place)
        # NaN is rare: test for it once for all, and overwrite it with the canonical one.
        found = [b.fcmp("uno", *sums[n : n + 2]) for n in range(0, len(sums), 2)]
        with when(b, any_lane(b, reduce(lambda x, y: b.op("or", x, y), found)), likely=False):
            canonical = const(I32, 0x7FFF if kind.d_type == "f16" else 0x7FFFFFFF)
            clean = [b.select(b.fcmp("uno", x, x), canonical, r) for x, r in zip(sums, results, strict=True)]
            for number, place in enumerate(places):
                store_results(b, kind, clean[4 * number : 4 * number + 4], place)


@dataclass(frozen=True)
class _Fused:
    """The parameters of the code of a fused kind."""

    kind: MmaKind
    rule: FusedRule
    embedded_rounding: bool


def _fused_body(b: Builder, how: _Fused, exact_name: str, sets: AbstractContextManager[Set], count: int) -> None:
    """Write for each set a loop over groups of accumulators whose exponents share a word, then select the path."""
    kind = how.kind
    code = OperandCode(kind, exponents=True)
    a = code.decode_a(b, b.param("a"))
    size = register_bytes(kind.d_type)
    staged = b.alloca(f"[{size} x i8]")  # d may be c, which the exact path would read
    floats = b.alloca(f"[{code.b_float_bytes * count} x i8]")
    exponents = b.alloca(f"[{code.b_exponent_bytes * count} x i8]")
    with sets as here:
        # Every set has its own place for b: a moving address keeps b in memory, where repeating it is free.
        place = scaled(b, floats, here.number, code.b_float_bytes)
        operand = code.decode_b(b, here.b, place, scaled(b, exponents, here.number, code.b_exponent_bytes))
        running = _Running(b)
        with repeat(b, code.groups) as group:
            stride = 64 if code.narrow else 128
            at = _group_offset(b, code, group)
            values = load_accumulators(b, kind, b.offset(here.c, at), stride=stride, count=code.group_size)
            rows = a.at(b, group, 32 * code.group_size, 64)
            values = _group(b, code, how, rows, operand, values, running)
            if kind.d_type == "f16":
                values = [half_bits(b, b.cast("bitcast", bits, F32)) for bits in values]
            store_results(b, kind, values, b.offset(staged, at), stride=stride)
        exact, fast, done = b.label("exact"), b.label("fast"), b.label("done")
        b.cbr(running.needs_exact(code, how.rule, a.tests + operand.tests), exact, fast, likely=False)
        b.place(exact)
        b.call(exact_name, "void", [here.d, b.param("a"), here.b, here.c])
        b.br(done)
        b.place(fast)
        for at_vector in range(0, size, 64):
            b.store(b.load(I32, b.offset(staged, at_vector), align=64), b.offset(here.d, at_vector), align=64)
        b.place(done)


def _group_offset(b: Builder, code: OperandCode, group: Value) -> Value:
    """Return the byte offset of a group's first accumulator: a group is the rows above or below 8, or half of these."""
    if code.narrow:
        return b.op("mul", group, const("i64", register_bytes(code.kind.c_type) // 2))
    top = b.op("shl", b.op("lshr", group, const("i64", 1)), const("i64", 8))
    return b.op("add", top, b.op("shl", b.op("and", group, const("i64", 1)), const("i64", 6)))


class _Running:
    """The running values of a tile's tests. All are made before the loop over groups, because that sets them."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.largest = Variable(b, const(I32, 0))
        self.smallest = Variable(b, const(I32, -1))
        self.smallest_c = Variable(b, const(I32, -1))
        """The smallest non-zero accumulator, as the integer 2|c| - 1."""
        self.smallest_sum = Variable(b, const(I32, -1))
        """The smallest E of sums with a term that is not zero, as its bits less those of LOWEST and 1."""
        self.overflow = Variable(b, const(I32, 0))
        """The sign is set where a sum of sums does not fit an i32."""

    def see_accumulator(self, c: Value) -> None:
        below = self.b.op("add", self.b.op("shl", c, const(I32, 1)), const(I32, -1))
        self.smallest_c.set(umin(self.b, self.smallest_c.get(), below))

    def see_exponent(self, exponent: Value) -> None:
        self.largest.set(umax(self.b, self.largest.get(), exponent))
        self.smallest.set(umin(self.b, self.smallest.get(), exponent))

    def see_half(self, exponent: Value) -> None:
        """Note E of a sum that becomes an f16: E is LOWEST exactly if all terms are zero, and then wraps."""
        above = self.b.op("sub", exponent, const(I32, (LOWEST << 23) + 1))
        self.smallest_sum.set(umin(self.b, self.smallest_sum.get(), above))

    def see_sum(self, total: Value, *parts: Value) -> None:
        """Note whether the sum of two parts overflowed: then its sign is that of neither."""
        b = self.b
        lost = b.op("and", *(b.op("xor", part, total) for part in parts))
        self.overflow.set(b.op("or", self.overflow.get(), lost))

    def needs_exact(self, code: OperandCode, rule: FusedRule, operands: Tests) -> Value:
        """Return all tests as one i1."""
        b = self.b
        too_high = b.icmp("uge", self.largest.get(), const(I32, HIGHEST << 23))
        tests = [*operands.special, any_lane(b, too_high)]
        if rule.step_k > _products_per_sum(rule):
            tests.append(any_lane(b, b.icmp("slt", self.overflow.get(), const(I32, 0))))
        if code.kind.d_type == "f16":  # a term that is zero may have the largest exponent
            limit = (rule.zero_exponent + 127 - LOWEST << 23) - 1
            tests.append(any_lane(b, b.icmp("ult", self.smallest_sum.get(), const(I32, limit))))
        if code.kind.c_type == "f32":
            tests.append(any_lane(b, b.icmp("ult", self.smallest_c.get(), const(I32, (LOWEST << 24) - 1))))
        if not code.narrow:
            # E at the lower clamp is harmless if every term is zero, which is certain without tiny operands.
            clamped = any_lane(b, b.icmp("ule", self.smallest.get(), const(I32, LOWEST << 23)))
            tests.append(b.op("and", clamped, b.op("or", *operands.tiny)))
        hit = tests[0]
        for test in tests[1:]:
            hit = b.op("or", hit, test)
        return hit


def _group(
    b: Builder, code: OperandCode, how: _Fused, a: Decoded, operand: Decoded, values: list[Value], running: _Running
) -> list[Value]:
    """Return a group's accumulators after all steps."""
    kind, rule = how.kind, how.rule
    for start in range(0, kind.k, rule.step_k):
        step = range(start, start + rule.step_k)
        packed = _packed_largest_exponents(b, code, a, operand, step)
        for n, c in enumerate(values):
            if kind.c_type == "f32" and (start == 0 or not code.narrow):
                running.see_accumulator(c)
            exponent = _step_exponent(b, code, packed, n, c)
            running.see_exponent(exponent)
            if kind.d_type == "f16":
                running.see_half(exponent)
            total, *others = _aligned_sums(b, code, a, operand, n, c, exponent, step, rule)
            for other in others:
                both = b.op("add", total, other)
                running.see_sum(both, total, other)
                total = both
            values[n] = _rounded(b, how, total, exponent)
    return values


def _packed_largest_exponents(b: Builder, code: OperandCode, a: Decoded, operand: Decoded, step: range) -> Value:
    """Return words of biased max over k of e_a + e_b, one field per accumulator of the group, never below LOWEST."""
    assert a.exponents is not None and operand.exponents is not None
    ty = vec("i8", 64) if code.narrow else vec("i16", 32)
    bias = 0 if code.narrow else 127  # 8-bit sums are true exponents: only those fit a signed byte
    largest = const(ty, LOWEST - 127 + bias)
    for k in step:
        x = b.load(ty, b.offset(a.exponents, 64 * code.groups * k), align=64)
        y = b.cast("bitcast", four_columns(b, "i32", b.offset(operand.exponents, code.b_exponent_offset(k))), ty)
        # Saturation keeps zero times zero (-252) in a byte; nothing below -126 can be the maximum.
        both = b.intrinsic("sadd.sat", ty, [x, y]) if code.narrow else b.op("add", x, y)
        largest = b.intrinsic("smax", ty, [largest, both])
    if code.narrow:
        largest = b.op("add", largest, const(ty, 127))
    else:
        largest = b.intrinsic("smin", ty, [largest, const(ty, HIGHEST + 1)])
    return b.cast("bitcast", largest, I32)


def _step_exponent(b: Builder, code: OperandCode, packed: Value, n: int, c: Value) -> Value:
    """Return E of accumulator n, with c, as the bits of 2^E."""
    left = 23 - (8 if code.narrow else 16) * n
    shifted = b.op("shl" if left >= 0 else "lshr", packed, const(I32, abs(left)))
    products = b.op("and", shifted, const(I32, EXPONENT_MASK))
    exponent = b.op("and", c, const(I32, EXPONENT_MASK))
    if code.kind.c_type == "f16":  # an f16 denormal counts as -14, a zero not at all
        floor = umax(b, exponent, const(I32, (127 - 14) << 23))
        exponent = b.select(b.icmp("eq", exponent, const(I32, 0)), const(I32, 0), floor)
    return umax(b, exponent, products)


def _aligned_sums(
    b: Builder,
    code: OperandCode,
    a: Decoded,
    operand: Decoded,
    n: int,
    c: Value,
    exponent: Value,
    step: range,
    rule: FusedRule,
) -> list[Value]:
    """Return S in parts: every term times 2^(F - E), truncated toward zero, added as integers."""
    parity, half = (n // 2, n % 2) if code.narrow else (n, 0)
    bits = b.op("sub", const(I32, (254 + rule.fraction_bits) << 23), exponent)
    scale = b.cast("bitcast", bits, F32)
    parts: list[Value] = []
    total = b.cast("fptosi", b.op("fmul", b.cast("bitcast", c, F32), scale), I32)
    for number, k in enumerate(step):
        if number and number % _products_per_sum(rule) == 0:
            parts.append(total)
            total = const(I32, 0)
        x = b.load(F32, b.offset(a.floats, 256 * k + 64 * half), align=64)
        y = four_columns(b, "float", b.offset(operand.floats, code.b_float_offset(k) + 16 * parity))
        term = b.op("fmul", b.op("fmul", x, y), scale)
        total = b.op("add", total, b.cast("fptosi", term, I32))
    return [*parts, total]


def _rounded(b: Builder, how: _Fused, total: Value, exponent: Value) -> Value:
    """Return S 2^(E - F) as f32 bits: truncated to the result's bits; f16 is rounded to nearest even and widened."""
    kind, rule = how.kind, how.rule
    if rule.fraction_bits > 13:  # the integer may have more than 24 bits
        bits = _toward_zero(b, how, total)
    else:
        bits = b.cast("bitcast", b.cast("sitofp", total, F32), I32)
        if kind.d_type == "f32":
            bits = b.op("and", bits, const(I32, -(1 << (23 - rule.result_bits))))
    unit = b.op("sub", exponent, const(I32, rule.fraction_bits << 23))
    result = b.op("fmul", b.cast("bitcast", bits, F32), b.cast("bitcast", unit, F32))
    if kind.d_type == "f16":
        result = b.cast("fpext", b.cast("fptrunc", result, vec("half", 16)), F32)
        result = b.op("fadd", result, const(F32, 0.0))  # -0 becomes +0
    return b.cast("bitcast", result, I32)


def _toward_zero(b: Builder, how: _Fused, total: Value) -> Value:
    """Return an integer as truncated f32 bits; for f16 results the last bit marks lost bits (round to odd)."""
    if how.embedded_rounding:
        mode = const("i32", ROUND_TOWARD_ZERO)
        value = b.intrinsic("x86.avx512.sitofp.round", F32, [total, mode], overloads=[F32, I32])
        bits = b.cast("bitcast", value, I32)
        if how.kind.d_type != "f16":
            return bits
        back = b.cast("fptosi", value, I32)
    else:  # to nearest, and one unit smaller in magnitude where that was too large
        value = b.cast("sitofp", total, F32)
        bits, back = b.cast("bitcast", value, I32), b.cast("fptosi", value, I32)
        sizes = [b.intrinsic("abs", I32, [x, const("i1", 0)]) for x in (back, total)]
        bits = b.select(b.icmp("ugt", *sizes), b.op("add", bits, const(I32, -1)), bits)
        if how.kind.d_type != "f16":
            return bits
    return b.op("or", bits, b.cast("zext", b.icmp("ne", back, total), I32))


def _byte_pairs(b: Builder, words: Value, name: str) -> list[Value]:
    """Return words of 4 bytes as words of two i16, bytes 0 and 2, and bytes 1 and 3, extended by the type's sign."""
    halves = b.cast("bitcast", words, vec("i16", 2 * lanes_of(words.ty)))
    shift, eight = "ashr" if name == "s8" else "lshr", const(halves.ty, 8)
    pairs = b.op(shift, b.op("shl", halves, eight), eight), b.op(shift, halves, eight)
    return [b.cast("bitcast", value, words.ty) for value in pairs]


def integer_body(b: Builder, kind: MmaKind, sets: AbstractContextManager[Set]) -> None:
    """Add pairs of products in i32 (vpmaddwd); an entire row of products stays below 2^21."""
    words = kind.k // 4
    a_pairs = b.alloca(f"[{512 * words} x i8]")
    b_pairs = b.alloca(f"[{64 * words} x i8]")
    for h, top in a_registers(kind):
        for half, value in enumerate(load_a(b, b.param("a"), h, top)):
            for s, pairs in enumerate(_byte_pairs(b, value, kind.a_type)):
                for t in range(4):
                    at = 256 * (2 * (4 * h + t) + s) + 64 * (2 * top + half)
                    b.store(for_four_columns(b, pairs, t), b.offset(a_pairs, at), align=64)

    def add(x: Value, y: Value, total: Value) -> Value:
        wide = [b.cast("sext", b.cast("bitcast", value, I16), PRODUCTS) for value in (x, y)]
        product = b.op("mul", *wide)
        return b.op("add", total, b.op("add", pick(b, product, range(0, 32, 2)), pick(b, product, range(1, 32, 2))))

    with sets as here:
        for h in range(words // 4):
            for s, pairs in enumerate(_byte_pairs(b, load_b(b, here.b, h), kind.b_type)):
                b.store(pairs, b.offset(b_pairs, 128 * (2 * h + s)), align=64)
        zeros = [const(I32, 0)] * 8
        sums = multiply_words(b, a_pairs, [b_pairs], I32, zeros, words=words, per_word=2, add=add)
        accumulators = load_accumulators(b, kind, here.c, count=8)
        results = []
        for c, value in zip(accumulators, sums, strict=True):
            results.append(b.intrinsic("sadd.sat", I32, [c, value]) if kind.satfinite else b.op("add", c, value))
        store_results(b, kind, results, here.d)


def f64_body(b: Builder, kind: MmaKind, sets: AbstractContextManager[Set]) -> None:
    """Write eight rows at a time: a lane of the vectors is a row; registers are 32 x i64, lane 4 g + t."""
    strips = range(kind.m // 8)
    a = [b.load(vec("double"), b.offset(b.param("a"), 256 * i), align=64) for i in range(kind.m * kind.k // 32)]
    a_columns = [
        [pick(b, a[k // 4 * len(strips) + strip], range(k % 4, 32, 4)) for k in range(kind.k)] for strip in strips
    ]

    def fma(x: Value, y: Value, total: Value) -> Value:
        if kind.rounding != "rn":
            return directed(b, "fma", kind.rounding, [x, y, total])
        return b.intrinsic("fma", F64, [x, y, total])

    with sets as here:
        for strip in strips:
            places = [512 * strip + 256 * i for i in range(2)]
            c = [b.load(vec("double"), b.offset(here.c, place), align=64) for place in places]
            results: list[list[Value]] = [[], []]
            for n in range(8):
                value = pick(b, c[n % 2], range(n // 2, 32, 4))
                for k in range(kind.k):
                    at = 256 * (k // 4) + 8 * (4 * n + k % 4)
                    factor = b.splat(b.load("double", b.offset(here.b, at), align=8), 8)
                    value = fma(a_columns[strip][k], factor, value)
                is_nan = b.fcmp("uno", value, value)
                results[n % 2].append(b.select(is_nan, const(F64, -nan), value))
            for place, parts in zip(places, results, strict=True):
                low, high = b.shuffle(parts[0], parts[1], range(16)), b.shuffle(parts[2], parts[3], range(16))
                order = [8 * t + row for row in range(8) for t in range(4)]
                b.store(b.shuffle(low, high, order), b.offset(here.d, place), align=64)


__all__ = ["MOST_SETS", "MmaKind", "tensorcore_ir"]
