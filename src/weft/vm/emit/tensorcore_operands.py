"""Registers of an mma fragment to and from the vectors the arithmetic works on.

A warp register is 32 words, lane = 4 g + t (g = groupID, t = threadID_in_group), so a pair of A registers
is a 16-row tile whose column t is the words 4 g + t. One word holds P elements (1, 2 or 4) that are
neighbours in K: register pair h, column t, element j is k = 4 P h + P t + j; for B, g is the column n.
The arithmetic wants
  A: for each k one vector of the 16 rows,      B: for each (k, n) a scalar in memory, loaded as a broadcast,
  C and D: for each column n one vector of the 16 rows.
"""

from dataclasses import dataclass, field

from weft.vm.emit.ir_text import IrText, f32_constant, splat
from weft.vm.mma_kind import FORMATS, MmaKind

F32 = "<16 x float>"
I32 = "<16 x i32>"


def tile_columns(ir: IrText, base: str, first: int, second: int) -> list[str]:
    """The 4 columns (<16 x i32>) of the tile whose rows 0-7 are register `first` and rows 8-15 `second`."""
    offsets = [128 * register + half for register in (first, second) for half in (0, 64)]
    x0, x1, y0, y1 = (ir.load(I32, base, offset, align=64) for offset in offsets)
    even, odd = range(0, 32, 2), range(1, 32, 2)
    x_even, y_even = ir.shuffle(I32, x0, x1, even), ir.shuffle(I32, y0, y1, even)  # t = 0 and 2
    x_odd, y_odd = ir.shuffle(I32, x0, x1, odd), ir.shuffle(I32, y0, y1, odd)  # t = 1 and 3
    return [
        ir.shuffle(I32, x_even, y_even, even),
        ir.shuffle(I32, x_odd, y_odd, even),
        ir.shuffle(I32, x_even, y_even, odd),
        ir.shuffle(I32, x_odd, y_odd, odd),
    ]


def _store_tile_columns(ir: IrText, columns: list[str], base: str, first: int, second: int) -> None:
    """The inverse of `tile_columns`."""
    zip_low = [lane for i in range(8) for lane in (i, 16 + i)]
    zip_high = [lane + 8 for lane in zip_low]
    for register, pick in ((first, zip_low), (second, zip_high)):
        even = ir.shuffle(I32, columns[0], columns[2], pick)
        odd = ir.shuffle(I32, columns[1], columns[3], pick)
        ir.store(I32, ir.shuffle(I32, even, odd, zip_low), base, 128 * register, align=64)
        ir.store(I32, ir.shuffle(I32, even, odd, zip_high), base, 128 * register + 64, align=64)


