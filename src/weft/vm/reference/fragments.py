"""Finds the lane, register and part of a register of each element of a matrix, for `mma` and `wmma`.

`mma` layouts are the manual's (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions", the sections
"Matrix Fragments for mma.m8n8k4 with .f64", "... mma.m16n8k4", "... m16n8k8", "... m16n8k16 with floating
point type", "... m16n8k16 with integer type", "... m16n8k32"). With groupID g = lane / 4, threadID_in_group
t = lane mod 4 and P elements in a register of 32 bits (f64: one, of 64), all are three formulas: `_a`, `_b` and `_c`.

`wmma` layouts are opaque in PTX ("Matrix Fragments for WMMA": the mapping is architecture specific), so
Weft chooses its own: the fragments of the m16n8 instructions that carry out the wmma, one after the
other. Further registers that PTX requires repeat the first ones.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.core.errors import Unsupported
from weft.vm.mma_kind import MmaKind, check_kind

Array = NDArray[Any]
_BITS = {
    **dict.fromkeys(("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "s8", "u8"), 8),
    **dict.fromkeys(("f16", "bf16"), 16),
    **dict.fromkeys(("tf32", "f32", "s32"), 32),
    "f64": 64,
}
_WORD = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


@dataclass(frozen=True)
class Fragment:
    """row and column of every element, indexed [register, lane, element within the register]."""

    bits: int
    shape: tuple[int, int]
    rows: Array
    columns: Array

    @property
    def registers(self) -> int:
        return int(self.rows.shape[0])

    def pack(self, matrix: Array) -> Array:
        """Return matrices of raw bits (..., R, C) as registers (..., registers, 32) of u32 (f64: u64)."""
        elements = matrix[..., self.rows, self.columns].astype(_WORD[self.bits])
        word = np.uint64 if self.bits == 64 else np.uint32
        return np.ascontiguousarray(elements).view(word)[..., 0]

    def unpack(self, registers: Array) -> Array:
        """Return the inverse of `pack`; for repeated elements the last register counts."""
        elements = np.ascontiguousarray(registers)[..., None].view(_WORD[self.bits])
        matrix = np.zeros((*registers.shape[:-2], *self.shape), _WORD[self.bits])
        matrix[..., self.rows, self.columns] = elements
        return matrix


def _fragment(bits: int, shape: tuple[int, int], places: list[tuple[Array, Array]]) -> Fragment:
    pairs = [np.broadcast_arrays(rows, columns) for rows, columns in places]
    return Fragment(bits, shape, np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs]))


def _lanes(bits: int) -> tuple[Array, Array, Array, int]:
    """Return groupID and threadID_in_group as columns, the element index as a row, and the elements per register."""
    lane = np.arange(32)[:, None]
    per_register = max(32 // bits, 1)
    return lane // 4, lane % 4, np.arange(per_register)[None, :], per_register


def mma_fragment(kind: MmaKind, operand: str) -> Fragment:
    """Return the fragment of operand "a", "b", "c" or "d" of an `mma`. Two e2m1 of k 64 are one element, a byte."""
    check_kind(kind)
    k = kind.k // 2 if kind.element_bits == 4 else kind.k
    if operand == "a":
        return _a(_BITS[kind.a_type], kind.m, k)
    if operand == "b":
        return _b(_BITS[kind.b_type], k, kind.n)
    return _c(_BITS[kind.c_type if operand == "c" else kind.d_type], kind.m, kind.n)


def group_fragment(kind: MmaKind, blocks: int) -> Fragment:
    """Return the fragment of D of a `wgmma` in one warp: `blocks` fragments of m16n8, side by side."""
    bits = _BITS[kind.d_type]
    parts = [_c(bits, kind.m, kind.n, first_column=kind.n * block) for block in range(blocks)]
    rows, columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "columns"))
    return Fragment(bits, (kind.m, kind.n * blocks), rows, columns)


def _a(bits: int, m: int, k: int, first_row: int = 0) -> Fragment:
    """Return rows g and g + 8 in turn, then the next 4 P columns; an 8-row A has only the rows g."""
    g, t, j, per_register = _lanes(bits)
    places = [
        (first_row + g + row, k0 + per_register * t + j)
        for k0 in range(0, k, 4 * per_register)
        for row in ((0, 8) if m >= 16 else (0,))
    ]
    return _fragment(bits, (m, k), places)


def _b(bits: int, k: int, n: int, first_column: int = 0) -> Fragment:
    g, t, j, per_register = _lanes(bits)
    places = [(k0 + per_register * t + j, first_column + g) for k0 in range(0, k, 4 * per_register)]
    return _fragment(bits, (k, n), places)


def _c(bits: int, m: int, n: int, first_row: int = 0, first_column: int = 0) -> Fragment:
    """Return two neighbouring columns 2 t and 2 t + 1, in one register (f16) or in two, then the rows g + 8."""
    g, t, j, per_register = _lanes(bits)
    places = [
        (first_row + g + row, first_column + 2 * t + i + j)
        for row in ((0, 8) if m >= 16 else (0,))
        for i in range(2 // per_register)
    ]
    return _fragment(bits, (m, n), places)


_WMMA_TYPES = {
    **dict.fromkeys(((16, 16, 16), (32, 8, 16), (8, 32, 16)), ("f16", "bf16", "s8", "u8", "f32", "s32")),
    (16, 16, 8): ("tf32", "f32"),
    (8, 8, 4): ("f64",),
}
"""Shape → types of the elements of its matrices."""


def wmma_fragment(m: int, n: int, k: int, *, operand: str, element: str) -> Fragment:
    """Return the fragment of operand "a", "b" or "c" (also d) of a `wmma` with elements of type `element`."""
    if element not in _WMMA_TYPES.get((m, n, k), ()):
        raise Unsupported(f"wmma m{m}n{n}k{k} with {element}")
    bits = _BITS[element]
    row_tiles = range(0, m, 16)
    column_tiles = range(0, n, 8)
    if operand == "a":
        parts = [_a(bits, m, k, row) for row in row_tiles]
        shape = (m, k)
    elif operand == "b":
        parts = [_b(bits, k, n, column) for column in column_tiles]
        shape = (k, n)
    else:
        parts = [_c(bits, m, n, row, column) for row in row_tiles for column in column_tiles]
        shape = (m, n)
    rows = np.concatenate([part.rows for part in parts])
    columns = np.concatenate([part.columns for part in parts])
    if operand != "c" and element == "f16":  # PTX gives f16 A and B eight registers in every shape
        copies = 8 // rows.shape[0]
        rows, columns = np.tile(rows, (copies, 1, 1)), np.tile(columns, (copies, 1, 1))
    return Fragment(bits, shape, rows, columns)


__all__ = ["Fragment", "group_fragment", "mma_fragment", "wmma_fragment"]
