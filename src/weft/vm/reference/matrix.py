"""Warp-level matrix instructions (PTX ISA 9.7.14): matrices are gathered from the lanes, computed, and distributed."""

import re
from collections.abc import Callable

import numpy as np

from weft.core.errors import Unsupported
from weft.ptx.module import Instruction, Vec

from ..mma_kind import MmaKind
from ..scale_operands import scales_of, select_of
from .access import address_of, as_bytes, fetch, load, locate, shared_addresses, store
from .fragments import Array, Fragment, mma_fragment, wmma_fragment
from .machine import RunningWarp
from .tensorcore import mma
from .warp import Lanes

_LANE = np.arange(32)


def shape_of(ins: Instruction) -> tuple[int, int, int]:
    """Return m, n, k of a wmma or mma."""
    m, n, k = (int(number) for number in re.findall(r"\d+", ins.mods["shape"]))
    return m, n, k


def _matrix(w: RunningWarp, ins: Instruction, name: str, fragment: Fragment) -> Array:
    registers = w.items(ins, name, f"b{max(fragment.bits, 32)}")
    _check_count(ins, name, len(registers), fragment)
    return fragment.unpack(np.stack(registers))


def _deal(w: RunningWarp, ins: Instruction, registers: Array) -> None:
    target = ins.operand("d")
    items = target.items if isinstance(target, Vec) else (target,)
    if len(items) != len(registers):
        raise Unsupported(f"{ins.opcode} with {len(items)} result registers", ins.line)
    for item, value in zip(items, registers, strict=True):
        w.write(item, value, f"b{8 * registers.dtype.itemsize}", ins.line)


def _check_count(ins: Instruction, name: str, count: int, fragment: Fragment) -> None:
    if count != fragment.registers:
        raise Unsupported(f"{ins.opcode}: {count} registers for {name}, not {fragment.registers}", ins.line)


def mma_kind(ins: Instruction) -> MmaKind:
    """Return the kind of an `mma`."""
    mods, saturate, rounding = ins.mods, ins.has("satfinite"), ins.mods.get("rnd", "rn")
    types = (mods["atype"], mods["btype"], mods["ctype"], mods["dtype"])
    scale = mods.get("stype", "")
    scales = scales_of(ins) if scale else 0
    return MmaKind(*shape_of(ins), *types, satfinite=saturate, rounding=rounding, scale_type=scale, scales=scales)


def _mma(w: RunningWarp, ins: Instruction) -> None:
    kind = mma_kind(ins)
    a, b, c = (_matrix(w, ins, name, mma_fragment(kind, name)) for name in "abc")
    scales = _scales(w, ins, kind.scales) if kind.scale_type else None
    d = mma(a, b, c, scales, kind=kind, arch=w.grid.arch, mode=w.grid.launch.mode)
    _deal(w, ins, mma_fragment(kind, "d").pack(d))


def _scales(w: RunningWarp, ins: Instruction, count: int) -> tuple[Array, Array]:
    """Return the scales of A (16, count) and of B (count, 8), bytes of registers of chosen lanes.

    Of every four lanes, 2 i and 2 i + 1 have the scales of rows g and g + 8 of A, lane j that of column g of B; the
    instruction names i, j and the first byte.
    """
    words = []
    for side, most in (("a", 1), ("b", 3)):
        first, lane = (int(w.read(item, "u16", ins.line)[0]) for item in select_of(ins, side))
        if lane > most or first % count or first + count > 4:
            raise Unsupported(f"{ins.opcode}: no byte {first} of lane {lane} has scales of {side}", ins.line)
        held = np.ascontiguousarray(w.items(ins, f"scale_{side}", "b32")[0]).view(np.uint8).reshape(8, 4, 4)
        chosen = held[:, :, first : first + count]
        words.append(chosen[:, lane] if side == "b" else np.concatenate([chosen[:, 2 * lane + i] for i in range(2)]))
    return words[0], words[1].T


