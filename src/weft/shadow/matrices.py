"""How marks move in matrix instructions: element by element, as fragments are distributed over the lanes."""

import numpy as np

from weft.core.errors import Unsupported
from weft.ptx.module import Instruction
from weft.vm.reference.access import as_bytes
from weft.vm.reference.fragments import Fragment, group_fragment, mma_fragment, wmma_fragment
from weft.vm.reference.machine import RunningWarp
from weft.vm.reference.matrix import element_offsets, mma_kind, shape_of
from weft.vm.reference.wgmma import operand_addresses
from weft.vm.wgmma_kind import Wgmma, wgmma_of

from .marks import Finish, Marks, Product, Shadow, Target, members


def multiply(s: Shadow, w: RunningWarp, ins: Instruction) -> Finish | None:
    """mma and wmma.mma of every shape, without scales."""
    if "stype" in ins.mods:
        raise Unsupported(f"following values through {ins.opcode}", ins.line)
    mods, shape = ins.mods, shape_of(ins)
    types = (mods.get("atype", "f16"), mods.get("btype", "f16"), mods["ctype"], mods["dtype"])
    if ins.facts.multiplies == "wmma":
        parts = zip("abcc", types, strict=True)
        fragments = tuple(wmma_fragment(*shape, operand=name, element=element) for name, element in parts)
    else:
        fragments = tuple(mma_fragment(mma_kind(ins), name) for name in "abcd")
    marks = tuple(_elements(s, w, ins, name, fragment) for name, fragment in zip("abc", fragments, strict=False))
    given = dict(zip("abcd", fragments, strict=True))

    def bits(name: str) -> Marks:
        return _bits(w, ins, name, given[name])

    return _multiplied(s, w, Product(ins, types, marks, given["d"], given["a"], bits))


def multiply_group(s: Shadow, w: RunningWarp, ins: Instruction) -> Finish | None:
    """wgmma: a warp's 16 rows of A, in registers or in shared memory, and B in shared memory."""
    how = wgmma_of(ins)
    kind, d = how.kind, group_fragment(how.kind, how.blocks)
    a = mma_fragment(kind, "a") if how.in_registers else None
    c_marks = _elements(s, w, ins, "d", d) if w.src(ins, "go")[0] else np.zeros(d.shape, s.algebra.dtype)
    a_marks = _elements(s, w, ins, "a", a) if a is not None else _tile(s, w, ins, how, "a")

    def bits(name: str) -> Marks:
        if name == "d" or (name == "a" and a is not None):
            return _bits(w, ins, name, d if name == "d" or a is None else a)
        address = operand_addresses(w, ins, how, name)
        return _held(w, address, kind.k) if name == "a" else _held(w, address, kind.k).T

    types = (kind.a_type, kind.b_type, kind.c_type, kind.d_type)
    return _multiplied(s, w, Product(ins, types, (a_marks, _tile(s, w, ins, how, "b").T, c_marks), d, a, bits))


def _multiplied(s: Shadow, w: RunningWarp, product: Product) -> Finish | None:
    if any(matrix.any() for matrix in product.marks):
        return s.algebra.multiplied(s, w, product)
    s.forget(w, product.instruction)
    return None


def _bits(w: RunningWarp, ins: Instruction, name: str, fragment: Fragment) -> Marks:
    """Return the bits of the elements of an operand in registers."""
    return fragment.unpack(np.stack(w.items(ins, name, f"b{max(fragment.bits, 32)}")))


def _held(w: RunningWarp, address: Marks, depth: int) -> Marks:
    """Return the bits of elements in shared memory, 0 outside of it; a step of the product has `depth` of them."""
    size, shared = 32 // depth, w.region("shared")
    at = address.astype(np.int64)
    inside = (at >= shared.start) & (at <= shared.end - size)
    found = shared.data[np.where(inside, at, shared.start)[..., None] + np.arange(size)]
    return np.where(inside, np.ascontiguousarray(found).view(f"uint{8 * size}")[..., 0], 0)


