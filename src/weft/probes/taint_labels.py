"""The algebra of labels: the set of uninitialised reads that each byte depends on, and what their values reach."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.core.records import Dim3
from weft.ptx.module import Args, Instruction, Operand, Reg, Sym
from weft.shadow.marks import Algebra, Bits, Finish, Product, Shadow, Target, sources_of
from weft.shadow.matrices import deal
from weft.vm.device_functions import ASSERT, PRINT
from weft.vm.printf import format_device
from weft.vm.reference.access import device_bytes, device_string
from weft.vm.reference.machine import Grid, RunningWarp
from weft.vm.reference.spaces import SpaceStorage
from weft.vm.reference.warp import Lanes

from .taint_bits import ALL_BITS, MOST_SITES, Labels, bits_of, extended, keep_bits, moved, whole

NEVER_WRITTEN = ALL_BITS
"""The mark of a byte of memory that was never written: all its bits are uninitialised, by no read yet."""


class Enough(Exception):
    """Raised when every read in question has reached something."""


@dataclass(frozen=True)
class Sink:
    """Where a value that depends on uninitialised memory had an effect."""

    what: str
    instruction: Instruction


@dataclass(frozen=True)
class UnsetRead:
    """The first time that an instruction read a register that was never set."""

    register: str
    cta: Dim3
    warp: int
    lanes: int


class Taint(Algebra):
    """Labels of CTAs. `wanted` are the PTX lines of the reads in question; `unset` names registers to watch.

    Labels of shared and local memory are kept; of global memory only whether a byte was written, because a store there
    is already an output.
    """

    dtype = np.dtype(np.uint64)
    flag = int(NEVER_WRITTEN)

    def __init__(
        self, fresh_global: npt.NDArray[np.bool_], wanted: frozenset[int], unset: frozenset[str] = frozenset()
    ) -> None:
        self.fresh_global, self.wanted, self.unset = fresh_global, wanted, unset
        self.steps = 0
        self.unset_reads: dict[int, UnsetRead] = {}
        self.bits: dict[int, int] = {}
        self.seen: set[int] = set()
        """PTX lines of the instructions that did read uninitialised bytes."""
        self.sinks: dict[int, Sink] = {}
        """PTX line of a read → the first thing its value reached."""
        self._reserved = range(0)
        self._never_set: dict[tuple[Dim3, int], dict[str, Lanes]] = {}
        """By CTA and warp: the registers to watch, in the lanes in which they were never set."""

    # -- values --------------------------------------------------------------------------------------------------

    def one(self, marks: Labels) -> Labels:
        return whole(np.bitwise_or.reduce(marks, axis=-1))

    def both(self, a: Labels, b: Labels) -> Labels:
        return a | b

    def multiplied(self, s: Shadow, w: RunningWarp, product: Product) -> Finish | None:
        """Handle a matrix product: an element depends on its row of A, its column of B and its element of C."""
        a, b, c = product.marks
        deal(s, w, product, c | np.bitwise_or.reduce(a, axis=1)[:, None] | np.bitwise_or.reduce(b, axis=0)[None, :])
        return None

    def decided(self, marks: Labels, by: Labels) -> Labels:
        labels: Labels = marks | by[:, None]
        return labels

    def truth(self, marks: Labels) -> Labels:
        return marks

    def among(self, marks: Labels) -> Any:
        return np.bitwise_or.reduce(marks)

    def updated(self, found: Labels, given: Labels) -> Labels:
        return np.repeat(self.one(found | given)[:, None], given.shape[1], axis=1)

    def marked_bits(self, marks: Labels) -> Bits:
        return bits_of(marks)

    def through(self, marks: Labels, bits: Bits) -> Labels:
        return keep_bits(marks, bits)

    def shifted(self, marks: Labels, right: npt.NDArray[np.int64], *, signed: bool) -> Labels:
        return moved(marks, right, signed=signed)

    def extended(self, marks: Labels) -> Labels:
        return extended(marks)

    # -- memory --------------------------------------------------------------------------------------------------

    def begin(self, s: Shadow, grid: Grid) -> None:
        self._reserved = grid.layout.reserved

    def initial(self, storage: SpaceStorage) -> npt.NDArray[Any] | None:
        """Return what was never written: all of shared and local memory, some of global memory."""
        if storage.name == "global":
            return self.fresh_global
        if storage.name == "param":
            return None
        marks = np.full(len(storage.data), NEVER_WRITTEN)
        if storage.name == "shared":
            marks[self._reserved.start : self._reserved.stop] = 0  # the driver clears it
        return marks

    def fetched(self, ins: Instruction, marks: Labels) -> Labels:
        """Label what was never written with this read; what an exchange finds there counts as set."""
        fresh = marks == NEVER_WRITTEN
        if not fresh.any():
            return marks
        if ins.has("exch"):
            return np.where(fresh, np.uint64(0), marks)
        self.seen.add(ins.line)
        return np.where(fresh, self.label(ins), marks)

    def kept(self, ins: Instruction, storage: SpaceStorage, marks: Labels) -> npt.NDArray[Any]:
        """A store to global memory is a sink."""
        if storage.name != "global":
            return marks
        self.used(ins, marks, "an output")
        return np.zeros(marks.shape, bool)

    def label(self, ins: Instruction) -> np.uint64:
        """Return the label of a read; beyond MOST_SITES reads they share the last."""
        site = self.bits.setdefault(ins.line, min(len(self.bits), MOST_SITES - 1))
        return ALL_BITS | np.uint64(1) << np.uint64(site)

    # -- where values have an effect -----------------------------------------------------------------------------

    def used(self, ins: Instruction, marks: Labels, what: str) -> None:
        """Record that labels have reached something that has an effect."""
        if not marks.any():
            return
        reached = int(np.bitwise_or.reduce(marks, axis=None))
        for line, bit in self.bits.items():
            if reached >> bit & 1:
                self.sinks.setdefault(line, Sink(what, ins))
        if self.wanted <= self.sinks.keys():
            raise Enough

    def called(self, s: Shadow, w: RunningWarp, ins: Instruction) -> None:
        """Handle functions without a body: what printf prints is an output. Results count as initialised."""
        function, args, results = ins.operand("func"), ins.operand("args"), ins.operand("ret")
        assert isinstance(function, Sym) and isinstance(args, Args) and isinstance(results, Args)
        local = s.of_storage(w.local)
        assert local is not None
        for item in results.items:
            for place in _bytes_of(w, item):
                local[place] = 0
        if function.name not in (PRINT, ASSERT):
            for item in args.items:
                for place in _bytes_of(w, item):
                    self.used(ins, local[place], f"an argument of {function.name}")
        if function.name != PRINT:
            return
        starts = [_parameter(w, item) for item in args.items]
        for lane in w.lanes_on():
            shift = lane * w.local.lane_bytes
            raw = [w.local.data[shift + at : shift + at + 8].tobytes() for at in starts]
            text, values = (int.from_bytes(each, "little") for each in raw)
            for at in starts:
                self.used(ins, local[shift + at : shift + at + 8], "what is printed")
            read = partial(self._printed, s, w, ins, lane, values)
            format_device(device_string(w, lane, text), read, partial(device_string, w, lane))

    def _printed(self, s: Shadow, w: RunningWarp, ins: Instruction, lane: int, base: int, at: int, size: int) -> bytes:
        addresses = np.full(32, (base + at) & 0xFFFF_FFFF_FFFF_FFFF, np.uint64)
        target = Target("generic", addresses, np.arange(32) == lane, np.zeros(32, np.uint64))
        self.used(ins, s.fetch(w, ins, target, size)[lane], "what is printed")
        return device_bytes(w, lane, base + at, size)

    # -- registers that were never set ---------------------------------------------------------------------------

    def executes(self, s: Shadow, w: RunningWarp, ins: Instruction) -> None:
        self.steps += 1
        if self.unset:
            self._read(s, w, ins, sources_of(ins), w.mask)
            own = self._of(w)
            for register in ins.written():
                if register.name in own:
                    own[register.name] &= ~w.mask

    def meets_guard(self, s: Shadow, w: RunningWarp, ins: Instruction, lanes: Lanes) -> None:
        assert ins.guard is not None
        if self.unset:
            self._read(s, w, ins, (ins.guard.reg.name,), lanes)

    def _read(self, s: Shadow, w: RunningWarp, ins: Instruction, names: tuple[str, ...], lanes: Lanes) -> None:
        """Label the registers that `ins` reads, in lanes where they were never set, with this read."""
        own = self._of(w)
        for name in names:
            bad = own[name] & lanes if name in own else lanes[:0]
            if bad.any():
                mask = sum(1 << int(lane) for lane in np.flatnonzero(bad))
                self.unset_reads.setdefault(ins.line, UnsetRead(name, w.cta.index, w.number, mask))
                s.write(w, Reg(name), np.full((32, 8), self.label(ins), np.uint64), bad)

    def _of(self, w: RunningWarp) -> dict[str, Lanes]:
        key = (w.cta.index, w.number)
        if key not in self._never_set:
            self._never_set[key] = {name: np.ones(32, bool) for name in self.unset}
        return self._never_set[key]


def _bytes_of(w: RunningWarp, operand: Operand) -> Iterator[slice]:
    """Yield the bytes of a call's parameter or result, in each lane that calls."""
    assert isinstance(operand, Sym)
    at, size = _parameter(w, operand), w.grid.layout.symbols[operand.name].size_bytes
    for lane in w.lanes_on():
        start = at + lane * w.local.lane_bytes
        yield slice(start, start + size)


def _parameter(w: RunningWarp, operand: Operand) -> int:
    assert isinstance(operand, Sym)
    return w.grid.layout.symbols[operand.name].address + operand.offset