def _wmma(w: RunningWarp, ins: Instruction) -> None:
    if ins.has("load"):
        _wmma_load(w, ins)
    elif ins.has("store"):
        _wmma_store(w, ins)
    elif ins.mods["dtype"] == "f64":
        _mma(w, ins)  # m8n8k4 is one instruction
    else:
        _wmma_mma(w, ins)


def _wmma_mma(w: RunningWarp, ins: Instruction) -> None:
    m, n, k = shape_of(ins)
    a_type, b_type = ins.mods.get("atype", "f16"), ins.mods.get("btype", "f16")
    c_type, d_type = ins.mods["ctype"], ins.mods["dtype"]
    a = _matrix(w, ins, "a", wmma_fragment(m, n, k, operand="a", element=a_type))
    b = _matrix(w, ins, "b", wmma_fragment(m, n, k, operand="b", element=b_type))
    c = _matrix(w, ins, "c", wmma_fragment(m, n, k, operand="c", element=c_type))
    kind = MmaKind(16, 8, k, a_type, b_type, c_type, d_type, ins.has("satfinite"))
    rows = max(m, 16)  # an 8-row wmma is an m16n8 whose other rows are discarded
    tall_a, tall_c = np.zeros((rows, k), a.dtype), np.zeros((rows, n), c.dtype)
    tall_a[:m], tall_c[:m] = a, c
    d = np.zeros((rows, n), np.uint16 if d_type == "f16" else np.uint32)
    for row in range(0, rows, 16):
        for column in range(0, n, 8):
            tile = slice(row, row + 16), slice(column, column + 8)
            strip = b[:, tile[1]]
            d[tile] = mma(tall_a[tile[0]], strip, tall_c[tile], kind=kind, arch=w.grid.arch, mode=w.grid.launch.mode)
    _deal(w, ins, wmma_fragment(m, n, k, operand="c", element=d_type).pack(d[:m]))


def element_offsets(w: RunningWarp, ins: Instruction, fragment: Fragment) -> Array:
    """Return the byte offset of every element from the matrix's address, [register, lane, element]."""
    rows, columns = fragment.shape
    by_row = ins.mods["layout"] == "row"
    if ins.find("stride") is None:
        stride: Lanes = np.full(32, columns if by_row else rows, np.uint64)
    else:
        stride = w.src(ins, "stride").astype(np.uint64)
    outer, inner = (fragment.rows, fragment.columns) if by_row else (fragment.columns, fragment.rows)
    offsets: Array = (outer.astype(np.uint64) * stride[:, None] + inner.astype(np.uint64)) * np.uint64(
        fragment.bits // 8
    )
    return offsets


def _wmma_load(w: RunningWarp, ins: Instruction) -> None:
    operand = ins.mods.get("which", "c")
    fragment = wmma_fragment(*shape_of(ins), operand=operand, element=ins.type)
    offsets = element_offsets(w, ins, fragment)
    space, address = address_of(w, ins, "a")
    size = fragment.bits // 8
    word = np.dtype(np.uint64 if fragment.bits == 64 else np.uint32)
    registers = np.zeros((fragment.registers, 32), word)
    for register in range(fragment.registers):
        parts = [load(w, ins, space, address + offsets[register, :, j], size) for j in range(offsets.shape[2])]
        registers[register] = np.ascontiguousarray(np.concatenate(parts, axis=1)).view(word).reshape(32)
    _deal(w, ins, registers)


def _wmma_store(w: RunningWarp, ins: Instruction) -> None:
    fragment = wmma_fragment(*shape_of(ins), operand="c", element=ins.type)
    values = w.items(ins, "b", f"b{max(fragment.bits, 32)}")
    _check_count(ins, "d", len(values), fragment)
    offsets = element_offsets(w, ins, fragment)
    space, address = address_of(w, ins, "a")
    size = fragment.bits // 8
    for register, value in enumerate(values):
        raw = as_bytes(value).reshape(32, -1, size)
        for j in range(offsets.shape[2]):
            store(w, ins, space, address + offsets[register, :, j], raw[:, j])


def _ldmatrix(w: RunningWarp, ins: Instruction) -> None:
    if ins.has("m8n8"):
        _load_halves(w, ins)
    else:
        _load_bytes(w, ins)


