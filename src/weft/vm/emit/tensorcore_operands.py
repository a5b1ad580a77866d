"""Registers of an mma fragment to and from the vectors that the arithmetic uses.

A warp register is 32 words. For A and B, lane = 4 g + t, and one word holds P elements (1, 2 or 4) that are
neighbours in K: register pair h, column t, element j is k = 4 P h + P t + j. g is a row of A (the pair's second
register has rows 8-15) or a column of B. For C and D, lane = 4 g + q holds columns 2 q and 2 q + 1 of row g.
The arithmetic works on C in its register order, 16 lanes at a time: 4 rows by 4 columns of one parity. So
  C: 8 vectors, number 4 top + 2 parity + half: rows 8 top + 4 half ..., columns of that parity,
  A: for each k 4 vectors, number 2 top + half: each of 4 rows repeated for the 4 columns,
  B: for each k and parity 4 numbers in memory, which a load repeats for the 4 rows.
Only A is moved between lanes at a cost, and A is what several instructions share.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from weft.vm.ir import Builder, Value, const, element, lanes_of, vec
from weft.vm.mma_kind import FORMATS, MmaKind
from weft.vm.runtime.shape import Variable

F32 = vec("float", 16)
I32 = vec("i32", 16)
I16 = vec("i16", 32)

_BY_COLUMN = [4 * (2 * q + parity) + t for t in range(4) for parity in range(2) for q in range(4)]
"""Lanes of a B register in the order [t][parity][q]."""


@contextmanager
def repeat(b: Builder, count: int) -> Iterator[Value]:
    """Loop with the test at the end; yields the number of the iteration."""
    turn, head, after = Variable(b, const("i64", 0)), b.label("turn"), b.label("after")
    b.place(head)
    now = turn.get()
    yield now
    following = b.op("add", now, const("i64", 1))
    turn.set(following)
    b.cbr(b.icmp("ult", following, const("i64", count)), head, after)
    b.place(after)


def scaled(b: Builder, pointer: Value, index: Value, size_bytes: int) -> Value:
    """Return `pointer` moved by `index` items."""
    return b.offset(pointer, b.op("mul", index, const("i64", size_bytes)))


def pick(b: Builder, value: Value, indices: Sequence[int]) -> Value:
    """Return a shuffle of one vector."""
    return b.shuffle(value, None, indices)


def umax(b: Builder, x: Value, y: Value) -> Value:
    return b.intrinsic("umax", x.ty, [x, y])


def umin(b: Builder, x: Value, y: Value) -> Value:
    return b.intrinsic("umin", x.ty, [x, y])


def four_columns(b: Builder, scalar: str, pointer: Value) -> Value:
    """Return 4 numbers in memory, repeated for 4 rows: one load."""
    return pick(b, b.load(vec(scalar, 4), pointer, align=16), list(range(4)) * 4)


def for_four_columns(b: Builder, value: Value, t: int) -> Value:
    """Return column t of 4 rows of an A register, repeated for the 4 columns of C."""
    per_row = lanes_of(value.ty) // 4
    if element(value.ty) == "i16":  # t counts halves of words: fill both halves
        return pick(b, value, [per_row * row + t for row in range(4) for _ in range(8)])
    return pick(b, value, [per_row * row + t for row in range(4) for _ in range(4)])


def a_registers(kind: MmaKind) -> Iterator[tuple[int, int]]:
    """Return (h, top) of each register of A, in order."""
    bits = 8 if kind.is_integer else FORMATS[kind.a_type].storage_bits
    return ((h, top) for h in range(kind.k * bits // 128) for top in range(2))


def load_a(b: Builder, a: Value, h: int, top: int) -> list[Value]:
    """Return the halves of one A register: rows 0-3 and 4-7 above `top`."""
    return [b.load(I32, b.offset(a, 128 * (2 * h + top) + 64 * half), align=64) for half in range(2)]


def load_b(b: Builder, pointer: Value, h: int) -> Value:
    """Return one B register in the order [t][parity][q]."""
    return pick(b, b.load(vec("i32"), b.offset(pointer, 128 * h), align=64), _BY_COLUMN)


@dataclass
class Tests:
    """Running tests of a set of operands: any true test sends the tile to the exact path."""

    special: list[Value] = field(default_factory=list)
    tiny: list[Value] = field(default_factory=list)  # a non-zero operand below 2^-45

    def __add__(self, other: "Tests") -> "Tests":
        return Tests(self.special + other.special, self.tiny + other.tiny)


@dataclass(frozen=True)
class Decoded:
    """The place of a decoded operand on the stack."""

    floats: Value  # A: [k][4 vectors]; B: see b_float_offset
    exponents: Value | None  # A: [k][group]; B: see b_exponent_offset
    tests: Tests

    def at(self, b: Builder, group: Value, float_bytes: int, exponent_bytes: int) -> "Decoded":
        """Return the place for another group of accumulators."""
        assert self.exponents is not None
        floats = scaled(b, self.floats, group, float_bytes)
        return Decoded(floats, scaled(b, self.exponents, group, exponent_bytes), self.tests)


@dataclass(frozen=True)
class OperandCode:
    """Generates the decoding of A and B of one kind."""

    kind: MmaKind
    exponents: bool  # hardware mode needs the exponents as well

    @property
    def per_word(self) -> int:
        return 32 // FORMATS[self.kind.a_type].storage_bits

    @property
    def narrow(self) -> bool:
        """Return whether exponents fit a byte, as those of f16 and fp8 do; bf16 and tf32 need 16 bits."""
        return self.kind.a_type not in ("bf16", "tf32")

    @property
    def group_size(self) -> int:
        """Return the accumulators whose exponents share a word: both parities, with 8-bit exponents of both halves."""
        return 4 if self.narrow else 2

    @property
    def groups(self) -> int:
        return 8 // self.group_size

    @property
    def b_float_bytes(self) -> int:
        return 32 * self.kind.k

    @property
    def b_exponent_bytes(self) -> int:
        return 16 * self.kind.k

    def b_float_offset(self, k: int) -> int:
        """Return the byte offset of the 4 even columns of b[k]; the odd ones are 16 further."""
        h, t, j = k // (4 * self.per_word), k % (4 * self.per_word) // self.per_word, k % self.per_word
        return 128 * (h * self.per_word + j) + 32 * t

    def b_exponent_offset(self, k: int) -> int:
        """Return the byte offset of 4 words with the packed exponents of columns 2 q and 2 q + 1 of b[k]."""
        return self.b_float_offset(k) // 2

    def decode_a(self, b: Builder, a: Value) -> Decoded:
        kind = self.kind
        floats = b.alloca(f"[{256 * kind.k} x i8]")
        exponents = b.alloca(f"[{64 * self.groups * kind.k} x i8]") if self.exponents else None
        seen: list[Value] = []
        for h, top in a_registers(kind):
            halves = [self._split(b, words, kind.a_type) for words in load_a(b, a, h, top)]
            for parts in zip(*halves, strict=True):  # the same elements of both halves of the register
                first, step, _ = parts[0]
                start = 4 * self.per_word * h + first
                for half, (_, _, bits) in enumerate(parts):
                    for s, value in enumerate(self._floats(b, bits, kind.a_type)):
                        for t in range(4):
                            at = 256 * (start + self.per_word * t + step * s) + 64 * (2 * top + half)
                            b.store(for_four_columns(b, value, t), b.offset(floats, at), align=64)
                if exponents is not None:
                    patterns = [bits for _, _, bits in parts]
                    seen += patterns
                    self._store_a_exponents(b, patterns, exponents, start, step, top)
        tests = self._test_range(b, seen, kind.a_type) if self.exponents else Tests()
        return Decoded(floats, exponents, tests)

    def decode_b(self, b: Builder, source: Value, floats: Value, exponents: Value | None) -> Decoded:
        kind = self.kind
        seen: list[Value] = []
        for h in range(kind.k // (4 * self.per_word)):
            for first, step, bits in self._split(b, load_b(b, source, h), kind.b_type):
                seen.append(bits)
                for s, value in enumerate(self._floats(b, bits, kind.b_type)):
                    if self._b_scale:
                        value = b.op("fmul", value, const(value.ty, 2.0**self._b_scale))
                    at = 128 * (h * self.per_word + first + step * s)
                    b.store(value, b.offset(floats, at), align=64)
                if exponents is not None:
                    self._store_b_exponents(b, bits, exponents, h * self.per_word + first, step)
        tests = self._test_range(b, seen, kind.b_type) if self.exponents else Tests()
        return Decoded(floats, exponents, tests)

    @property
    def _b_scale(self) -> int:
        """Return the scale of b: e4m3 is decoded as an f16 that is 2^-8 too small; b corrects both operands."""
        return 8 * (self.kind.a_type == "e4m3") + 8 * (self.kind.b_type == "e4m3")

    def _split(self, b: Builder, words: Value, name: str) -> list[tuple[int, int, Value]]:
        """Return words as vectors of f16 / bf16 / tf32 bit patterns as (j of the first, step of j, vector)."""
        if name == "tf32":
            return [(0, 1, b.op("and", words, const(words.ty, -8192)))]  # the low 13 bits do not exist
        halves = b.cast("bitcast", words, vec("i16", 2 * lanes_of(words.ty)))
        if self.per_word == 2:
            return [(0, 1, halves)]
        even = b.op("shl", halves, const(halves.ty, 8))
        odd = b.op("and", halves, const(halves.ty, -256))
        if name == "e4m3":
            even, odd = self._e4m3_to_f16(b, even), self._e4m3_to_f16(b, odd)
        return [(0, 2, even), (1, 2, odd)]  # an e5m2 byte is the upper byte of its f16

    @staticmethod
    def _e4m3_to_f16(b: Builder, top: Value) -> Value:
        """Return S.EEEE.MMM in the upper byte as f16 of the value times 2^-8 (denormals too); NaN -> NaN."""
        ty = top.ty
        sign = b.op("and", top, const(ty, -32768))
        magnitude = b.op("lshr", b.op("and", top, const(ty, 0x7F00)), const(ty, 1))
        is_nan = b.icmp("eq", magnitude, const(ty, 0x7F << 7))
        return b.op("or", sign, b.select(is_nan, const(ty, 0x7E00), magnitude))

    @staticmethod
    def _floats(b: Builder, bits: Value, name: str) -> list[Value]:
        """Return bit patterns as f32 vectors, one per 16-bit half of a word (tf32: one)."""
        if name == "tf32":
            return [b.cast("bitcast", bits, vec("float", lanes_of(bits.ty)))]
        count = lanes_of(bits.ty)
        target = vec("float", count // 2)
        if name == "bf16":
            words = b.cast("bitcast", bits, vec("i32", count // 2))
            low, high = b.op("shl", words, const(words.ty, 16)), b.op("and", words, const(words.ty, -65536))
            return [b.cast("bitcast", value, target) for value in (low, high)]
        parted = pick(b, bits, [*range(0, count, 2), *range(1, count, 2)])
        wide = b.cast("fpext", b.cast("bitcast", parted, vec("half", count)), vec("float", count))
        return [pick(b, wide, range(count // 2)), pick(b, wide, range(count // 2, count))]

    @staticmethod
    def _unbiased(b: Builder, bits: Value, name: str, offset: int) -> Value:
        """Return exponents plus `offset`; a zero's is so low that its term, with any partner, is never the largest."""
        shift, bias = {"bf16": (7, 127), "tf32": (23, 127)}.get(name, (10, 15))
        ty = bits.ty
        magnitude = b.op("and", bits, const(ty, 0x7FFFFFFF if name == "tf32" else 0x7FFF))
        exponent = umax(b, b.op("lshr", magnitude, const(ty, shift)), const(ty, 1))
        if offset != bias:
            exponent = b.op("add", exponent, const(ty, offset - bias))
        return b.select(b.icmp("eq", magnitude, const(ty, 0)), const(ty, -126 if bias == 15 else -512), exponent)

    def _store_a_exponents(self, b: Builder, halves: list[Value], out: Value, start: int, step: int, top: int) -> None:
        """Store one vector per k and group; 8-bit exponents are unbiased, 16-bit ones have bias 127 (B removes it)."""
        exponents = [self._unbiased(b, bits, self.kind.a_type, 0 if self.narrow else 127) for bits in halves]
        if self.narrow:  # the bytes of a word: first half, second half, twice
            low, high = b.op("and", exponents[0], const(I16, 255)), b.op("shl", exponents[1], const(I16, 8))
            exponents = [b.op("or", low, high)]
        per_top = len(exponents)
        per_step = 2 if self.kind.a_type != "tf32" else 1
        for half, exponent in enumerate(exponents):
            as_halves = b.cast("bitcast", exponent, I16)  # tf32: the upper half of a word is ignored
            for t in range(4):
                for s in range(per_step):
                    k = start + self.per_word * t + step * s
                    at = 64 * (self.groups * k + per_top * top + half)
                    b.store(for_four_columns(b, as_halves, 2 * t + s), b.offset(out, at), align=64)

    def _store_b_exponents(self, b: Builder, bits: Value, out: Value, row: int, step: int) -> None:
        """Store words of packed exponents, [j][t][q]. The 16-bit sums have bias 127."""
        exponent = self._unbiased(b, bits, self.kind.b_type, self._b_scale if self.narrow else 0)
        per_step = lanes_of(bits.ty) // 32
        fields = (0, 0, 1, 1) if self.narrow else (0, 1)
        small = b.cast("trunc", exponent, vec("i8" if self.narrow else "i16", lanes_of(bits.ty)))
        for s in range(per_step):
            order = [per_step * (8 * t + 4 * parity + q) + s for t in range(4) for q in range(4) for parity in fields]
            b.store(pick(b, small, order), b.offset(out, 64 * (row + step * s)), align=64)

    @staticmethod
    def _test_range(b: Builder, vectors: list[Value], name: str) -> Tests:
        """Test for infinity or NaN anywhere; for the formats with f32's range also non-zero values below 2^-45."""
        infinity, tiny = {
            "bf16": (0x7F80, (127 - 45) << 7),
            "tf32": (0x7F800000, (127 - 45) << 23),
        }.get(name, (0x7C00, 0))
        ty = vectors[0].ty
        magnitudes = [b.op("and", bits, const(ty, 0x7FFFFFFF if name == "tf32" else 0x7FFF)) for bits in vectors]
        largest = _reduce(b, umax, magnitudes)
        tests = Tests([any_lane(b, b.icmp("uge", largest, const(ty, infinity)))])
        if tiny:  # zero wraps to the largest number, so that the minimum is over non-zero values
            smallest = _reduce(b, umin, [b.op("add", x, const(ty, -1)) for x in magnitudes])
            tests.tiny.append(any_lane(b, b.icmp("ult", smallest, const(ty, tiny - 1))))
        return tests


