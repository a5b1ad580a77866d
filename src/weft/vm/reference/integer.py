"""Integer arithmetic, lane by lane in Python's unbounded integers (PTX ISA 9.7.1 and 9.7.2)."""

from collections.abc import Callable, Iterable

import numpy as np

from weft.ptx.module import WIDTH, Instruction

from .warp import Warp

CARRY = "%cc"


def _ints(w: Warp, ins: Instruction, name: str) -> list[int]:
    values: list[int] = w.src(ins, name).tolist()
    return values


def _put(w: Warp, ins: Instruction, values: Iterable[int]) -> None:
    """Write the low bits of the results."""
    width = WIDTH[ins.operand_type("d")]
    w.dst(ins, np.array([value & ((1 << width) - 1) for value in values], f"uint{width}"))


def _clamp_s32(value: int) -> int:
    return max(-(1 << 31), min((1 << 31) - 1, value))


def _wrap(value: int, width: int, signed: bool) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def _each(operation: Callable[..., int], names: str) -> Callable[[Warp, Instruction], None]:
    """Return an instruction that is a function of its modifiers and its operands' values alone."""

    def execute(w: Warp, ins: Instruction) -> None:
        operands = [_ints(w, ins, name) for name in names]
        _put(w, ins, [operation(ins, *values) for values in zip(*operands, strict=True)])

    return execute


def _halves(value: int, signed: bool) -> tuple[int, int]:
    return _wrap(value, 16, signed), _wrap(value >> 16, 16, signed)


def _by_halves(ins: Instruction, a: int, b: int, operation: Callable[[int, int], int]) -> int:
    """Apply `operation` to a and b, or to each half word of a packed type."""
    if not ins.type.endswith("x2"):
        return operation(a, b)
    signed = ins.type[0] == "s"
    low, high = (operation(x, y) for x, y in zip(_halves(a, signed), _halves(b, signed), strict=True))
    return (low & 0xFFFF) | (high & 0xFFFF) << 16


# -- with and without carry ----------------------------------------------------------------------------------


def _sum(sign: int, *, carry_in: bool) -> Callable[[Warp, Instruction], None]:
    """Return the function for a + b or a - b, saturated, packed, or with carries according to the modifiers."""

    def execute(w: Warp, ins: Instruction) -> None:
        a, b = _ints(w, ins, "a"), _ints(w, ins, "b")
        if ins.has("sat"):
            _put(w, ins, [_clamp_s32(x + sign * y) for x, y in zip(a, b, strict=True)])
        elif carry_in or ins.has("cc"):
            _carry(w, ins, a, b, sign, carry_in=carry_in)
        else:
            pairs = zip(a, b, strict=True)
            if ins.type.endswith("x2"):
                _put(w, ins, [_by_halves(ins, x, y, lambda m, n: m + sign * n) for x, y in pairs])
            else:
                _put(w, ins, [x + sign * y for x, y in pairs])

    return execute


def _carry(w: Warp, ins: Instruction, a: list[int], b: list[int], sign: int, *, carry_in: bool) -> None:
    width = WIDTH[ins.type]
    old = w.file[CARRY] if carry_in else np.zeros(32, bool)
    exact = [
        _wrap(x, width, False) + sign * (_wrap(y, width, False) + int(flag))
        for x, y, flag in zip(a, b, old, strict=True)
    ]
    if ins.has("cc"):
        # Above the width for a sum, below zero for a difference.
        flags = np.array([not 0 <= value < 1 << width for value in exact])
        w.file[CARRY][w.mask] = flags[w.mask]
    _put(w, ins, exact)


# -- products ------------------------------------------------------------------------------------------------


def _part(ins: Instruction, a: int, b: int) -> int:
    product = a * b
    if ins.has("wide"):
        return product
    if ins.mods.get("mode", "hi") == "lo":
        return product & ((1 << WIDTH[ins.type]) - 1)
    return product >> WIDTH[ins.type]


def _part24(ins: Instruction, a: int, b: int) -> int:
    signed = ins.type[0] == "s"
    product = _wrap(a, 24, signed) * _wrap(b, 24, signed)
    return product >> 16 if ins.mods.get("mode", "hi") == "hi" else product


def _add_c(ins: Instruction, product: int, c: int) -> int:
    return _clamp_s32(_wrap(product, 32, True) + c) if ins.has("sat") else product + c


def _mad(w: Warp, ins: Instruction, *, carry_in: bool = False) -> None:
    a, b, c = (_ints(w, ins, name) for name in "abc")
    products = [_part(ins, x, y) for x, y in zip(a, b, strict=True)]
    if carry_in or ins.has("cc"):
        _carry(w, ins, products, c, 1, carry_in=carry_in)
    else:
        _put(w, ins, [_add_c(ins, product, z) for product, z in zip(products, c, strict=True)])