def _load_bytes(w: RunningWarp, ins: Instruction) -> None:
    """Load rows of 16 bytes, or of 16 elements of 6 or 4 bits, each of which becomes a byte.

    m8n16: lane 8 i + r points at row r of matrix i; lane l gets four bytes of row l / 4. m16n16 is transposed: lane
    16 i + r points at row r; lane l gets rows 4 (l mod 4) to 4 (l mod 4) + 3 of column l / 4 in register 2 i, of column
    l / 4 + 8 in register 2 i + 1.
    """
    wide = ins.has("m16n16")
    count = int(ins.mods["num"][1:])
    rows_each = 16 if wide else 8
    pointing = w.mask & (rows_each * count > _LANE)
    rows = fetch(locate(w, ins, "shared", shared_addresses(w, ins), 16, lanes=pointing), 16)
    matrices = _widened(rows, ins.mods.get("source", "")).reshape(-1, rows_each, 16)[:count]
    if wide:
        blocks = matrices.transpose(0, 2, 1).reshape(2 * count, 8, 16)
    else:
        blocks = matrices
    _deal(w, ins, np.stack([_words(block) for block in blocks]))


def _widened(rows: Array, source: str) -> Array:
    """Return rows of 16 bytes; elements of 6 or 4 bits, lowest first, become the low bits of a byte."""
    if not source:
        return rows
    width = 6 if source == "b6x16_p32" else 4
    bits = np.unpackbits(rows[:, : 2 * width], axis=1, bitorder="little").reshape(-1, 16, width)
    padded = np.zeros((len(rows), 16, 8), np.uint8)
    padded[:, :, :width] = bits
    return np.packbits(padded, axis=2, bitorder="little")[:, :, 0]


def _load_halves(w: RunningWarp, ins: Instruction) -> None:
    """Load: lane 8 i + r points at row r of matrix i; lane l gets elements 2 (l mod 4) and the next of row l / 4."""
    count = int(ins.mods["num"][1:])
    pointing = w.mask & (8 * count > _LANE)
    rows = fetch(locate(w, ins, "shared", shared_addresses(w, ins), 16, lanes=pointing), 16)
    matrices = np.ascontiguousarray(rows).view(np.uint16).reshape(4, 8, 8)[:count]
    if ins.has("trans"):
        matrices = matrices.transpose(0, 2, 1)
    _deal(w, ins, np.stack([_words(matrix) for matrix in matrices]))


def _stmatrix(w: RunningWarp, ins: Instruction) -> None:
    """Store: the inverse of ldmatrix."""
    count = int(ins.mods["num"][1:])
    registers = w.items(ins, "b", "b32")
    if len(registers) != count:
        raise Unsupported(f"{ins.opcode} of {len(registers)} registers", ins.line)
    rows = np.zeros((4, 8, 8), np.uint16)
    rows[:count] = np.stack(registers).view(np.uint16).reshape(count, 8, 8)
    if ins.has("trans"):
        rows = np.ascontiguousarray(rows.transpose(0, 2, 1))
    data = rows.view(np.uint8).reshape(32, 16)
    pointing = w.mask & (8 * count > _LANE)
    for region, lanes, at in locate(w, ins, "shared", shared_addresses(w, ins), 16, write=True, lanes=pointing):
        region.data[at[lanes][:, None] + np.arange(16)] = data[lanes]


def _words(matrix: Array) -> Array:
    """Return eight rows of 16 bytes as one register per lane."""
    return np.ascontiguousarray(matrix).view(np.uint32).reshape(32)


def _movmatrix(w: RunningWarp, ins: Instruction) -> None:
    matrix = np.ascontiguousarray(w.src(ins, "a")).view(np.uint16).reshape(8, 8)
    w.dst(ins, _words(matrix.T))


EXECUTE: dict[str, Callable[[RunningWarp, Instruction], None]] = {
    "mma": _mma,
    "wmma": _wmma,
    "ldmatrix": _ldmatrix,
    "stmatrix": _stmatrix,
    "movmatrix": _movmatrix,
}