def _reduce(b: Builder, combine: Callable[[Builder, Value, Value], Value], values: list[Value]) -> Value:
    result = values[0]
    for value in values[1:]:
        result = combine(b, result, value)
    return result


def any_lane(b: Builder, condition: Value) -> Value:
    packed = b.cast("bitcast", condition, f"i{lanes_of(condition.ty)}")
    return b.icmp("ne", packed, const(packed.ty, 0))


def register_bytes(type_name: str) -> int:
    """Return the bytes of the 8 accumulator vectors."""
    return 256 if type_name == "f16" else 512


def load_accumulators(b: Builder, kind: MmaKind, base: Value, *, stride: int = 64, count: int = 4) -> list[Value]:
    """Return `count` accumulators from `base` on as f32 (or s32) bits; f16 ones share words, even columns below."""
    if kind.c_type != "f16":
        return [b.load(I32, b.offset(base, stride * n), align=64) for n in range(count)]
    words = [b.load(I32, b.offset(base, 64 * half), align=64) for half in range(2)]
    words += [b.op("lshr", word, const(I32, 16)) for word in words]
    halves = [b.cast("bitcast", b.cast("trunc", word, vec("i16", 16)), vec("half", 16)) for word in words]
    return [b.cast("bitcast", b.cast("fpext", half, F32), I32) for half in halves]