def _madc(w: Warp, ins: Instruction) -> None:
    _mad(w, ins, carry_in=True)


def _dot(ins: Instruction, a: int, b: int, c: int) -> int:
    width, count = (8, 4) if ins.form.name == "dp4a" else (16, 2)
    first = 2 if ins.mods.get("mode") == "hi" else 0
    for at in range(count):
        left = _wrap(a >> (width * at), width, ins.mods["atype"] == "s32")
        right = _wrap(b >> (8 * (first + at)), 8, ins.mods["btype"] == "s32")
        c += left * right
    return c


# -- division ------------------------------------------------------------------------------------------------


def _divided(a: int, b: int) -> int:
    """Divide, truncated towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _div(ins: Instruction, a: int, b: int) -> int:
    return _divided(a, b) if b else -1


def _rem(ins: Instruction, a: int, b: int) -> int:
    return a - _divided(a, b) * b if b else a


# -- bits ----------------------------------------------------------------------------------------------------


def _min_max(choose: Callable[[int, int], int]) -> Callable[[Warp, Instruction], None]:
    def operation(ins: Instruction, a: int, b: int) -> int:
        if ins.has("relu"):
            return _by_halves(ins, a, b, lambda x, y: max(choose(x, y), 0))
        return _by_halves(ins, a, b, choose)

    return _each(operation, "ab")


def _bfind(ins: Instruction, a: int) -> int:
    found = (~a if a < 0 else a).bit_length() - 1
    return WIDTH[ins.type] - 1 - found if ins.has("shiftamt") and found >= 0 else found


def _bfe(ins: Instruction, a: int, b: int, c: int) -> int:
    """Extract bits by the manual's loop."""
    top = WIDTH[ins.type] - 1
    position, length = b & 0xFF, c & 0xFF
    sign = 0 if ins.type[0] == "u" or length == 0 else (a >> min(position + length - 1, top)) & 1
    result = 0
    for at in range(top + 1):
        inside = at < length and position + at <= top
        result |= ((a >> (position + at)) & 1 if inside else sign) << at
    return result


def _bfi(ins: Instruction, a: int, b: int, c: int, length: int) -> int:
    """Insert bits by the manual's loop."""
    position = c & 0xFF
    for at in range(length & 0xFF):
        if position + at < WIDTH[ins.type]:
            b = b & ~(1 << (position + at)) | ((a >> at) & 1) << (position + at)
    return b


def _limited(ins: Instruction, value: int) -> int:
    return value & 31 if ins.mods["mode"] == "wrap" else min(value, 32)


def _szext(ins: Instruction, a: int, b: int) -> int:
    count = _limited(ins, b)
    return _wrap(a, count, ins.type == "s32") if count else 0


def _bmsk(ins: Instruction, a: int, b: int) -> int:
    start, count = _limited(ins, a), _limited(ins, b)
    return sum(1 << at for at in range(start, min(start + count, 32)))


EXECUTE: dict[str, Callable[[Warp, Instruction], None]] = {
    "add": _sum(1, carry_in=False),
    "sub": _sum(-1, carry_in=False),
    "addc": _sum(1, carry_in=True),
    "subc": _sum(-1, carry_in=True),
    "mul": _each(_part, "ab"),
    "mad": _mad,
    "madc": _madc,
    "mul24": _each(_part24, "ab"),
    "mad24": _each(lambda ins, a, b, c: _add_c(ins, _part24(ins, a, b), c), "abc"),
    "sad": _each(lambda ins, a, b, c: c + abs(a - b), "abc"),
    "div": _each(_div, "ab"),
    "rem": _each(_rem, "ab"),
    "abs": _each(lambda ins, a: abs(a), "a"),
    "neg": _each(lambda ins, a: -a, "a"),
    "min": _min_max(min),
    "max": _min_max(max),
    "popc": _each(lambda ins, a: a.bit_count(), "a"),
    "clz": _each(lambda ins, a: WIDTH[ins.type] - a.bit_length(), "a"),
    "bfind": _each(_bfind, "a"),
    "brev": _each(lambda ins, a: int(f"{a:0{WIDTH[ins.type]}b}"[::-1], 2), "a"),
    "bfe": _each(_bfe, "abc"),
    "bfi": _each(_bfi, "abce"),
    "szext": _each(_szext, "ab"),
    "bmsk": _each(_bmsk, "ab"),
    "dp4a": _each(_dot, "abc"),
    "dp2a": _each(_dot, "abc"),
}
