"""Counts accesses to shared and global memory for every PTX instruction, at the width of the SASS.

The worker's memory has a record of 64 bytes for each PTX line, eight i64:
    0 shared accesses    1 wavefronts    2 ideal wavefronts
    3 global requests    4 sectors (distinct 32 bytes)    5 tags (distinct 128 bytes)
    6 shared fills of asynchronous copies
    7 how to count, written before the run, two i32: 0 as in PTX, n > 0 as n bytes per lane, HIDDEN not at all,
      n + ALIGNED (shared memory) as n bytes where the address is a multiple of n and else not at all,
      + e · EARLY + s · SPAN: and additionally as 4 bytes at the first e words of every s bytes (s a power of two);
      and, for shared memory, the bytes from the PTX address to the start of the access
An access counts only if a lane takes part. The board has a byte for each sector of the arena: bit 0 loaded, bit 1
stored.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from weft.probes.shared_probe import SharedProbe, Touch, source_digest
from weft.probes.wavefronts import count_wavefronts
from weft.vm.context import WARP_WORKER, WORKER_BOARD
from weft.vm.ir import Builder, Value, const, vec
from weft.vm.memory import GLOBAL_BASE, GlobalMemory
from weft.vm.program import ProgramSource, runs_of_blocks
from weft.vm.runtime.shape import Variable, bits, function, get, loop, symbol, when
from weft.vm.runtime.watch import Access

HIDDEN = -1
"""The access is part of another one."""
ALIGNED = 256
"""Iterations of a loop share an access: the first of them, at a multiple of the width, represents all."""
EARLY, SPAN = 1 << 9, 1 << 12
"""Some of these iterations, up to seven, have an additional access of 4 bytes: EARLY counts them in SPAN bytes."""
SECTOR_BYTES = 32
RECORD_BYTES = 64
FIELDS = (
    "shared_accesses",
    "shared_wavefronts",
    "shared_ideal",
    "global_requests",
    "global_sectors",
    "global_tags",
    "shared_fills",
)
BLOCK = "vm__block"
LOADED, STORED = 1, 2
_HOW, _SHIFT = 8 * 7, 8 * 7 + 4
_UNITS = (4, 8, 16)
_JOINS, _APART = "load", "apart"


class SiteProbe(SharedProbe):
    """`SiteProbe(last_line, {104: (16, 0), 107: (HIDDEN, 0)})`: PTX line → how to count; others as in PTX."""

    name = "sites"

    def __init__(self, last_line: int = 0, widths: Mapping[int, tuple[int, int]] = {}) -> None:
        super().__init__()
        self.key = f"{self.name}-{source_digest()}-{_own_digest()}"
        self.last_line, self.widths = last_line, widths

    def at_slot(self, slot: int) -> Self:
        other = type(self)(self.last_line, self.widths)
        other.slot = slot
        return other

    # -- memory --------------------------------------------------------------------------------------------------

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return RECORD_BYTES * (self.last_line + 1)

    def prepare(self, memory: npt.NDArray[np.uint8], shared_limit: int, warps: int) -> None:
        how = memory.view(np.int32).reshape(-1, 16)[:, 14:]
        for line, width_and_shift in self.widths.items():
            how[line] = width_and_shift

    def counters(self, memory: npt.NDArray[np.uint8]) -> Mapping[str, int]:
        records = memory[: RECORD_BYTES * (self.last_line + 1)].view(np.int64).reshape(-1, 8)[:, : len(FIELDS)]
        return {site_name(FIELDS[at], int(line)): int(records[line, at]) for line, at in np.argwhere(records)}

    def board_bytes(self, memory: GlobalMemory) -> int:
        return memory.used // SECTOR_BYTES + 64

    def conclude(
        self, source: ProgramSource, visits: Sequence[int], boards: Sequence[npt.NDArray[np.uint8]]
    ) -> Mapping[str, int]:
        seen = np.bitwise_or.reduce([*boards])
        kernel = source.kernel
        chains = [kernel.chains.get(block.id, 0) for block in kernel.cfg.blocks]
        totals = {f"{BLOCK}@{number}": runs for number, runs in enumerate(runs_of_blocks(chains, visits))}
        totals["vm__divergent_block_runs"] = sum(visits[len(chains) :])
        totals["vm__distinct_load_sectors"] = int(np.count_nonzero(seen & LOADED))
        totals["vm__distinct_store_sectors"] = int(np.count_nonzero(seen & STORED))
        return totals

    # -- events --------------------------------------------------------------------------------------------------

    def access(self, b: Builder, event: Access) -> None:
        super().access(b, event)
        if event.copied or event.space not in ("global", "generic"):
            return
        offsets, lanes = event.offsets, event.lanes
        if event.space == "generic":
            offsets = b.op("sub", offsets, const(vec("i64"), GLOBAL_BASE))
            # The other windows are below it: their offsets wrap.
            near = bits(b, b.icmp("ult", offsets, const(vec("i64"), 1 << 40)))
            lanes = b.op("and", lanes, near)
        sectors = b.cast("trunc", b.op("lshr", offsets, const(vec("i64"), 5)), vec("i32"))
        flag = (STORED if event.store or event.atomic else 0) | (0 if event.store else LOADED)
        board = get(b, get(b, b.param("warp"), WARP_WORKER), WORKER_BOARD)
        b.call(symbol(_GLOBAL), "void", [self._record(b), board, sectors, lanes, const("i8", flag)])

    def touch(self, b: Builder, touch: Touch) -> None:
        if touch.verb == "copy":
            with when(b, b.icmp("ne", touch.lanes, const("i32", 0))):
                _add(b, self._record(b), 6, const("i64", 1))
            return
        if touch.verb not in ("load", "store"):
            return
        way = _JOINS if touch.verb == "load" and not touch.rows else _APART
        natural = const("i32", max(touch.bytes, 4))
        b.call(symbol(_shared(way)), "void", [self._record(b), touch.offsets, touch.lanes, natural])

    def _record(self, b: Builder) -> Value:
        at = b.op("mul", b.cast("zext", b.param("site"), "i64"), const("i64", RECORD_BYTES))
        return b.offset(self.memory_of_warp(b), at)

    # -- functions -----------------------------------------------------------------------------------------------

    def functions(self) -> Sequence[Builder]:
        counting = [_count(way, unit) for way in (_JOINS, _APART) for unit in _UNITS]
        return [_global_access(), _shared_access(_JOINS), _shared_access(_APART), *counting]


def site_name(field: str, line: int) -> str:
    """Return the name of a counter of one PTX line."""
    return f"vm__{field}@{line}"


_GLOBAL = "probe.sites.global"


def _shared(way: str, unit: int = 0) -> str:
    return f"probe.sites.shared.{way}" + (f".{unit}" if unit else "")


def _add(b: Builder, record: Value, field: int, more: Value) -> None:
    place = b.offset(record, 8 * field)
    b.store(b.op("add", b.load("i64", place, align=8), more), place, align=8)


def _begin(b: Builder) -> Value:
    """Return at once where no lane takes part or the access is not to be counted; else how to count, as i32."""
    how = b.load("i32", b.offset(b.param("record"), _HOW), align=4)
    idle = b.icmp("eq", b.param("lanes"), const("i32", 0))
    with when(b, b.op("or", idle, b.icmp("eq", how, const("i32", HIDDEN)))):
        b.ret()
    return how


def _shared_access(way: str) -> Builder:
    """Chooses by the width at which the line is counted."""
    params = [("ptr", "record"), (vec("i32"), "offsets"), ("i32", "lanes"), ("i32", "natural")]
    b = function(_shared(way), "void", params)
    how = _begin(b)
    shift = b.load("i32", b.offset(b.param("record"), _SHIFT), align=4)
    offsets = b.op("add", b.param("offsets"), b.splat(shift))
    width = b.op("and", how, const("i32", ALIGNED - 1))
    with when(b, b.icmp("ne", b.op("and", how, const("i32", ALIGNED)), const("i32", 0))):
        first = b.extract(offsets, b.intrinsic("cttz", "i32", [b.param("lanes"), const("i1", 1)]))
        span = b.op("lshr", how, const("i32", SPAN.bit_length() - 1))
        within = b.op("and", first, b.op("sub", span, const("i32", 1)))
        words = b.op("and", b.op("lshr", how, const("i32", EARLY.bit_length() - 1)), const("i32", SPAN // EARLY - 1))
        with when(b, b.icmp("ult", within, b.op("mul", words, const("i32", 4)))):
            b.call(symbol(_shared(way, 4)), "void", [b.param("record"), offsets, b.param("lanes")])
        offset = b.op("and", first, b.op("sub", width, const("i32", 1)))
        with when(b, b.icmp("ne", offset, const("i32", 0))):
            b.ret()
    unit = b.select(b.icmp("eq", how, const("i32", 0)), b.param("natural"), width)
    labels = {size: b.label(f"bytes{size}") for size in _UNITS}
    b.switch(unit, labels[4], [(size, labels[size]) for size in _UNITS if size > 4])
    for size, label in labels.items():
        b.place(label)
        b.call(symbol(_shared(way, size)), "void", [b.param("record"), offsets, b.param("lanes")])
        b.ret()
    return b


def _count(way: str, unit: int) -> Builder:
    b = function(_shared(way, unit), "void", [("ptr", "record"), (vec("i32"), "offsets"), ("i32", "lanes")])
    waves, ideal = count_wavefronts(b, unit, joins=way == _JOINS and unit > 4)
    for field, more in enumerate((const("i64", 1), waves, ideal)):
        _add(b, b.param("record"), field, more)
    b.ret()
    return b


def _global_access() -> Builder:
    params = [("ptr", "record"), ("ptr", "board"), (vec("i32"), "sectors"), ("i32", "lanes"), ("i8", "flag")]
    b = function(_GLOBAL, "void", params)
    _begin(b)
    sectors = b.param("sectors")

    def mark(first: Value) -> None:
        place = b.offset(b.param("board"), b.cast("zext", first, "i64"))
        b.store(b.op("or", b.load("i8", place, align=1), b.param("flag")), place, align=1)

    _add(b, b.param("record"), 3, const("i64", 1))
    _add(b, b.param("record"), 4, _distinct(b, sectors, mark))
    _add(b, b.param("record"), 5, _distinct(b, b.op("lshr", sectors, const(vec("i32"), 2))))
    b.ret()
    return b


def _distinct(b: Builder, numbers: Value, each: Callable[[Value], None] | None = None) -> Value:
    """Return how many different numbers the lanes have, as i64; `each` is called with every one."""
    rest, count = Variable(b, b.param("lanes")), Variable(b, const("i64", 0))
    with loop(b, lambda: b.icmp("ne", rest.get(), const("i32", 0))):
        left = rest.get()
        first = b.extract(numbers, b.intrinsic("cttz", "i32", [left, const("i1", 1)]))
        if each is not None:
            each(first)
        same = bits(b, b.icmp("eq", numbers, b.splat(first)))
        rest.set(b.op("and", left, b.op("xor", same, const("i32", -1))))
        count.set(b.op("add", count.get(), const("i64", 1)))
    return count.get()


@cache
def _own_digest() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
