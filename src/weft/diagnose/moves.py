"""Instructions that move bytes, and integer instructions on them: they compute no new values of a stage."""

from collections.abc import Sequence

import numpy as np

from weft.ptx.module import WIDTH, Instruction, Mem, Operand, Reg
from weft.vm.reference.access import as_bytes
from weft.vm.reference.machine import RunningWarp
from weft.vm.reference.sync import shuffle_sources

from .nodes import MIX_NODE, Where
from .provenance import Finish, Handler, Provenance
from .shadow import literal, members, places, single, target
from .tags import Ids


def _mov(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    source, result = ins.operand("a"), ins.operand("d")
    if ins.type == "pred":
        return None
    size = WIDTH[ins.type] // 8
    parts = [_bytes(p, w, item, size // len(members(source))) for item in members(source)]
    held = np.concatenate(parts, axis=1)
    each = size // len(members(result))
    for number, item in enumerate(members(result)):
        piece = held[:, number * each : (number + 1) * each]
        p.shadow.write(w, item, piece if piece.any() else None)
    return None


def _bytes(p: Provenance, w: RunningWarp, operand: Operand, size: int) -> Ids:
    held = p.shadow.read(w, operand, size)
    return np.zeros((32, size), np.int32) if held is None else held


# -- memory ------------------------------------------------------------------------------------------------------


def _ld(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """Loaded bytes keep their nodes. A constant at an address computed from an element is that element, looked up."""
    items = members(ins.operand("d"))
    size = WIDTH[ins.type] // 8
    space, address = target(w, ins)
    held = p.shadow.load(w, space, address, size * len(items))
    p.acts.moved("load", w, ins, (space, address), held)
    looked_up = _address_node(p, w, ins)
    if looked_up is not None:
        held = np.where(held.any(axis=1, keepdims=True), held, looked_up[:, None])
    for number, item in enumerate(items):
        piece = held[:, number * size : (number + 1) * size]
        p.shadow.write(w, item, piece if piece.any() else None)
    return None


def _address_node(p: Provenance, w: RunningWarp, ins: Instruction) -> Ids | None:
    mem = ins.operand("a")
    if not isinstance(mem, Mem) or not isinstance(mem.base, Reg):
        return None
    held = p.shadow.read(w, mem.base, w.file[mem.base.name].dtype.itemsize)
    return None if held is None else single(held)


def _st(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    items = members(ins.operand("b"))
    size = WIDTH[ins.type] // 8
    space, address = target(w, ins)
    ids = np.concatenate([_bytes(p, w, item, size) for item in items], axis=1)
    p.shadow.store(w, space, address, ids)
    p.acts.moved("store", w, ins, (space, address), ids)
    data = np.concatenate([as_bytes(value) for value in w.items(ins, "b")], axis=1)
    show_output(p, w, ins, (space, address), (ids, data))
    return None


def show_output(
    p: Provenance, w: RunningWarp, ins: Instruction, at: tuple[str, np.ndarray], stored: tuple[Ids, np.ndarray]
) -> None:
    """Record bytes that are stored to O or LSE on the board, as elements."""
    ids, data = stored
    for region, lanes, offsets in places(w, *at, data.shape[1]):
        if region.name != "global":
            continue
        for output in p.outputs:
            size = output.array.dtype.itemsize
            inside = lanes & (offsets >= output.start) & (offsets < output.start + output.array.nbytes)
            if not inside.any() or data.shape[1] % size:
                continue
            event = p.nodes.event(w, ins)
            for part in range(data.shape[1] // size):
                piece = slice(part * size, (part + 1) * size)
                raw = np.ascontiguousarray(data[inside][:, piece]).view(output.array.dtype).reshape(-1)
                index = (offsets[inside] - output.start) // size + part
                nodes = single(ids[inside][:, piece])
                p.board.stored(
                    output.name,
                    index,
                    raw.astype(np.float64),
                    p.nodes.tags[nodes],
                    Where(event, np.flatnonzero(inside)),
                )


def _cp(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """Copies arrive at the wait, as they do in the interpreter."""
    if not (ins.has("wait_group") or ins.has("wait_all")):
        return None
    pending = w.src(ins, "count") if ins.has("wait_group") else np.zeros(32, np.uint32)
    for lane in np.flatnonzero(w.mask):
        groups = list(w.groups[lane])
        if ins.has("wait_all"):
            groups.append(w.uncommitted[lane])
        for group in groups[: max(len(groups) - int(pending[lane]), 0)]:
            for to, at, source, start, length, size in group:
                shadow = p.shadow.of_region(to)
                shadow[at : at + size] = 0
                if length:
                    shadow[at : at + length] = p.shadow.of_region(source)[start : start + length]
    return None


def _written_memory(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """Atomics: their results are not followed."""
    space, address = target(w, ins)
    p.shadow.store(w, space, address, np.zeros((32, WIDTH[ins.type] // 8), np.int32))
    p.shadow.forget(w, ins)
    return None


def _shfl(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    held = p.shadow.read(w, ins.operand("a"), 4)
    if held is None:
        p.shadow.forget(w, ins)
        return None
    p.shadow.write(w, ins.operand("d"), held[shuffle_sources(w, ins)[0]])
    return None


# -- integers ----------------------------------------------------------------------------------------------------


def _carry(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """The result has the one node of the sources; with several nodes it is unknown."""
    nodes = np.zeros(32, np.int32)
    for spec, operand in zip(ins.form.operands, ins.operands, strict=False):
        if spec.written or not isinstance(operand, Reg) or w.types[operand.name] == "pred":
            continue
        held = p.shadow.read(w, operand, w.file[operand.name].dtype.itemsize)
        if held is not None:
            nodes = _either(p, nodes, single(held))
    if not nodes.any():
        p.shadow.forget(w, ins)
        return None
    for register in ins.written():
        p.shadow.write(w, register, np.repeat(nodes[:, None], 8, axis=1))
    return None


def _either(p: Provenance, a: Ids, b: Ids) -> Ids:
    same = p.nodes.tags[a] == p.nodes.tags[b]
    return np.where((b == 0) | same, a, np.where(a == 0, b, np.int32(MIX_NODE))).astype(np.int32)


def _shift(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """A shift by full bytes is a move."""
    amount = literal(ins.operand("b"))
    if amount is None or amount % 8:
        return _carry(p, w, ins)
    size = WIDTH[ins.type] // 8
    held = p.shadow.read(w, ins.operand("a"), size)
    if held is None:
        p.shadow.forget(w, ins)
        return None
    out, by = np.zeros((32, size), np.int32), min(amount // 8, size)
    if ins.form.name == "shl":
        out[:, by:] = held[:, : size - by]
    else:
        out[:, : size - by] = held[:, by:]
    p.shadow.write(w, ins.operand("d"), out)
    return None


def _and(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """`and` with a literal: the bytes it clears are dropped, the others stay."""
    if ins.type == "pred":
        return None
    mask = literal(ins.operand("b"))
    size = WIDTH[ins.type] // 8
    held = p.shadow.read(w, ins.operand("a"), size)
    if mask is None or held is None:
        return _carry(p, w, ins)
    kept = np.array([mask >> 8 * at & 0xFF != 0 for at in range(size)])
    p.shadow.write(w, ins.operand("d"), np.where(kept, held, 0).astype(np.int32))
    return None


def _or(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """`or`: bytes of one side or the other, where only one has a node."""
    if ins.type == "pred":
        return None
    size = WIDTH[ins.type] // 8
    a, b = (_bytes(p, w, ins.operand(name), size) for name in "ab")
    if ((a != 0) & (b != 0)).any():
        return _carry(p, w, ins)
    p.shadow.write(w, ins.operand("d"), a | b)
    return None


def _prmt(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    """prmt: bytes as each lane's selector picks them; a selector that replicates a sign is no move."""
    if ins.has("mode"):
        return _carry(p, w, ins)
    picks = np.asarray(w.src(ins, "c"))[:, None].astype(np.int64) >> 4 * np.arange(4) & 15
    if (picks[w.mask] & 8).any():
        return _carry(p, w, ins)
    both = np.concatenate([_bytes(p, w, ins.operand(name), 4) for name in "ab"], axis=1)
    p.shadow.write(w, ins.operand("d"), np.take_along_axis(both, picks & 7, axis=1))
    return None


def _bfe(p: Provenance, w: RunningWarp, ins: Instruction) -> Finish | None:
    start, length = literal(ins.operand("b")), literal(ins.operand("c"))
    held = p.shadow.read(w, ins.operand("a"), WIDTH[ins.type] // 8)
    if held is None or start is None or length is None or start % 8 or length % 8:
        return _carry(p, w, ins)
    p.shadow.write(w, ins.operand("d"), held[:, start // 8 : (start + length) // 8])
    return None


def _pairs(chapter: str, names: Sequence[str], handler: Handler) -> dict[tuple[str, str], Handler]:
    return {(chapter, name): handler for name in names}


MOVES: dict[tuple[str, str], Handler] = {
    ("memory", "mov"): _mov,
    ("memory", "ld"): _ld,
    ("memory", "st"): _st,
    ("memory", "cp"): _cp,
    ("memory", "cvta"): _carry,
    ("sync", "shfl"): _shfl,
    **_pairs("sync", ("atom", "red"), _written_memory),
    **_pairs("integer", ("add", "sub", "mul", "mad", "neg", "abs", "min", "max", "mul24", "mad24", "bfi"), _carry),
    ("integer", "bfe"): _bfe,
    **_pairs("bits", ("xor", "not", "lop3", "shf"), _carry),
    **_pairs("bits", ("shl", "shr"), _shift),
    ("bits", "and"): _and,
    ("bits", "or"): _or,
    ("bits", "prmt"): _prmt,
}
