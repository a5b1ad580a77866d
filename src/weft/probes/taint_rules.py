"""How single instructions pass labels on: bit by bit where bits only move; all others smear."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from weft.ptx.module import WIDTH, Args, Imm, Instruction, Operand, Pair, Reg, Sym, Vec
from weft.vm.printf import format_device
from weft.vm.reference.access import address_of, device_bytes, device_string
from weft.vm.reference.machine import RunningWarp
from weft.vm.reference.memory import source_bytes
from weft.vm.reference.sync import shuffle_sources

from .taint_bits import bits_of, extended, field, keep_bits, moved, whole
from .taint_state import Taint
from .taint_tiles import ldmatrix, mma, movmatrix, wmma

Rule = Callable[[Taint, RunningWarp, Instruction], None]


def smear(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """Make every byte of the result depend on every byte of the sources; halves of packed types stay separate."""
    sources, targets = t.flow(ins)
    if "x2" in ins.mods.get("type", "") and ins.form.chapter in ("half", "integer"):
        halves = np.zeros((32, 4), np.uint64)
        for spec, operand in zip(ins.form.operands, ins.operands, strict=False):
            if not spec.written:
                halves |= t.read(w, operand, 4)
        both = np.bitwise_or.reduce(halves.reshape(32, 2, 2), axis=2)
        t.write(w, ins.operand("d"), np.repeat(whole(both), 2, axis=1))
        return
    registers = t.of(w).registers
    total = np.zeros(32, np.uint64)
    for name in sources:
        if name in registers:
            total |= np.bitwise_or.reduce(registers[name], axis=1)
    for name in targets:
        t.write(w, Reg(name), np.repeat(whole(total)[:, None], 8, axis=1))


def _members(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def _size(ptx_type: str) -> int:
    return max(WIDTH[ptx_type] // 8, 1)


# -- moving bytes ------------------------------------------------------------------------------------------------


def _mov(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    size = _size(ins.type)
    sources, targets = _members(ins.operand("a")), _members(ins.operand("d"))
    parts = [t.read(w, source, size // len(sources) or 1) for source in sources]
    labels = np.concatenate(parts, axis=1)
    part = size // len(targets) or 1
    for number, target in enumerate(targets):
        t.write(w, target, labels[:, number * part : (number + 1) * part])


def _ld(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    targets, size = _members(ins.operand("d")), _size(ins.type)
    total = size * len(targets)
    labels = t.load(w, ins, t.places(w, ins, "a", total), total)
    for number, target in enumerate(targets):
        own = labels[:, number * size : (number + 1) * size]
        t.write(w, target, extended(own) if ins.type[0] == "s" else own)


def _st(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    size = _size(ins.type)
    labels = np.concatenate([t.read(w, item, size) for item in _members(ins.operand("b"))], axis=1)
    t.store(w, ins, t.places(w, ins, "a", labels.shape[1]), labels)


def _selp(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """Only the selected value and the predicate count."""
    size = _size(ins.operand_type("d"))
    a, b = (t.read(w, ins.operand(name), size) for name in "ab")
    chosen = np.where(w.src(ins, "c")[:, None], a, b)
    t.write(w, ins.operand("d"), chosen | t.any_of(w, ins.operand("c"))[:, None])


def _and_or(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """A bit of one operand counts unless the other operand's bit is known to be 0 (and) or 1 (or)."""
    if ins.type == "pred":
        smear(t, w, ins)
        return
    size = _size(ins.type)
    labels = [t.read(w, ins.operand(name), size) for name in "ab"]
    values = [np.ascontiguousarray(w.src(ins, name)).view(np.uint8).reshape(32, size) for name in "ab"]
    opens = [(v if ins.form.name == "and" else ~v) | bits_of(label) for v, label in zip(values, labels, strict=True)]
    t.write(w, ins.operand("d"), keep_bits(labels[0], opens[1]) | keep_bits(labels[1], opens[0]))


