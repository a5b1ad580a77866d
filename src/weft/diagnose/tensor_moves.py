"""Matrix instructions: fragments have nodes, and a matrix product is k products and sums by the algebra."""

import numpy as np

from weft.ptx.module import Instruction
from weft.vm.mma_kind import FORMATS, MmaKind
from weft.vm.reference.access import as_bytes
from weft.vm.reference.fragments import Array, Fragment, mma_fragment, wmma_fragment
from weft.vm.reference.machine import RunningWarp
from weft.vm.reference.matrix import element_offsets, shape_of
from weft.vm.reference.tensorcore import to_float64

from .moves import show_output
from .nodes import Numbers, Where
from .provenance import Finish, Handler, Provenance
from .shadow import members, target
from .tags import Ids, Tags


def _ids(p: Provenance, w: RunningWarp, ins: Instruction, name: str, fragment: Fragment) -> Ids:
    """Return the node of every element of a matrix: the highest node of its bytes."""
    size = fragment.bits // 8
    matrix = np.zeros(fragment.shape, np.int32)
    for register, item in enumerate(members(ins.operand(name))):
        held = p.shadow.read(w, item, 4)
        if held is not None:
            found = held.reshape(32, -1, size).max(axis=2)
            matrix[fragment.rows[register], fragment.columns[register]] = found
    return matrix


def _numbers(w: RunningWarp, ins: Instruction, name: str, fragment: Fragment, element: str) -> Numbers:
    bits = fragment.unpack(np.stack(w.items(ins, name, "b32")))
    if element in FORMATS:
        return to_float64(bits, FORMATS[element])
    signed = bits.view(f"int{fragment.bits}") if element.startswith("s") else bits
    values: Numbers = signed.astype(np.float64)
    return values


def _lanes(fragment: Fragment) -> Array:
    """Return the lane that holds each element."""
    lanes = np.zeros(fragment.shape, np.int64)
    lanes[fragment.rows, fragment.columns] = np.arange(32)[None, :, None]
    return lanes


def _deal(p: Provenance, w: RunningWarp, ins: Instruction, ids: Ids, fragment: Fragment) -> None:
    """Give the destination registers their elements' nodes."""
    for register, item in enumerate(members(ins.operand("d"))):
        held = ids[fragment.rows[register], fragment.columns[register]]
        p.shadow.write(w, item, np.repeat(held, fragment.bits // 8, axis=1))


def _mma(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    mods = ins.mods
    types = (mods["atype"], mods["btype"], mods["ctype"], mods["dtype"])
    kind = MmaKind(*shape_of(ins), *types, ins.has("satfinite"))
    a, b, c, d = (mma_fragment(kind, name) for name in "abcd")
    return _multiply(p, w, ins, (a, b, c, d), types)


def _wmma(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    if ins.has("load"):
        return _load(p, w, ins)
    if ins.has("store"):
        return _store(p, w, ins)
    m, n, k = shape_of(ins)
    types = (ins.mods.get("atype", "f16"), ins.mods.get("btype", "f16"), ins.mods["ctype"], ins.mods["dtype"])
    a, b, c, d = (
        wmma_fragment(m, n, k, operand=name, element=element) for name, element in zip("abcc", types, strict=True)
    )
    return _multiply(p, w, ins, (a, b, c, d), types)


def _multiply(
    p: Provenance, w: RunningWarp, ins: Instruction, fragments: tuple[Fragment, ...], types: tuple[str, ...]
) -> Finish | None:
    ids = [_ids(p, w, ins, name, fragment) for name, fragment in zip("abc", fragments, strict=False)]
    if not any(matrix.any() for matrix in ids):
        p.shadow.forget(w, ins)
        return None
    a, b, c = (p.nodes.tags[matrix] for matrix in ids)
    event = p.nodes.event(w, ins)
    actors = [_lanes(fragment) for fragment in fragments]
    numbers = [_numbers(w, ins, name, f, t) for name, f, t in zip("ab", fragments, types, strict=False)]
    m, n = c.shape
    result: Tags = c.reshape(-1).copy()
    for inner in range(a.shape[1]):
        if not a["kind"][:, inner].any() and not b["kind"][inner].any():
            continue
        left, right = np.repeat(a[:, inner], n), np.tile(b[inner], m)
        x, y = np.repeat(numbers[0][:, inner], n), np.tile(numbers[1][inner], m)
        lanes = np.repeat(actors[0][:, inner], n)
        result = p.add(result, p.multiply(left, x, right, y, Where(event, lanes)))

    def done() -> None:
        values = _numbers(w, ins, "d", fragments[3], types[3]).reshape(-1)
        made = p.make(result, values, Where(event, actors[3].reshape(-1)))
        _deal(p, w, ins, made.reshape(m, n), fragments[3])

    return done


def _load(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    fragment = wmma_fragment(*shape_of(ins), operand=ins.mods.get("which", "c"), element=ins.type)
    offsets = element_offsets(w, ins, fragment)
    space, address = target(w, ins)
    size = fragment.bits // 8
    for register, item in enumerate(members(ins.operand("d"))):
        parts = [p.shadow.load(w, space, address + offsets[register, :, j], size) for j in range(offsets.shape[2])]
        held = np.concatenate(parts, axis=1)
        p.acts.moved("load", w, ins, (space, address), held)
        p.shadow.write(w, item, held)
    return None


def _store(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    fragment = wmma_fragment(*shape_of(ins), operand="c", element=ins.type)
    offsets = element_offsets(w, ins, fragment)
    space, address = target(w, ins)
    size = fragment.bits // 8
    for register, item in enumerate(members(ins.operand("b"))):
        held = p.shadow.read(w, item, 4)
        ids = (np.zeros((32, 4), np.int32) if held is None else held).reshape(32, -1, size)
        raw = as_bytes(w.read(item, "b32", ins.line)).reshape(32, -1, size)
        for j in range(offsets.shape[2]):
            at = address + offsets[register, :, j]
            p.shadow.store(w, space, at, ids[:, j])
            p.acts.moved("store", w, ins, (space, at), ids[:, j])
            show_output(p, w, ins, (space, at), (ids[:, j], raw[:, j]))
    return None


def _ldmatrix(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """As in the interpreter: row r of matrix i from lane 8 i + r, two elements per lane."""
    count = int(ins.mods["num"][1:])
    space, address = target(w, ins)
    rows = p.shadow.load(w, space, address, 16)
    rows[8 * count :] = 0
    p.acts.moved("load", w, ins, (space, address), rows)
    matrices = rows.reshape(4, 8, 8, 2)[:count]  # two bytes are moved together: one element, or two of 8 bits
    if ins.has("trans"):
        matrices = matrices.transpose(0, 2, 1, 3)
    for item, matrix in zip(members(ins.operand("d")), matrices, strict=True):
        p.shadow.write(w, item, np.ascontiguousarray(matrix).reshape(32, 4))
    return None


def _movmatrix(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    held = p.shadow.read(w, ins.operand("a"), 4)
    if held is None:
        p.shadow.forget(w, ins)
        return None
    matrix = held.reshape(32, 2, 2).max(axis=2).reshape(8, 8)
    p.shadow.write(w, ins.operand("d"), np.repeat(matrix.T.reshape(32, 2), 2, axis=1))
    return None


MATRICES: dict[tuple[str, str], Handler] = {
    ("matrix", "mma"): _mma,
    ("matrix", "wmma"): _wmma,
    ("matrix", "ldmatrix"): _ldmatrix,
    ("matrix", "movmatrix"): _movmatrix,
}
