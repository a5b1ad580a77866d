"""wavefronts: how many passes through shared memory each warp access needs, at PTX level.

    lanes are served in phases: 32 lanes (up to 4 bytes each), 16 (8 bytes), 8 (16 bytes; ldmatrix: one matrix each)
    wavefronts = Σ over phases with an active lane of max over the 32 banks of distinct 4-byte words
Wide loads in which every lane shares its address with lane^1, or every lane with lane^2 (inactive lanes match all),
join their phases in pairs. Ideal = phases with an active lane after joining.

An aligned lane of 8 or 16 bytes covers 2 or 4 neighbouring banks once each, so it is one chunk in one of 16 or 8 wider
banks: the maximum counts chunks. All phases are counted at once: a slot is a bank of a phase, and each round serves
one chunk per slot.

A wmma access counts once per 8 x 8 block, as ldmatrix and vector accesses would; atomics and the fills of
asynchronous copies are not counted.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from weft.vm.ir import LANES, Builder, Value, const, vec, vector
from weft.vm.runtime.shape import Variable, bits, function, loop, symbol, unbits, when

from .shared_probe import SharedProbe, Touch

NAMES = ("vm__shared_accesses", "vm__shared_wavefronts", "vm__shared_wavefronts_ideal")
_TOTALS = "<4 x i64>"
_WORDS = vec("i32")
_UNITS = (4, 8, 16)


class Wavefronts(SharedProbe):
    """Counts accesses, wavefronts and the minimum of wavefronts."""

    name = "wavefronts"

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return 64

    def counters(self, memory: npt.NDArray[np.uint8]) -> Mapping[str, int]:
        totals = memory[: 8 * len(NAMES)].view(np.uint64)
        return {name: int(total) for name, total in zip(NAMES, totals, strict=True)}

    def touch(self, b: Builder, touch: Touch) -> None:
        if touch.verb not in ("load", "store"):
            return
        unit = max(touch.bytes, 4)
        phases = unit // 4
        if touch.contiguous:
            self._add(b, vector("i64", [1, phases, phases, 0]))
            return
        if touch.uniform and unit < 16:
            self._add(b, vector("i64", [1, 1, 1, 0]))
            return
        lanes = touch.rows or LANES
        wanted, ideal = (1 << lanes) - 1, lanes * phases // LANES
        one_each = b.op("shl", const(_WORDS, 1), _slots(b, touch.offsets, unit, LANES // phases))
        taken = b.select(unbits(b, touch.lanes), one_each, const(_WORDS, 0))
        union = b.intrinsic("vector.reduce.or", "i32", [taken], overloads=[_WORDS])
        # There are as many active lanes as slots: if all slots are taken, each has one chunk.
        free = b.icmp("eq", b.op("and", union, touch.lanes), const("i32", wanted))
        quick, count, after = b.label("quick"), b.label("count"), b.label("after")
        b.cbr(free, quick, count, likely=True)
        b.place(quick)
        self._add(b, vector("i64", [1, ideal, ideal, 0]))
        b.br(after)
        b.place(count)
        joins = unit > 4 and touch.verb == "load" and not touch.rows
        b.call(symbol(_name(unit, joins)), "void", [b.param("warp"), touch.offsets, touch.lanes])
        b.place(after)

    def _add(self, b: Builder, more: Value) -> None:
        totals = self.memory_of_warp(b)
        b.store(b.op("add", b.load(_TOTALS, totals, align=8), more), totals, align=8)

    def functions(self) -> Sequence[Builder]:
        return [self._count(unit, joins) for unit in _UNITS for joins in ((False, True) if unit > 4 else (False,))]

    def _count(self, unit: int, joins: bool) -> Builder:
        """Build the function for the general case."""
        b = function(_name(unit, joins), "void", [("ptr", "warp"), (_WORDS, "offsets"), ("i32", "lanes")])
        with when(b, b.icmp("eq", b.param("lanes"), const("i32", 0)), likely=False):
            b.ret()
        waves, ideal = count_wavefronts(b, unit, joins=joins)
        more = vector("i64", [1, 0, 0, 0])
        self._add(b, b.insert(b.insert(more, waves, 1), ideal, 2))
        b.ret()
        return b


def count_wavefronts(b: Builder, unit: int, *, joins: bool) -> tuple[Value, Value]:
    """Wavefronts and their minimum, as i64, of `lanes` at `offsets` (parameters of the function being built).

    Serves one chunk per slot until no lane is left.
    """
    lanes, per_phase = b.param("lanes"), LANES * 4 // unit
    chunk = b.op("lshr", b.param("offsets"), const(_WORDS, unit.bit_length() - 1))
    slot = _slots(b, b.param("offsets"), unit, per_phase)
    joined = const("i1", 0)
    if joins:
        joined = b.op("or", _agree(b, 1, 0x55555555), _agree(b, 2, 0x33333333))
        slot = b.select(joined, _slots(b, b.param("offsets"), unit, 2 * per_phase), slot)

    def phases(left: Value) -> Value:
        apart = _phases(b, left, per_phase)
        return b.select(joined, _phases(b, left, 2 * per_phase), apart) if joins else apart

    table = b.alloca(f"[{2 * LANES} x i32]")
    rest, waves = Variable(b, lanes), Variable(b, const("i64", 0))
    ideal = phases(lanes)
    with loop(b, lambda: b.icmp("ne", rest.get(), const("i32", 0))):
        left = rest.get()
        waves.set(b.op("add", waves.get(), phases(left)))
        # Lanes already served write to a slot that is never read.
        target = b.select(unbits(b, left), slot, const(_WORDS, LANES))
        _scatter(b, chunk, _entries(b, table, target))
        served = bits(b, b.icmp("eq", _gather(b, _entries(b, table, slot)), chunk))
        rest.set(b.op("and", left, b.op("xor", served, const("i32", -1))))
    return waves.get(), ideal


def _name(unit: int, joins: bool) -> str:
    return f"probe.wavefronts.{unit}" + ".join" * joins


def _slots(b: Builder, offsets: Value, unit: int, per_phase: int) -> Value:
    """The bank of a lane's chunk, plus its phase's first slot."""
    banks = 128 // unit
    bank = b.op("and", b.op("lshr", offsets, const(_WORDS, unit.bit_length() - 1)), const(_WORDS, banks - 1))
    if per_phase >= LANES:
        return bank
    return b.op("or", bank, vector("i32", (lane // per_phase * banks for lane in range(LANES))))


def _phases(b: Builder, lanes: Value, per_phase: int) -> Value:
    """The number of phases that have a lane of the mask, as i64."""
    total = const("i64", 0)
    for first in range(0, LANES, per_phase):
        mask = ((1 << min(per_phase, LANES)) - 1) << first
        some = b.icmp("ne", b.op("and", lanes, const("i32", mask)), const("i32", 0))
        total = b.op("add", total, b.cast("zext", some, "i64"))
    return total


def _agree(b: Builder, distance: int, low: int) -> Value:
    """i1: each lane has the address of lane ^ distance or one of the two is inactive. `low`: the pairs' lower lanes."""
    offsets, lanes = b.param("offsets"), b.param("lanes")
    other = b.shuffle(offsets, None, [lane ^ distance for lane in range(LANES)])
    up, down = b.op("lshr", lanes, const("i32", distance)), b.op("shl", lanes, const("i32", distance))
    swapped = b.op("or", b.op("and", up, const("i32", low)), b.op("and", down, const("i32", ~low)))
    both = b.op("and", lanes, swapped)
    apart = b.op("and", bits(b, b.icmp("ne", offsets, other)), both)
    return b.icmp("eq", apart, const("i32", 0))


def _entries(b: Builder, table: Value, index: Value) -> Value:
    return b.emit(vec("ptr"), f"getelementptr i32, ptr {table.ref}, {index.ty} {index.ref}")


def _gather(b: Builder, places: Value) -> Value:
    name, on = "llvm.masked.gather.v32i32.v32p0", const(vec("i1"), 1).ref
    b.declarations.setdefault(name, f"declare {_WORDS} @{name}(<32 x ptr>, <32 x i1>, {_WORDS})")
    return b.emit(_WORDS, f"call {_WORDS} @{name}(<32 x ptr> align 4 {places.ref}, <32 x i1> {on}, {_WORDS} poison)")


def _scatter(b: Builder, value: Value, places: Value) -> None:
    name, on = "llvm.masked.scatter.v32i32.v32p0", const(vec("i1"), 1).ref
    b.declarations.setdefault(name, f"declare void @{name}({_WORDS}, <32 x ptr>, <32 x i1>)")
    b.do(f"call void @{name}({_WORDS} {value.ref}, <32 x ptr> align 4 {places.ref}, <32 x i1> {on})")
