"""Integers of a thread in two versions: the bits that the machine has, and the value without any limit.

    int row = (b * HQ + h) * SQ + i;      bits 0x80000000, exact 2147483648
    q[row]                                cvt.s64.s32: bits -2147483648, exact 2147483648: the index overflowed

Every operation is one function of integers, applied to both versions. A wrap that is undone (a - b + c) is not an
overflow: bits and exact agree again. Nor is a wrap that unsigned arithmetic intends: a negative number that is read as
unsigned means its bits.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..module import WIDTH, Instruction


class Number(NamedTuple):
    """A value of a register."""

    bits: int
    width: int
    exact: int
    origin: "tuple[Instruction, int] | None" = None
    """The 32-bit instruction that first left the range of an int, and its exact result."""
    maker: "Instruction | None" = None
    """The instruction that computed it."""

    def moved(self, before: "Number", steps: int) -> "Number":
        """Return the value after `steps` more steps like the one from `before`."""
        bits = self.bits + steps * (self.bits - before.bits) & (1 << self.width) - 1
        exact = self.exact + steps * (self.exact - before.exact)
        origin = self.origin
        if origin is None and self.maker is not None and self.width == 32 and not _fits_int(exact):
            origin = (self.maker, exact)
        return Number(bits, self.width, exact, origin, self.maker)


class Difference(NamedTuple):
    """The operands of a comparison as one value: `a - b`, compared with 0."""

    cmp: str
    value: int

    def holds(self, value: int) -> bool:
        return COMPARE[self.cmp](value, 0)

    def steps_to_flip(self, before: "Difference") -> int | None:
        """Return after how many more steps like the last one the result of the comparison changes; None: never."""
        step = self.value - before.value
        now = self.holds(self.value)
        if self.cmp != before.cmp or step == 0 or self.holds(before.value) != now:
            return None
        if self.cmp in ("eq", "ne"):
            if now == (self.cmp == "eq"):  # equal, and the difference changes
                return 1
            meets = -self.value % step == 0 and -self.value // step > 0
            return -self.value // step if meets else None
        nearest = max(1, -self.value // step - 1)
        return next((k for k in range(nearest, nearest + 4) if self.holds(self.value + k * step) != now), None)


class Truth(NamedTuple):
    """A value of a predicate, and the comparisons that produce it."""

    value: bool
    differences: tuple[Difference, ...] = ()


Value = Number | Truth | None
"""None: not followed, such as floating point and the contents of memory."""

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    **dict.fromkeys(("lt", "lo"), lambda a, b: a < b),
    **dict.fromkeys(("le", "ls"), lambda a, b: a <= b),
    **dict.fromkeys(("gt", "hi"), lambda a, b: a > b),
    **dict.fromkeys(("ge", "hs"), lambda a, b: a >= b),
}


def known(value: int, ptx_type: str) -> Number:
    """Return a number whose bits are exact: an immediate, a parameter, a special register."""
    width = WIDTH[ptx_type]
    if ptx_type[0] != "u" and value >> width - 1 == 1:  # 0xFFFFFFF0 as a mask is -16
        value -= 1 << width
    return Number(value & (1 << width) - 1, width, value)


def actual(number: Number, ptx_type: str) -> int:
    """Return the value that the machine reads."""
    width = WIDTH[ptx_type]
    bits = number.bits & (1 << width) - 1
    return bits - (1 << width) if ptx_type[0] == "s" and bits >> width - 1 else bits


def exact(number: Number, ptx_type: str) -> int:
    """Return the value that should be read: a negative number, read as unsigned, means its bits."""
    return actual(number, ptx_type) if ptx_type[0] == "u" and number.exact < 0 else number.exact


MOST_BITS = 128
"""A value that needs more bits is not an index, but a hash or a random number."""

Operation = Callable[..., int]


def operation(ins: Instruction) -> Operation | None:
    """Return the integer function that an instruction computes; None for one that is not followed."""
    if any(mod in ins.mods for mod in ("cc", "sat", "relu")) or ins.mods.get("type", "").endswith("x2"):
        return None
    width = WIDTH.get(ins.mods.get("type", ""), 0)
    name, mode = ins.form.name, ins.mods.get("mode", "lo")
    if name in ("mul", "mad") and mode == "hi":
        return (lambda a, b: a * b >> width) if name == "mul" else (lambda a, b, c: (a * b >> width) + c)
    if name == "shl":
        return lambda a, b: a << b if b < width else 0
    if name == "shr":
        return lambda a, b: a >> min(b, width)
    if name == "bfe":
        return _extract_signed if ins.type[0] == "s" else lambda a, b, c: a >> b & (1 << c) - 1
    if name == "bfi":
        return lambda a, b, c, e: _insert(a, b, c, e if c + e < width else 0)
    return _PLAIN.get(name) if "bool" not in ins.mods else None


def _divide(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0


def _extract_signed(a: int, at: int, count: int) -> int:
    field = a >> at & (1 << count) - 1
    return field - (1 << count) if count and field >> count - 1 else field


def _insert(field: int, into: int, at: int, count: int) -> int:
    """Insert a field in the middle, or (`count` 0) at the top: a shift that loses upper bits, as in row * 64 + lane."""
    if not count:
        return field << at | into & (1 << at) - 1
    mask = (1 << count) - 1
    return into & ~(mask << at) | (field & mask) << at


def _look_up(a: int, b: int, c: int, table: int) -> int:
    """Compute lop3: bit i of the table is the result where a, b and c are the bits 2, 1 and 0 of i."""
    rows = [i for i in range(8) if table >> i & 1]
    return sum((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c) for i in rows)


_PLAIN: dict[str, Operation] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mad": lambda a, b, c: a * b + c,
    "div": _divide,
    "rem": lambda a, b: a - _divide(a, b) * b,
    "min": min,
    "max": max,
    "abs": abs,
    "neg": lambda a: -a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "lop3": _look_up,
}


def made(ins: Instruction, ptx_type: str, bits: int, exact: int, sources: Sequence[Number]) -> Number | None:
    """Return the result of an instruction: its bits cut to its type, and the instruction at fault if they are wrong."""
    width = WIDTH[ptx_type]
    if abs(exact) >> MOST_BITS:
        return None
    origin = None
    mask = (1 << width) - 1
    leaves = width == 32 and not _fits_int(exact)
    if leaves or (bits - exact) & mask:
        origin = next((source.origin for source in sources if source.origin), None)
        if origin is None and leaves:
            origin = (ins, exact)
    return Number(bits & mask, width, exact, origin, ins)


def _fits_int(value: int) -> bool:
    return -(1 << 31) <= value < 1 << 31