def _tile(s: Shadow, w: RunningWarp, ins: Instruction, how: Wgmma, name: str) -> Marks:
    """Return the marks of an operand in shared memory, [row, k]; every layout keeps pieces of 16 bytes together."""
    size = 32 // how.kind.k
    by_k = how.a_by_rows if name == "a" else how.b_by_columns
    address = operand_addresses(w, ins, how, name)
    along = address if by_k else address.T
    pieces = along[:, :: 16 // size].ravel()
    pointer = s.value(w, ins.operand(name))
    s.algebra.used(ins, pointer[w.mask], "an address")
    found = []
    for first in range(0, len(pieces), 32):
        lanes = np.arange(32) < len(pieces) - first
        here = np.resize(pieces[first : first + 32], 32).astype(np.uint64)
        held = s.load(w, ins, Target("shared", here, lanes, pointer), 16)
        found.append(s.algebra.one(held.reshape(32, 16 // size, size))[lanes])
    marks = np.concatenate(found).reshape(along.shape)
    return marks if by_k else marks.T


def deal(s: Shadow, w: RunningWarp, product: Product, marks: Marks) -> None:
    """Give the destination registers the marks of their elements of D."""
    fragment = product.d
    for number, register in enumerate(members(product.instruction.operand("d"))):
        elements = marks[fragment.rows[number], fragment.columns[number]]
        s.write(w, register, np.repeat(elements, fragment.bits // 8, axis=1))


def _elements(s: Shadow, w: RunningWarp, ins: Instruction, name: str, fragment: Fragment) -> Marks:
    """Return the marks of an operand's elements, [row, column]."""
    size = fragment.bits // 8
    matrix = np.zeros(fragment.shape, s.algebra.dtype)
    for number, register in enumerate(members(ins.operand(name))):
        held = s.read(w, register, max(size, 4)).reshape(32, -1, size)
        matrix[fragment.rows[number], fragment.columns[number]] = s.algebra.one(held)
    return matrix


def load_tile(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """wmma.load."""
    fragment = wmma_fragment(*shape_of(ins), operand=ins.mods.get("which", "c"), element=ins.type)
    target, offsets = s.target(w, ins, "a"), _offsets(s, w, ins, fragment)
    for number, register in enumerate(members(ins.operand("d"))):
        at = (target.plus(offsets[number, :, element]) for element in range(offsets.shape[2]))
        s.write(w, register, np.concatenate([s.load(w, ins, each, fragment.bits // 8) for each in at], axis=1))


def store_tile(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """wmma.store."""
    fragment = wmma_fragment(*shape_of(ins), operand="c", element=ins.type)
    target, offsets, size = s.target(w, ins, "a"), _offsets(s, w, ins, fragment), fragment.bits // 8
    word = max(size, 4)
    for number, register in enumerate(members(ins.operand("b"))):
        marks = s.read(w, register, word).reshape(32, -1, size)
        data = as_bytes(w.read(register, f"b{8 * word}", ins.line)).reshape(32, -1, size)
        for element in range(offsets.shape[2]):
            at = target.plus(offsets[number, :, element])
            s.store(w, ins, at, marks[:, element])
            s.algebra.stored(w, ins, at, marks[:, element], data[:, element])


def _offsets(s: Shadow, w: RunningWarp, ins: Instruction, fragment: Fragment) -> Marks:
    stride = ins.find("stride")
    if stride is not None:
        s.algebra.used(ins, s.value(w, stride)[w.mask], "an address")
    return element_offsets(w, ins, fragment)


def load_rows(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """ldmatrix: lane 8 i + r points at row r of matrix i; lane l gets elements 2 (l mod 4) and 1 more of row l / 4."""
    if not ins.has("m8n8"):
        raise Unsupported(f"following values through {ins.opcode}", ins.line)
    registers = members(ins.operand("d"))
    pointing = w.mask & (np.arange(32) < 8 * len(registers))
    rows = s.load(w, ins, s.target(w, ins, "a", pointing), 16)
    matrices = rows.reshape(4, 8, 8, 2)  # two bytes are moved together: one element, or two of 8 bits
    if ins.has("trans"):
        matrices = matrices.transpose(0, 2, 1, 3)
    for register, matrix in zip(registers, matrices, strict=False):
        s.write(w, register, np.ascontiguousarray(matrix).reshape(32, 4))


def store_rows(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """stmatrix: the inverse of ldmatrix."""
    registers = members(ins.operand("b"))
    pointing = w.mask & (np.arange(32) < 8 * len(registers))
    marks = np.zeros((4, 8, 8, 2), s.algebra.dtype)
    data = np.zeros((4, 8, 8, 2), np.uint8)
    for number, register in enumerate(registers):
        marks[number] = s.read(w, register, 4).reshape(8, 8, 2)
        data[number] = as_bytes(w.read(register, "b32", ins.line)).reshape(8, 8, 2)
    if ins.has("trans"):
        marks, data = marks.transpose(0, 2, 1, 3), data.transpose(0, 2, 1, 3)
    rows, written = (np.ascontiguousarray(each).reshape(32, 16) for each in (marks, data))
    target = s.target(w, ins, "a", pointing)
    s.store(w, ins, target, rows)
    s.algebra.stored(w, ins, target, rows, written)


def transpose(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """movmatrix: the transposed matrix of halves."""
    matrix = s.read(w, ins.operand("a"), 4).reshape(8, 8, 2).transpose(1, 0, 2)
    s.write(w, ins.operand("d"), np.ascontiguousarray(matrix).reshape(32, 4))
