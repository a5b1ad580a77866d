"""Data movement (PTX ISA 9.7.9): mov, ld, ldu, st, cvta, isspacep, prefetch, cp.async."""

from collections.abc import Callable

import numpy as np

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Imm, Instruction, Reg, Vec
from weft.ptx.passes.discard_unread import unread_members

from .access import Hit, address_of, as_bytes, fetch, locate, store
from .machine import Copy, RunningWarp
from .spaces import WINDOWS, Addresses, in_window
from .warp import Lanes, dtype_of


def _mov(w: RunningWarp, ins: Instruction) -> None:
    target, source = ins.operand("d"), ins.operand("a")
    if isinstance(source, Vec):  # pack: the first member is the lowest
        part = WIDTH[ins.type] // len(source.items)
        packed = np.concatenate([as_bytes(item) for item in w.items(ins, "a", f"b{part}")], axis=1)
        w.dst(ins, np.ascontiguousarray(packed).view(dtype_of(ins.type)).reshape(32))
    elif isinstance(target, Vec):  # unpack
        part = WIDTH[ins.type] // len(target.items)
        raw = as_bytes(w.src(ins, "a")).reshape(32, len(target.items), part // 8)
        for number, item in enumerate(target.items):
            w.write(item, _values(raw[:, number], f"b{part}"), f"b{part}", ins.line)
    else:
        w.dst(ins, w.src(ins, "a"))


def _values(raw: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], ptx_type: str) -> Lanes:
    """Return (32, size) bytes as (32,) values."""
    return np.ascontiguousarray(raw).view(dtype_of(ptx_type)).reshape(32)


def _ld(w: RunningWarp, ins: Instruction) -> None:
    space, address = address_of(w, ins, "a")
    _load(w, ins, space, address)


def _ldu(w: RunningWarp, ins: Instruction) -> None:
    _, address = address_of(w, ins, "a")
    _load(w, ins, "global", address)  # a generic address may be in no other window


def _load(w: RunningWarp, ins: Instruction, space: str, address: Addresses) -> None:
    target = ins.operand("d")
    items = target.items if isinstance(target, Vec) else (target,)
    _check_members(ins, len(items))
    size = WIDTH[ins.type] // 8
    read = items[: len(items) - unread_members(ins)]
    hits = locate(w, ins, space, address, size * len(read), align=size * len(items))
    raw = fetch(hits, size * len(read)).reshape(32, len(read), size)
    for number, item in enumerate(read):
        w.write(item, _values(raw[:, number], ins.type), ins.type, ins.line)


def _st(w: RunningWarp, ins: Instruction) -> None:
    values = w.items(ins, "b")
    _check_members(ins, len(values))
    space, address = address_of(w, ins, "a")
    store(w, ins, space, address, np.concatenate([as_bytes(value) for value in values], axis=1))


def _check_members(ins: Instruction, members: int) -> None:
    if members != int(ins.mods.get("vec", "v1")[1:]):
        raise Unsupported(f"{ins.opcode} with {members} registers", ins.line)


def _cvta(w: RunningWarp, ins: Instruction) -> None:
    base = np.uint64(WINDOWS[ins.mods["space"]])
    address = w.src(ins, "a").astype(np.uint64)
    moved = address - base if ins.has("to") else address + base
    w.dst(ins, moved.astype(dtype_of(ins.type)))


def _isspacep(w: RunningWarp, ins: Instruction) -> None:
    address = w.src(ins, "a")
    space = ins.mods["space"]
    if space not in ("const", "global"):
        w.dst(ins, in_window(space, address))
        return
    constant = np.zeros(32, bool)
    for variable in w.grid.module.variables:
        if variable.space == "const":
            at = w.grid.globals_at[variable.name]
            constant |= (address >= np.uint64(at)) & (address < np.uint64(at + variable.size_bytes))
    w.dst(ins, constant if space == "const" else in_window("global", address) & ~constant)