def store_results(b: Builder, kind: MmaKind, values: Sequence[Value], base: Value, *, stride: int = 64) -> None:
    """Store results, the inverse of `load_accumulators`. f16 results are already in the low half of each word."""
    if kind.d_type == "f16":
        shifted = [b.op("shl", value, const(I32, 16)) for value in values[2:]]
        values = [b.op("or", low, high) for low, high in zip(values[:2], shifted, strict=True)]
    for n, value in enumerate(values):
        b.store(value, b.offset(base, stride * n), align=64)


def half_bits(b: Builder, value: Value) -> Value:
    """Return the bits of the nearest f16 of an f32, in the low part of each word."""
    half = b.cast("fptrunc", value, vec("half", 16))
    return b.cast("zext", b.cast("bitcast", half, vec("i16", 16)), I32)


def multiply_words(
    b: Builder,
    a: Value,
    columns: Sequence[Value],
    ty: str,
    start: Sequence[Value],
    *,
    words: int,
    per_word: int,
    add: Callable[[Value, Value, Value], Value],
) -> list[Value]:
    """Return `add` (a, b, accumulator) over all of K for the 8 accumulators of each of `columns`, the sets of B.

    A loop over words of B: its moving address keeps b in memory, where repeating it for four rows is free;
    if it were unrolled, LLVM would keep b in registers and need a shuffle each time.
    """
    running = [Variable(b, value) for value in start]
    with repeat(b, words) as word:
        a_here = scaled(b, a, word, 256 * per_word)
        pair = b.op("mul", b.op("lshr", word, const("i64", 2)), const("i64", 128 * per_word))
        column = b.op("shl", b.op("and", word, const("i64", 3)), const("i64", 5))
        here = [b.offset(base, b.op("add", pair, column)) for base in columns]
        values = [variable.get() for variable in running]
        for j in range(per_word):
            rows = [b.load(ty, b.offset(a_here, 256 * j + 64 * n), align=64) for n in range(4)]
            for first, base in zip(range(0, len(values), 8), here, strict=True):
                parities = [four_columns(b, element(ty), b.offset(base, 128 * j + 16 * parity)) for parity in range(2)]
                for n in range(8):
                    at = first + n
                    values[at] = add(rows[2 * (n // 4) + n % 2], parities[n // 2 % 2], values[at])
        for variable, value in zip(running, values, strict=True):
            variable.set(value)
    return [variable.get() for variable in running]
