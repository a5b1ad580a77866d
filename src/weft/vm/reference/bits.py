"""Logic, shifts and byte permutes in NumPy (PTX ISA 9.7.8 and 9.7.9.7)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Imm, Instruction, Pair

from .warp import Lanes, Warp


def _logic(operation: Callable[[Any, Any], Any]) -> Callable[[Warp, Instruction], None]:
    def execute(w: Warp, ins: Instruction) -> None:
        w.dst(ins, operation(w.src(ins, "a"), w.src(ins, "b")))

    return execute


def _not(w: Warp, ins: Instruction) -> None:
    w.dst(ins, np.invert(w.src(ins, "a")))


def _cnot(w: Warp, ins: Instruction) -> None:
    a = w.src(ins, "a")
    w.dst(ins, (a == 0).astype(a.dtype))


def _lop3(w: Warp, ins: Instruction) -> None:
    """Compute each bit of the result: the table's entry for the three bits at its place."""
    lut = ins.operand("lut")
    if not isinstance(lut, Imm) or not 0 <= lut.value <= 255:
        raise Unsupported(f"lop3 with the table {lut}", ins.line)
    a, b, c = (w.src(ins, name) for name in "abc")
    result = np.zeros(32, np.uint32)
    for entry in range(8):
        if lut.value >> entry & 1:
            result |= (a if entry & 4 else ~a) & (b if entry & 2 else ~b) & (c if entry & 1 else ~c)
    if not ins.has("bool"):
        w.dst(ins, result)
        return
    target = ins.operand("d")
    if not isinstance(target, Pair):
        raise Unsupported("lop3 with a boolean operator and one destination", ins.line)
    some, q = result != 0, w.src(ins, "q")
    w.write(target.first, result, "b32", ins.line)
    w.write(target.second, some & q if ins.mods["bool"] == "and" else some | q, "pred", ins.line)


def _shf(w: Warp, ins: Instruction) -> None:
    """Shift the 64 bits b:a; left keeps the high half, right the low half."""
    results = []
    for low, high, amount in zip(w.src(ins, "a"), w.src(ins, "b"), w.src(ins, "c"), strict=True):
        both = int(high) << 32 | int(low)
        count = int(amount) & 31 if ins.mods["mode"] == "wrap" else min(int(amount), 32)
        moved = (both << count) >> 32 if ins.mods["dir"] == "l" else both >> count
        results.append(moved & 0xFFFFFFFF)
    w.dst(ins, np.array(results, np.uint32))


def _shift(left: bool) -> Callable[[Warp, Instruction], None]:
    def execute(w: Warp, ins: Instruction) -> None:
        width = WIDTH[ins.type]
        results = []
        for value, amount in zip(w.src(ins, "a"), w.src(ins, "b"), strict=True):
            count = min(int(amount), width)
            results.append((int(value) << count if left else int(value) >> count) & ((1 << width) - 1))
        w.dst(ins, np.array(results, f"uint{width}"))

    return execute


_MODES: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda control, at: control + at,
    "b4e": lambda control, at: (control - at) % 8,
    "rc8": lambda control, at: control,
    "ecl": lambda control, at: max(control, at),
    "ecr": lambda control, at: min(control, at),
    "rc16": lambda control, at: 2 * (control % 2) + at % 2,
}
"""Which source byte each mode of prmt puts at byte `at` of the result."""


def _prmt(w: Warp, ins: Instruction) -> None:
    a, b, control = w.src(ins, "a"), w.src(ins, "b"), w.src(ins, "c")
    source: Lanes = np.concatenate([a[:, None], b[:, None]], axis=1).astype("<u4").view(np.uint8)
    mode = _MODES.get(ins.mods.get("mode", ""))
    result = np.zeros((32, 4), np.uint8)
    for lane in range(32):
        for at in range(4):
            pick = mode(int(control[lane]) & 3, at) if mode else int(control[lane]) >> (4 * at) & 0xF
            byte = int(source[lane, pick & 7])
            result[lane, at] = (0xFF if byte & 0x80 else 0) if pick & 8 else byte
    w.dst(ins, result.view("<u4").reshape(32))


EXECUTE: dict[str, Callable[[Warp, Instruction], None]] = {
    "and": _logic(np.bitwise_and),
    "or": _logic(np.bitwise_or),
    "xor": _logic(np.bitwise_xor),
    "not": _not,
    "cnot": _cnot,
    "lop3": _lop3,
    "shf": _shf,
    "shl": _shift(True),
    "shr": _shift(False),
    "prmt": _prmt,
}
