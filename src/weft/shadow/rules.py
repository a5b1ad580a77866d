"""How the marks of one instruction move: in registers, between lanes, to and from memory."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Instruction, Pair
from weft.ptx.passes.discard_unread import unread_members
from weft.vm.reference.access import as_bytes
from weft.vm.reference.machine import RunningWarp
from weft.vm.reference.memory import source_bytes
from weft.vm.reference.sync import shuffle_sources

from .marks import Algebra, Bits, Marks, Rule, Shadow, Target, members, sources_of
from .matrices import load_rows, load_tile, multiply, multiply_group, store_rows, store_tile, transpose


def rule_for(ins: Instruction, algebra: Algebra) -> Rule:
    """Return the rule that follows from the facts of the instruction's row."""
    facts = ins.facts
    if facts.computes:
        return algebra.computes.get(facts.computes) or COMPUTES.get(facts.computes, blend)
    if facts.multiplies == "wgmma":
        return multiply_group
    if facts.multiplies:
        return multiply
    if facts.starts or facts.settles == "bulk" or any(access.holds == "tensor map" for access in facts.accesses):
        return _start_copy if facts.starts == "cp.async" else _bulk
    if facts.accesses:
        return _access_rule(ins)
    if facts.control:
        return _call if facts.control == "call" else _branch
    if facts.waits or facts.group in ("cta", "cluster"):
        return _barrier
    if facts.group == "warp":
        return _exchange if facts.copies else _among_lanes if "mask" in ins.form.index else transpose
    if facts.compares:
        return _compare
    if facts.converts:
        return _convert if "atype" in ins.mods else _move
    return _move if facts.copies == ("a",) else blend


def _access_rule(ins: Instruction) -> Rule:
    access = ins.facts.accesses[0]
    rule = _ACCESSES.get((access.verb, access.width if isinstance(access.width, str) else access.holds))
    if rule is None:
        raise Unsupported(f"following values through {ins.opcode}", ins.line)
    return rule