@dataclass
class Operands:
    """Where decoded operands lie on the stack, and the running tests that choose the exact path."""

    a_floats: str = ""  # [k][16 rows] f32
    b_floats: str = ""  # [k][...]: see b_float_offset
    a_exponents: str = ""  # [k][16 rows], the exponent repeated `columns_per_word` times in a word
    b_exponents: str = ""  # [k][group of columns]: one word of packed exponents
    tests: list[str] = field(default_factory=list)  # i1 values: any true sends the tile to the exact path
    tiny: list[str] = field(default_factory=list)  # i1 values: a non-zero operand below 2^-45


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
        """f16 and fp8 exponents fit a byte (4 columns in a word); bf16 and tf32 need 16 bits (2 columns)."""
        return self.kind.a_type not in ("bf16", "tf32")

    @property
    def columns_per_word(self) -> int:
        return 4 if self.narrow else 2

    @property
    def register_pairs(self) -> int:
        return self.kind.k // (4 * self.per_word)

    def place(self, k: int) -> tuple[int, int, int]:
        """k -> (register pair h, column t, element j)."""
        return k // (4 * self.per_word), k % (4 * self.per_word) // self.per_word, k % self.per_word

    def b_float_offset(self, k: int) -> int:
        """Byte offset of b[k][0]; b[k][n] is 16 n further."""
        h, t, j = self.place(k)
        return 128 * (h * self.per_word + j) + 4 * t

    def b_exponent_offset(self, k: int) -> int:
        """Byte offset of the packed exponents of columns 0..; the next group of columns is 16 further."""
        h, t, j = self.place(k)
        group_bytes = 16 * 8 // self.columns_per_word
        return group_bytes * (h * self.per_word + j) + 4 * t

    def decode(self, ir: IrText) -> Operands:
        out = Operands()
        out.a_floats = ir.alloca(64 * self.kind.k)
        out.b_floats = ir.alloca(32 * self.kind.k)
        if self.exponents:
            out.a_exponents = ir.alloca(64 * self.kind.k)
            out.b_exponents = ir.alloca(32 * self.kind.k)
        a_largest: list[str] = []
        b_largest: list[str] = []
        for h in range(self.register_pairs):
            for t, words in enumerate(tile_columns(ir, "%a", 2 * h, 2 * h + 1)):
                k = 4 * self.per_word * h + self.per_word * t
                for first, step, bits in self._split(ir, words, 16, self.kind.a_type):
                    floats = self._floats(ir, bits, 16, self.kind.a_type)
                    for s, value in enumerate(floats):
                        ir.store(F32, value, out.a_floats, 64 * (k + first + step * s), align=64)
                    if self.exponents:
                        self._store_a_exponents(ir, bits, out, k + first, step)
                        a_largest.append(bits)
            words = ir.load("<32 x i32>", "%b", 128 * h, align=64)
            for first, step, bits in self._split(ir, words, 32, self.kind.b_type):
                for s, value in enumerate(self._floats(ir, bits, 32, self.kind.b_type)):
                    if self._b_scale:
                        factor = splat("float", f32_constant(self._b_scale))
                        value = ir.op("fmul", "<32 x float>", value, factor)
                    offset = 128 * (h * self.per_word + first + step * s)
                    ir.store("<32 x float>", value, out.b_floats, offset, align=64)
                if self.exponents:
                    self._store_b_exponents(ir, bits, out, h, first, step)
                    b_largest.append(bits)
        if self.exponents:
            self._test_range(ir, a_largest, 16, self.kind.a_type, out)
            self._test_range(ir, b_largest, 32, self.kind.b_type, out)
        return out

    @property
    def _b_scale(self) -> int:
        """e4m3 is decoded as an f16 that is 2^-8 too small; b makes up for both operands (exactly)."""
        return 8 * (self.kind.a_type == "e4m3") + 8 * (self.kind.b_type == "e4m3")

    def _split(self, ir: IrText, words: str, lanes: int, name: str) -> list[tuple[int, int, str]]:
        """Words -> vectors of f16 / bf16 / tf32 bit patterns as (j of the first, step of j, vector)."""
        ty = f"<{lanes} x i32>"
        if name == "tf32":
            return [(0, 1, ir.op("and", ty, words, splat("i32", -8192)))]  # the low 13 bits do not exist
        half_type = f"<{2 * lanes} x i16>"
        halves = ir.cast("bitcast", ty, words, half_type)
        if self.per_word == 2:
            return [(0, 1, halves)]
        even = ir.op("shl", half_type, halves, splat("i16", 8))
        odd = ir.op("and", half_type, halves, splat("i16", -256))
        if name == "e4m3":
            even, odd = self._e4m3_to_f16(ir, half_type, even), self._e4m3_to_f16(ir, half_type, odd)
        return [(0, 2, even), (1, 2, odd)]  # an e5m2 byte is the upper byte of its f16

    @staticmethod
    def _e4m3_to_f16(ir: IrText, ty: str, top: str) -> str:
        """S.EEEE.MMM in the upper byte -> f16 of the value times 2^-8 (denormals too); NaN -> NaN."""
        sign = ir.op("and", ty, top, splat("i16", -32768))
        magnitude = ir.op("lshr", ty, ir.op("and", ty, top, splat("i16", 0x7F00)), splat("i16", 1))
        is_nan = ir.op("icmp eq", ty, magnitude, splat("i16", 0x7F << 7))
        magnitude = ir.select(ty, is_nan, splat("i16", 0x7E00), magnitude)
        return ir.op("or", ty, sign, magnitude)

    @staticmethod
    def _floats(ir: IrText, bits: str, lanes: int, name: str) -> list[str]:
        """Bit patterns -> f32 vectors, one per 16-bit half of a word (tf32: one)."""
        ty, target = f"<{lanes} x i32>", f"<{lanes} x float>"
        if name == "tf32":
            return [ir.cast("bitcast", ty, bits, target)]
        half_type = f"<{2 * lanes} x i16>"
        if name == "bf16":
            words = ir.cast("bitcast", half_type, bits, ty)
            low = ir.op("shl", ty, words, splat("i32", 16))
            high = ir.op("and", ty, words, splat("i32", -65536))
            return [ir.cast("bitcast", ty, value, target) for value in (low, high)]
        parted = ir.pick(half_type, bits, [*range(0, 2 * lanes, 2), *range(1, 2 * lanes, 2)])
        halves = ir.cast("bitcast", half_type, parted, f"<{2 * lanes} x half>")
        wide_type = f"<{2 * lanes} x float>"
        wide = ir.cast("fpext", f"<{2 * lanes} x half>", halves, wide_type)
        return [ir.pick(wide_type, wide, range(lanes)), ir.pick(wide_type, wide, range(lanes, 2 * lanes))]

    def _unbiased(self, ir: IrText, bits: str, lanes: int, name: str, offset: int) -> tuple[str, str]:
        """Exponents plus `offset`, by the rule: denormals have the smallest exponent, zeros -126."""
        element, shift, bias = {"bf16": ("i16", 7, 127), "tf32": ("i32", 23, 127)}.get(name, ("i16", 10, 15))
        ty = f"<{lanes if element == 'i32' else 2 * lanes} x {element}>"
        magnitude = ir.op("and", ty, bits, splat(element, (1 << (int(element[1:]) - 1)) - 1))
        exponent = ir.op("lshr", ty, magnitude, splat(element, shift))
        exponent = ir.call(ty, "llvm.umax", exponent, splat(element, 1))
        if offset != bias:
            exponent = ir.op("add", ty, exponent, splat(element, offset - bias))
        if bias == 15:  # with bias 127 a zero has exponent -126 already
            is_zero = ir.op("icmp eq", ty, magnitude, splat(element, 0))
            exponent = ir.select(ty, is_zero, splat(element, -126), exponent)
        return ty, exponent

    def _store_a_exponents(self, ir: IrText, bits: str, out: Operands, k: int, step: int) -> None:
        """One vector per k; 8-bit exponents are true ones, 16-bit ones keep the bias 127 (B takes it off)."""
        ty, exponent = self._unbiased(ir, bits, 16, self.kind.a_type, 0 if self.narrow else 127)
        if self.narrow:
            lane_bytes = ir.cast("bitcast", ty, exponent, "<64 x i8>")
            for s in range(2):
                order = [4 * r + 2 * s for r in range(16) for _ in range(4)]
                repeated = ir.pick("<64 x i8>", lane_bytes, order)
                ir.store("<64 x i8>", repeated, out.a_exponents, 64 * (k + step * s), align=64)
        elif ty == I32:
            repeated = ir.op("or", I32, exponent, ir.op("shl", I32, exponent, splat("i32", 16)))
            ir.store(I32, repeated, out.a_exponents, 64 * k, align=64)
        else:
            for s in range(2):
                repeated = ir.pick(ty, exponent, [2 * r + s for r in range(16) for _ in range(2)])
                ir.store(ty, repeated, out.a_exponents, 64 * (k + step * s), align=64)

    def _store_b_exponents(self, ir: IrText, bits: str, out: Operands, h: int, first: int, step: int) -> None:
        """Words of packed exponents, [j][group of columns][t]. The 16-bit sums come out with bias 127."""
        ty, exponent = self._unbiased(ir, bits, 32, self.kind.b_type, self._b_scale if self.narrow else 0)
        halves = 1 if ty == "<32 x i32>" else 2
        element, per_word = ("i8", 4) if self.narrow else ("i16", 2)
        small = f"<{32 * halves} x {element}>"
        exponent = ir.cast("trunc", ty, exponent, small)
        group_bytes = 128 // per_word
        for s in range(halves):
            order = [
                ((group * per_word + n) * 4 + t) * halves + s
                for group in range(8 // per_word) for t in range(4) for n in range(per_word)
            ]
            packed = ir.pick(small, exponent, order)
            offset = group_bytes * (h * self.per_word + first + step * s)
            ir.store(f"<32 x {element}>", packed, out.b_exponents, offset, align=32)

    def _test_range(self, ir: IrText, vectors: list[str], lanes: int, name: str, out: Operands) -> None:
        """Infinity or NaN anywhere; for the formats with f32's range also non-zero values below 2^-45."""
        element, infinity, tiny = {
            "bf16": ("i16", 0x7F80, (127 - 45) << 7), "tf32": ("i32", 0x7F800000, (127 - 45) << 23),
        }.get(name, ("i16", 0x7C00, 0))
        ty = f"<{lanes if element == 'i32' else 2 * lanes} x {element}>"
        largest = smallest = ""
        for bits in vectors:
            magnitude = ir.op("and", ty, bits, splat(element, (1 << (int(element[1:]) - 1)) - 1))
            largest = ir.call(ty, "llvm.umax", largest, magnitude) if largest else magnitude
            if tiny:  # zero wraps to the largest number, so that the minimum is over non-zero values
                below = ir.op("add", ty, magnitude, splat(element, -1))
                smallest = ir.call(ty, "llvm.umin", smallest, below) if smallest else below
        out.tests.append(any_lane(ir, ir.op("icmp uge", ty, largest, splat(element, infinity)), ty))
        if tiny:
            out.tiny.append(any_lane(ir, ir.op("icmp ult", ty, smallest, splat(element, tiny - 1)), ty))


def any_lane(ir: IrText, condition: str, ty: str) -> str:
    lanes = int(ty[1 : ty.index(" x ")])
    packed = ir.cast("bitcast", f"<{lanes} x i1>", condition, f"i{lanes}")
    return ir.op("icmp ne", f"i{lanes}", packed, "0")


def load_accumulators(ir: IrText, kind: MmaKind, columns: str) -> None:
    """C -> f32 columns on the stack, [n][16 rows]. (Integer accumulators: the same words.)"""
    if kind.c_type == "f16":
        for t, words in enumerate(tile_columns(ir, "%c", 0, 1)):
            halves = ir.cast("bitcast", I32, words, "<32 x i16>")
            parted = ir.pick("<32 x i16>", halves, [*range(0, 32, 2), *range(1, 32, 2)])
            halves = ir.cast("bitcast", "<32 x i16>", parted, "<32 x half>")
            wide = ir.cast("fpext", "<32 x half>", halves, "<32 x float>")
            for parity in range(2):
                column = ir.pick("<32 x float>", wide, range(16 * parity, 16 * parity + 16))
                ir.store(F32, column, columns, 64 * (2 * t + parity), align=64)
    else:
        for parity in range(2):
            for t, column in enumerate(tile_columns(ir, "%c", parity, 2 + parity)):
                ir.store(I32, column, columns, 64 * (2 * t + parity), align=64)


def store_results(ir: IrText, kind: MmaKind, columns: str) -> None:
    """Columns on the stack -> D registers. f16 results are already halves in the low part of each word."""
    for parity in range(2 if kind.d_type != "f16" else 1):
        words = []
        for t in range(4):
            word = ir.load(I32, columns, 64 * (2 * t + parity), align=64)
            if kind.d_type == "f16":
                upper = ir.load(I32, columns, 64 * (2 * t + 1), align=64)
                word = ir.op("or", I32, word, ir.op("shl", I32, upper, splat("i32", 16)))
            words.append(word)
        second = 1 if kind.d_type == "f16" else 2 + parity
        _store_tile_columns(ir, words, "%d", parity, second)


__all__ = [
    "F32", "I32", "OperandCode", "Operands", "any_lane", "load_accumulators", "store_results", "tile_columns",
]
