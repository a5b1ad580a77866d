"""How matrix instructions pass labels on: element by element, as fragments are distributed over the lanes."""

import numpy as np

from weft.ptx.module import Instruction, Operand, Vec
from weft.vm.mma_kind import MmaKind
from weft.vm.reference.access import address_of
from weft.vm.reference.fragments import Fragment, mma_fragment, wmma_fragment
from weft.vm.reference.machine import RunningWarp
from weft.vm.reference.matrix import element_offsets, shape_of

from .taint_bits import Labels, whole
from .taint_state import Taint


def _registers(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def _matrix(t: Taint, w: RunningWarp, ins: Instruction, name: str, fragment: Fragment) -> Labels:
    """Return the labels of an operand's elements, [row, column]."""
    size = max(fragment.bits // 8, 1)
    matrix = np.zeros(fragment.shape, np.uint64)
    for number, register in enumerate(_registers(ins.operand(name))):
        parts = t.read(w, register, max(size, 4)).reshape(32, -1, size)
        matrix[fragment.rows[number], fragment.columns[number]] |= whole(np.bitwise_or.reduce(parts, axis=2))
    return matrix


def _deal(t: Taint, w: RunningWarp, ins: Instruction, fragment: Fragment, matrix: Labels) -> None:
    size = max(fragment.bits // 8, 1)
    for number, register in enumerate(_registers(ins.operand("d"))):
        elements = matrix[fragment.rows[number], fragment.columns[number]]
        t.write(w, register, np.repeat(elements, size, axis=1))


def _product(a: Labels, b: Labels, c: Labels) -> Labels:
    """Return the labels of D: an element depends on its row of A, its column of B and its element of C."""
    rows, columns = np.bitwise_or.reduce(a, axis=1), np.bitwise_or.reduce(b, axis=0)
    product: Labels = c | rows[:, None] | columns[None, :]
    return product


def mma(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """mma.sync of every shape."""
    mods = ins.mods
    kind = MmaKind(*shape_of(ins), mods["atype"], mods["btype"], mods["ctype"], mods["dtype"], ins.has("satfinite"))
    a, b, c = (_matrix(t, w, ins, name, mma_fragment(kind, name)) for name in "abc")
    _deal(t, w, ins, mma_fragment(kind, "d"), _product(a, b, c))


def wmma(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """wmma.load, wmma.store and wmma.mma."""
    if ins.has("load"):
        _wmma_load(t, w, ins)
    elif ins.has("store"):
        _wmma_store(t, w, ins)
    else:
        shape, mods = shape_of(ins), ins.mods
        kinds = {"a": mods.get("atype", "f16"), "b": mods.get("btype", "f16"), "c": mods["ctype"]}
        a, b, c = (
            _matrix(t, w, ins, name, wmma_fragment(*shape, operand=name, element=kind)) for name, kind in kinds.items()
        )
        _deal(t, w, ins, wmma_fragment(*shape, operand="c", element=mods["dtype"]), _product(a, b, c))


def _wmma_load(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    fragment = wmma_fragment(*shape_of(ins), operand=ins.mods.get("which", "c"), element=ins.type)
    offsets, size = _offsets(t, w, ins, fragment)
    space, address = address_of(w, ins, "a")
    for number, register in enumerate(_registers(ins.operand("d"))):
        parts = []
        for element in range(offsets.shape[2]):
            places = t.places_at(w, space, address + offsets[number, :, element], size, w.mask)
            parts.append(t.load(w, ins, places, size))
        t.write(w, register, np.concatenate(parts, axis=1))


def _wmma_store(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    fragment = wmma_fragment(*shape_of(ins), operand="c", element=ins.type)
    offsets, size = _offsets(t, w, ins, fragment)
    space, address = address_of(w, ins, "a")
    for number, register in enumerate(_registers(ins.operand("b"))):
        labels = t.read(w, register, max(size, 4)).reshape(32, -1, size)
        for element in range(offsets.shape[2]):
            places = t.places_at(w, space, address + offsets[number, :, element], size, w.mask)
            t.store(w, ins, places, labels[:, element])


def _offsets(t: Taint, w: RunningWarp, ins: Instruction, fragment: Fragment) -> tuple[Labels, int]:
    for name in ("a", "stride"):
        operand = ins.find(name)
        if operand is not None:
            t.sink(t.any_of(w, operand)[w.mask], "an address", ins)
    return element_offsets(w, ins, fragment), fragment.bits // 8


def ldmatrix(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """Lane 8 i + r points at row r of matrix i; lane l receives elements 2 (l mod 4) and the next of row l / 4."""
    registers = _registers(ins.operand("d"))
    pointing = w.mask & (np.arange(32) < 8 * len(registers))
    rows = t.load(w, ins, t.places(w, ins, "a", 16, pointing), 16)
    matrices = rows.reshape(4, 8, 8, 2)
    if ins.has("trans"):
        matrices = matrices.transpose(0, 2, 1, 3)
    for register, matrix in zip(registers, matrices, strict=False):
        t.write(w, register, np.ascontiguousarray(matrix).reshape(32, 4))


def movmatrix(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """The transposed matrix of halves."""
    matrix = t.read(w, ins.operand("a"), 4).reshape(8, 8, 2).transpose(1, 0, 2)
    t.write(w, ins.operand("d"), np.ascontiguousarray(matrix).reshape(32, 4))