def _size(ptx_type: str) -> int:
    return max(WIDTH[ptx_type] // 8, 1)


def blend(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """Make every byte of the result depend on every byte of the sources; halves of packed types stay separate."""
    one, both = s.algebra.one, s.algebra.both
    if "x2" in ins.mods.get("type", "") and not ins.facts.compares:
        half = _size(ins.type) // 2
        halves = np.zeros((32, 2), s.algebra.dtype)
        for spec, operand in zip(ins.form.operands, ins.operands, strict=False):
            if not spec.written:
                halves = both(halves, one(s.read(w, operand, 2 * half).reshape(32, 2, half)))
        s.write(w, ins.operand("d"), np.repeat(halves, half, axis=1))
        return
    _give_all(s, w, ins, _total(s, w, ins))


def _total(s: Shadow, w: RunningWarp, ins: Instruction) -> Marks:
    """Return the mark (32,) of what is computed from all sources."""
    file = s.file(w)
    total = np.zeros(32, s.algebra.dtype)
    for name in sources_of(ins):
        if name in file:
            total = s.algebra.both(total, s.algebra.one(file[name]))
    return total


def _give_all(s: Shadow, w: RunningWarp, ins: Instruction, marks: Marks) -> None:
    """Give all bytes of the destinations one mark per lane."""
    for register in ins.written():
        s.write(w, register, np.repeat(marks[:, None], 8, axis=1))


def _compare(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    _give_all(s, w, ins, s.algebra.truth(_total(s, w, ins)))


# -- registers ---------------------------------------------------------------------------------------------------


def _move(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """mov, also of vectors; cvta, whose windows are in the upper bytes of no value that is followed."""
    size = _size(ins.type)
    sources, targets = members(ins.operand("a")), members(ins.operand("d"))
    marks = np.concatenate([s.read(w, source, size // len(sources) or 1) for source in sources], axis=1)
    part = size // len(targets) or 1
    for number, target in enumerate(targets):
        s.write(w, target, marks[:, number * part : (number + 1) * part])


def select(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """selp: only the selected value and the predicate count."""
    size = _size(ins.operand_type("d"))
    a, b = (s.read(w, ins.operand(name), size) for name in "ab")
    chosen = np.where(w.src(ins, "c")[:, None], a, b)
    s.write(w, ins.operand("d"), s.algebra.decided(chosen, s.value(w, ins.operand("c"))))


def _bitwise(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """xor, not: bits stay where they are."""
    if ins.type == "pred":
        blend(s, w, ins)
        return
    marks = [s.read(w, ins.operand(name), _size(ins.type)) for name in "ab" if ins.find(name) is not None]
    s.write(w, ins.operand("d"), marks[0] if len(marks) == 1 else s.algebra.both(*marks))


def _and_or(s: Shadow, w: RunningWarp, ins: Instruction, *, closes: int) -> None:
    """A bit of one operand counts unless the other operand's bit is known to be 0 (and) or 1 (or)."""
    if ins.type == "pred":
        blend(s, w, ins)
        return
    algebra, size = s.algebra, _size(ins.type)
    marks = [s.read(w, ins.operand(name), size) for name in "ab"]
    values = [as_bytes(w.src(ins, name)) ^ np.uint8(closes) for name in "ab"]
    opens = [value | algebra.marked_bits(own) for value, own in zip(values, marks, strict=True)]
    kept = algebra.both(algebra.through(marks[0], opens[1]), algebra.through(marks[1], opens[0]))
    s.write(w, ins.operand("d"), kept)


def _and(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    _and_or(s, w, ins, closes=0)


def _or(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    _and_or(s, w, ins, closes=0xFF)


def _known(s: Shadow, w: RunningWarp, ins: Instruction, names: str) -> bool:
    return not any(s.value(w, ins.operand(name)).any() for name in names)


def _shift(s: Shadow, w: RunningWarp, ins: Instruction, sign: int) -> None:
    size = _size(ins.type)
    amounts = sign * np.minimum(w.src(ins, "b").astype(np.int64), 8 * size)
    held = s.read(w, ins.operand("a"), size)
    moved = s.algebra.shifted(held, amounts, signed=ins.type[0] == "s") if _known(s, w, ins, "b") else None
    if moved is None:
        blend(s, w, ins)
    else:
        s.write(w, ins.operand("d"), moved)


def _shift_left(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    _shift(s, w, ins, -1)


def _shift_right(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    _shift(s, w, ins, 1)


def _field(position: npt.NDArray[np.int64], length: npt.NDArray[np.int64], size: int) -> Bits:
    """Return a mask of `length` bits from `position` on of a value's `size` bytes; shape (32, size)."""
    at = np.arange(8 * size)[None, :]
    inside = (at >= position[:, None]) & (at < (position + length)[:, None])
    return np.packbits(inside, axis=1, bitorder="little")


def _extract(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """bfe: a field of a, to the lowest bits; a sign beyond the field depends on all of it."""
    size, signed = _size(ins.type), ins.type[0] == "s"
    position, length = (w.src(ins, name).astype(np.int64) & 0xFF for name in "bc")
    position = np.minimum(position, 8 * size - 1) if signed else position
    moved = None
    if _known(s, w, ins, "bc"):
        moved = s.algebra.shifted(s.read(w, ins.operand("a"), size), position, signed=False)
    if moved is None:
        blend(s, w, ins)
        return
    kept = s.algebra.through(moved, _field(np.zeros_like(length), length, size))
    s.write(w, ins.operand("d"), s.algebra.decided(kept, s.algebra.one(kept)) if signed else kept)


def _insert(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """bfi: the lowest bits of a replace a field of b."""
    size = _size(ins.type)
    position, length = (w.src(ins, name).astype(np.int64) & 0xFF for name in "ce")
    moved = None
    if _known(s, w, ins, "ce"):
        moved = s.algebra.shifted(s.read(w, ins.operand("a"), size), -position, signed=False)
    if moved is None:
        blend(s, w, ins)
        return
    inserted = _field(position, length, size)
    left = s.algebra.through(s.read(w, ins.operand("b"), size), ~inserted)
    s.write(w, ins.operand("d"), s.algebra.both(s.algebra.through(moved, inserted), left))


def _permute(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """prmt: bytes as each lane's selector picks them, or copies of their sign."""
    if ins.has("mode") or not _known(s, w, ins, "c"):
        blend(s, w, ins)
        return
    both = np.concatenate([s.read(w, ins.operand(name), 4) for name in "ab"], axis=1)
    picks = w.src(ins, "c").astype(np.int64)[:, None] >> 4 * np.arange(4)
    taken = np.take_along_axis(both, picks & 7, axis=1)
    s.write(w, ins.operand("d"), np.where(picks & 8 != 0, s.algebra.one(taken[:, :, None]), taken))


def _convert(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """cvt: packed values one by one, unless two share a byte; integers byte by byte, as they are cut or extended."""
    algebra, to, source = s.algebra, ins.mods.get("dtype", ""), ins.mods["atype"]
    if "e2m1x2" in (to, source):
        blend(s, w, ins)
    elif to.endswith("x2"):
        if source.endswith("x2"):
            parts = algebra.one(s.read(w, ins.operand("a"), _size(source)).reshape(32, 2, -1))
        else:  # the first source is the upper half
            parts = np.stack([s.value(w, ins.operand(name)) for name in "ba"], axis=1)
        s.write(w, ins.operand("d"), np.repeat(parts, _size(to) // 2, axis=1))
    elif to[:1] in ("u", "s") and source[0] in "us" and not ins.has("sat"):
        marks = s.read(w, ins.operand("a"), _size(source))
        wide = algebra.extended(marks) if source[0] == "s" else marks
        narrow = wide[:, : _size(to)]
        signed = to[0] == "s" and narrow.shape[1] == _size(to)
        s.write(w, ins.operand("d"), algebra.extended(narrow) if signed else narrow)
    else:
        blend(s, w, ins)


# -- between lanes -----------------------------------------------------------------------------------------------


def _exchange(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """shfl: a value of another lane, chosen by the operands b and c."""
    s.algebra.used(ins, s.value(w, ins.operand("mask"))[w.mask], "a member mask")
    control = s.algebra.both(*(s.value(w, ins.operand(name)) for name in "bc"))
    moved = s.read(w, ins.operand("a"), 4)[shuffle_sources(w, ins)[0]]
    target = ins.operand("d")
    s.write(w, target, s.algebra.decided(moved, control))
    if isinstance(target, Pair):
        s.write(w, target.second, s.algebra.decided(np.zeros((32, 1), s.algebra.dtype), control))


def _among_lanes(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """vote, match, redux: each lane's result depends on each lane's value."""
    s.algebra.used(ins, s.value(w, ins.operand("mask"))[w.mask], "a member mask")
    source = ins.find("a")
    mark = s.algebra.among(s.value(w, source)[w.mask]) if source is not None else 0
    _give_all(s, w, ins, np.full(32, mark, s.algebra.dtype))


def _barrier(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    s.algebra.used(ins, _total(s, w, ins)[w.mask], "a barrier")
    s.forget(w, ins)


def _branch(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    s.algebra.used(ins, _total(s, w, ins)[w.mask], "a branch")


def _call(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    s.forget(w, ins)
    s.algebra.called(s, w, ins)


# -- memory ------------------------------------------------------------------------------------------------------


def _load(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    items, size = members(ins.operand("d")), _size(ins.type)
    items = items[: len(items) - unread_members(ins)]
    marks = s.load(w, ins, s.target(w, ins, "a"), size * len(items))
    for number, item in enumerate(items):
        own = marks[:, number * size : (number + 1) * size]
        s.write(w, item, s.algebra.extended(own) if ins.type[0] == "s" else own)


def _store(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    size = _size(ins.type)
    marks = np.concatenate([s.read(w, item, size) for item in members(ins.operand("b"))], axis=1)
    target = s.target(w, ins, "a")
    s.store(w, ins, target, marks)
    s.algebra.stored(w, ins, target, marks, np.concatenate([as_bytes(value) for value in w.items(ins, "b")], axis=1))


def _atomic(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """Lane after lane: an exchange moves both values; others combine what is there with what is given."""
    size, target = _size(ins.type), s.target(w, ins, "a")
    given = [s.read(w, ins.operand(name), size) for name in "bc" if ins.find(name) is not None]
    both = given[0] if len(given) == 1 else s.algebra.both(*given)
    old = np.zeros((32, size), s.algebra.dtype)
    for lane in w.lanes_on():
        alone = Target(target.space, target.address, np.arange(32) == lane, target.pointer)
        found = s.fetch(w, ins, alone, size)
        old[lane] = found[lane]
        s.store(w, ins, alone, both if ins.has("exch") else s.algebra.updated(found, both))
    for register in ins.written():
        s.write(w, register, old)


def _count(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """mbarriers: the word in memory is written by the hardware, and depends on no value that is followed."""
    target = s.target(w, ins, "a")
    blend(s, w, ins)
    if ins.facts.writes_memory:
        s.store(w, ins, target, np.zeros((32, 8), s.algebra.dtype))


def _start_copy(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """cp.async: the bytes move when the copy lands (`Shadow.copy`); the source counts as read from now on."""
    store, load = ins.facts.accesses
    size = ins.bytes_of(load)
    if size is None:
        raise Unsupported(f"following values through {ins.opcode} of a size that is no constant", ins.line)
    extra = ins.find("extra")
    if extra is not None:
        s.algebra.used(ins, s.value(w, extra)[w.mask], "the size of a copy")
    s.target(w, ins, store.address)
    source = s.target(w, ins, load.address)
    taken = source_bytes(w, ins, size)
    for length in sorted(set(taken[w.mask].tolist()) - {0}):
        target = Target(load.only, source.address, w.mask & (taken == length), source.pointer)
        s.algebra.copied(w, ins, s.fetch(w, ins, target, length))


def _bulk(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """Bulk copies move their marks when they land (`Shadow.copy`); tensor maps depend on no value that is followed."""
    if ins.facts.is_atomic:
        raise Unsupported(f"following values through {ins.opcode}", ins.line)


def _hint(s: Shadow, w: RunningWarp, ins: Instruction) -> None:
    """prefetch: no value depends on it."""


_ACCESSES: Mapping[tuple[str, str], Rule] = {
    ("load", "type"): _load,
    ("store", "type"): _store,
    ("atomic", "type"): _atomic,
    ("load", "row"): load_rows,
    ("store", "row"): store_rows,
    ("load", "tile"): load_tile,
    ("store", "tile"): store_tile,
    ("load", "mbarrier"): _count,
    ("store", "mbarrier"): _count,
    ("atomic", "mbarrier"): _count,
    ("prefetch", ""): _hint,
}
"""By the verb of an access, and its width or what the bytes hold."""
COMPUTES: Mapping[str, Rule] = {
    "select": select,
    "and": _and,
    "or": _or,
    "bitwise": _bitwise,
    "shift left": _shift_left,
    "shift right": _shift_right,
    "extract": _extract,
    "insert": _insert,
    "permute": _permute,
}
"""By what the row computes; everything else blends."""