def _createpolicy(w: RunningWarp, ins: Instruction) -> None:
    w.dst(ins, np.zeros(32, np.uint64))


def _prefetch(w: RunningWarp, ins: Instruction) -> None:
    """Do nothing: a prefetch is a hint."""


def _cp(w: RunningWarp, ins: Instruction) -> None:
    if ins.has("commit_group"):
        for lane in w.lanes_on():
            w.groups[lane].append(w.uncommitted[lane])
            w.uncommitted[lane] = []
    elif ins.has("wait_group"):
        pending = w.src(ins, "count")
        for lane in w.lanes_on():
            _finish(w, lane, len(w.groups[lane]) - int(pending[lane]))
    elif ins.has("wait_all"):
        for lane in w.lanes_on():
            w.groups[lane].append(w.uncommitted[lane])
            w.uncommitted[lane] = []
            _finish(w, lane, len(w.groups[lane]))
    else:
        _copy(w, ins)


def _finish(w: RunningWarp, lane: int, count: int) -> None:
    """Carry out the oldest `count` groups: the source is read and the destination written only now."""
    for group in w.groups[lane][: max(count, 0)]:
        for copy in group:
            carry_out(w, copy)
    del w.groups[lane][: max(count, 0)]


def carry_out(w: RunningWarp, copy: Copy) -> None:
    """Read the source now, and write the destination."""
    if w.grid.observer is not None:
        w.grid.observer.landing(w, copy)
    to, at, source, start, length, size, _, rest = copy
    data = bytes(source.data[start : start + length]) + (rest or bytes(size - length))
    to.data[at : at + size] = np.frombuffer(data, np.uint8)


def _copy(w: RunningWarp, ins: Instruction) -> None:
    size_operand = ins.operand("size")
    if not isinstance(size_operand, Imm) or size_operand.value not in (
        (16,) if ins.mods["cop"] == "cg" else (4, 8, 16)
    ):
        raise Unsupported(f"{ins.opcode} of {size_operand}", ins.line)
    size = size_operand.value
    taken = source_bytes(w, ins, size)
    _, to = address_of(w, ins, "dst")  # the opcode names both spaces: destination shared, source global
    _, source_address = address_of(w, ins, "src")
    writes = _by_lane(locate(w, ins, "shared", to, size, write=True))
    reads: dict[int, Hit] = {}
    for length in sorted({int(n) for n in taken[w.mask]} - {0}):
        lanes = w.mask & (taken == length)
        reads |= _by_lane(locate(w, ins, "global", source_address, length, align=size, lanes=lanes))
    for lane, target in writes.items():
        length = int(taken[lane]) if lane in reads else 0
        source = reads.get(lane, target)
        copy = Copy(target.region, int(target.at[lane]), source.region, int(source.at[lane]), length, size, ins)
        w.uncommitted[lane].append(copy)


def source_bytes(w: RunningWarp, ins: Instruction, size: int) -> Lanes:
    """Return how many bytes come from the source; the rest of `size` is zero."""
    extra = ins.find("extra")
    if extra is None or (ins.has("L2::cache_hint") and ins.find("cache") is None):
        return np.full(32, size)
    if isinstance(extra, Reg) and w.types[extra.name] == "pred":  # ignore-src
        return np.where(w.read(extra, "pred", ins.line), 0, size)
    return np.minimum(w.read(extra, "u32", ins.line), size)


def _by_lane(hits: list[Hit]) -> dict[int, Hit]:
    return {int(lane): hit for hit in hits for lane in np.flatnonzero(hit.lanes)}


EXECUTE: dict[str, Callable[[RunningWarp, Instruction], None]] = {
    "mov": _mov,
    "ld": _ld,
    "ldu": _ldu,
    "st": _st,
    "cvta": _cvta,
    "isspacep": _isspacep,
    "createpolicy": _createpolicy,
    "prefetch": _prefetch,
    "cp": _cp,
}