def _bytewise(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """xor, not: bit by bit."""
    if ins.type == "pred":
        smear(t, w, ins)
        return
    size = _size(ins.type)
    names = [name for name in ("a", "b") if ins.find(name) is not None]
    labels = np.bitwise_or.reduce([t.read(w, ins.operand(name), size) for name in names])
    t.write(w, ins.operand("d"), labels)


def _shift(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    if t.any_of(w, ins.operand("b")).any():
        smear(t, w, ins)
        return
    size = _size(ins.type)
    amounts = np.minimum(w.src(ins, "b").astype(np.int64), 8 * size)
    if ins.form.name == "shl":
        amounts = -amounts
    labels = t.read(w, ins.operand("a"), size)
    t.write(w, ins.operand("d"), moved(labels, amounts, signed=ins.type[0] == "s"))


def _bfe(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    fixed = not (t.any_of(w, ins.operand("b")).any() or t.any_of(w, ins.operand("c")).any())
    if not fixed or ins.type[0] == "s":
        smear(t, w, ins)
        return
    position, length = (w.src(ins, name).astype(np.int64) & 0xFF for name in "bc")
    labels = moved(t.read(w, ins.operand("a"), _size(ins.type)), position)
    kept = field(np.zeros_like(length), length, labels.shape[1])
    t.write(w, ins.operand("d"), keep_bits(labels, kept))


def _bfi(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """bfi: the lowest bits of a replace a field of b."""
    if t.any_of(w, ins.operand("c")).any() or t.any_of(w, ins.operand("e")).any():
        smear(t, w, ins)
        return
    size = _size(ins.type)
    position, length = (w.src(ins, name).astype(np.int64) & 0xFF for name in "ce")
    inserted = field(position, length, size)
    a = moved(t.read(w, ins.operand("a"), size), -position)
    t.write(w, ins.operand("d"), keep_bits(a, inserted) | keep_bits(t.read(w, ins.operand("b"), size), ~inserted))


def _prmt(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    if ins.has("mode") or t.any_of(w, ins.operand("c")).any():
        smear(t, w, ins)
        return
    both = np.concatenate([t.read(w, ins.operand(name), 4) for name in "ab"], axis=1)
    selector = w.src(ins, "c").astype(np.int64)
    index = np.stack([selector >> 4 * at & 7 for at in range(4)], axis=1)
    taken = np.take_along_axis(both, index, axis=1)
    signs = np.stack([selector >> 4 * at & 8 for at in range(4)], axis=1) != 0  # a byte of copies of its sign
    t.write(w, ins.operand("d"), np.where(signs, whole(taken), taken))


def _cvt(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    to, source = ins.mods.get("dtype", ""), ins.mods["atype"]
    if to.endswith("x2"):
        half = _size(to) // 2
        if source.endswith("x2"):
            parts = np.bitwise_or.reduce(t.read(w, ins.operand("a"), _size(source)).reshape(32, 2, -1), axis=2)
        else:  # the first source is the upper half
            parts = np.stack([t.any_of(w, ins.operand(name)) for name in "ba"], axis=1)
        t.write(w, ins.operand("d"), np.repeat(whole(parts), half, axis=1))
    elif to[:1] in ("u", "s") and source[0] in "us" and not ins.has("sat"):
        labels = t.read(w, ins.operand("a"), _size(source))
        wide = extended(labels) if source[0] == "s" else labels
        narrow = wide[:, : _size(to)]
        t.write(w, ins.operand("d"), extended(narrow) if to[0] == "s" and narrow.shape[1] == _size(to) else narrow)
    else:
        smear(t, w, ins)


# -- between lanes -----------------------------------------------------------------------------------------------


def _shfl(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    t.sink(t.any_of(w, ins.operand("mask"))[w.mask], "a member mask", ins)
    source, _ = shuffle_sources(w, ins)
    control = (t.any_of(w, ins.operand("b")) | t.any_of(w, ins.operand("c")))[:, None]
    target = ins.operand("d")
    t.write(w, target, t.read(w, ins.operand("a"), 4)[source] | control)
    if isinstance(target, Pair):
        t.write(w, target.second, control)


def _among_lanes(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """vote, match, redux: each lane's result depends on each lane's value."""
    t.sink(t.any_of(w, ins.operand("mask"))[w.mask], "a member mask", ins)
    total = np.bitwise_or.reduce(t.any_of(w, ins.operand("a"))[w.mask])
    for name in t.flow(ins)[1]:
        t.write(w, Reg(name), np.full((32, 8), total, np.uint64))


def _barrier(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    for operand in ins.operands:
        t.sink(t.any_of(w, operand)[w.mask], "a barrier", ins)


# -- memory with effects -----------------------------------------------------------------------------------------


def _atomic(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """Lane after lane: a cell gets the labels of what is combined with it. An exchange drops the old labels."""
    size = _size(ins.type)
    given = t.read(w, ins.operand("b"), size)
    if ins.find("c") is not None:
        given = given | t.read(w, ins.operand("c"), size)
    old = np.zeros((32, size), np.uint64)
    places = t.places(w, ins, "a", size)
    for lane in w.lanes_on():
        only = np.arange(32) == lane
        here = [place for place in places if place.lanes[lane]]
        here = [type(place)(place.space, only, place.at) for place in here]
        exchange = ins.has("exch")
        found = t.load(w, ins, here, size, fresh_counts=not exchange)
        old[lane] = found[lane]
        spread = whole(np.bitwise_or.reduce(found | given, axis=1))[:, None]
        t.store(w, ins, here, given if exchange else np.repeat(spread, size, axis=1))
    if ins.find("d") is not None:
        t.write(w, ins.operand("d"), old)


def _cp(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    own = t.of(w)
    tracked = ins.form.chapter == "mbarrier"  # the bytes arrive with a phase and are not read before it
    if ins.has("commit_group") or ins.has("wait_all") or tracked:
        for lane in w.lanes_on():
            own.groups[lane].append(own.uncommitted[lane])
            own.uncommitted[lane] = []
    if ins.has("wait_group") or ins.has("wait_all") or tracked:
        pending = w.src(ins, "count") if ins.has("wait_group") else np.zeros(32, np.int64)
        for lane in w.lanes_on():
            _land(t, w, lane, len(own.groups[lane]) - int(pending[lane]))
    if ins.find("dst") is not None:
        _copy(t, w, ins)


def _copy(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    operand = ins.operand("size")
    assert isinstance(operand, Imm)
    size = operand.value
    extra = ins.find("extra")
    if extra is not None:
        t.sink(t.any_of(w, extra)[w.mask], "the size of a copy", ins)
    taken = source_bytes(w, ins, size)
    for name in ("dst", "src"):
        t.sink(t.any_of(w, ins.operand(name))[w.mask], "an address", ins)
    _, source = address_of(w, ins, "src")  # the opcode names both spaces: destination shared, source global
    _, target = address_of(w, ins, "dst")
    sources = {
        int(length): t.places_at(w, "global", source, int(length), w.mask & (taken == length))
        for length in set(taken[w.mask].tolist()) - {0}
    }
    labels = np.zeros((32, size), np.uint64)
    for length, places in sources.items():
        labels[:, :length] |= t.load(w, ins, places, length)
    for place in t.places_at(w, "shared", target, size, w.mask):
        for lane in np.flatnonzero(place.lanes):
            t.of(w).uncommitted[int(lane)].append((int(place.at[lane]), labels[lane]))


def _land(t: Taint, w: RunningWarp, lane: int, count: int) -> None:
    groups = t.of(w).groups[lane]
    shadow = t.shadow(w, "shared")
    assert shadow is not None and shadow.labels is not None
    for group in groups[: max(count, 0)]:
        for at, labels in group:
            shadow.labels[at : at + len(labels)] = labels
            shadow.fresh[at : at + len(labels)] = False
    del groups[: max(count, 0)]


# -- control -----------------------------------------------------------------------------------------------------


def _brx(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    t.sink(t.any_of(w, ins.operand("index"))[w.mask], "a branch", ins)


def _call(t: Taint, w: RunningWarp, ins: Instruction) -> None:
    """Functions without a body: what printf prints is an output. Results count as initialised."""
    function, args, results = ins.operand("func"), ins.operand("args"), ins.operand("ret")
    assert isinstance(function, Sym) and isinstance(args, Args) and isinstance(results, Args)
    shadow = t.shadow(w, "local")
    assert shadow is not None and shadow.labels is not None
    for item in results.items:
        at = _parameter(w, item)
        for lane in w.lanes_on():
            start = at + lane * w.local.lane_bytes
            shadow.fresh[start : start + 4] = False
            shadow.labels[start : start + 4] = 0
    if function.name != "vprintf":
        return
    starts = [_parameter(w, item) for item in args.items]
    for lane in w.lanes_on():
        shift = lane * w.local.lane_bytes
        text, values = (int.from_bytes(w.local.data[shift + at : shift + at + 8].tobytes(), "little") for at in starts)
        for at in starts:
            t.sink(shadow.labels[shift + at : shift + at + 8], "what is printed", ins)
        read = partial(_printed, t, w, ins, lane, values)
        format_device(device_string(w, lane, text), read, partial(device_string, w, lane))


def _parameter(w: RunningWarp, operand: Operand) -> int:
    assert isinstance(operand, Sym)
    return w.grid.layout.symbols[operand.name].address + operand.offset


def _printed(t: Taint, w: RunningWarp, ins: Instruction, lane: int, base: int, at: int, size: int) -> bytes:
    addresses = np.full(32, (base + at) & 0xFFFF_FFFF_FFFF_FFFF, np.uint64)
    places = t.places_at(w, "generic", addresses, size, np.arange(32) == lane)
    t.sink(t.load(w, ins, places, size)[lane], "what is printed", ins)
    return device_bytes(w, lane, base + at, size)


RULES: Mapping[str, Rule] = {
    "mov": _mov,
    "cvta": _mov,
    "ld": _ld,
    "st": _st,
    "selp": _selp,
    "and": _and_or,
    "or": _and_or,
    "xor": _bytewise,
    "not": _bytewise,
    "shl": _shift,
    "shr": _shift,
    "bfe": _bfe,
    "bfi": _bfi,
    "prmt": _prmt,
    "cvt": _cvt,
    "shfl": _shfl,
    "vote": _among_lanes,
    "match": _among_lanes,
    "redux": _among_lanes,
    "bar": _barrier,
    "barrier": _barrier,
    "atom": _atomic,
    "red": _atomic,
    "cp": _cp,
    "brx": _brx,
    "call": _call,
    "ldmatrix": ldmatrix,
    "movmatrix": movmatrix,
    "mma": mma,
    "wmma": wmma,
}
"""Rules by opcode; all others smear."""
MEMORY = frozenset({"ld", "st", "atom", "red", "cp", "call", "ldmatrix", "wmma"})
"""Opcodes whose rules are needed even if no register has labels."""
EFFECTS = frozenset({"st", "atom", "red", "cp", "bar", "barrier"})
"""Opcodes whose guard decides about more than a register."""
