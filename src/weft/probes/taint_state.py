"""Labels of registers and memory: the reads of uninitialised memory that each byte depends on."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weft.core.records import Dim3
from weft.ptx.module import CARRY, WIDTH, Instruction, Mem, Not, Operand, Pair, Reg, Vec
from weft.vm.reference.access import address_of
from weft.vm.reference.machine import RunningWarp
from weft.vm.reference.spaces import in_window, to_offset
from weft.vm.reference.warp import Lanes

from .taint_bits import ALL_BITS, MOST_SITES, Labels, whole

_GENERIC = ("global", "shared", "local")


class Enough(Exception):
    """Raised when every read in question has reached something."""


@dataclass
class Shadow:
    """The shadow of one state space: labels of its bytes, and which bytes were never written."""

    labels: Labels | None
    """None for global memory: a store there is already an output."""
    fresh: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Sink:
    """Where a value that depends on uninitialised memory had an effect."""

    what: str
    instruction: Instruction


@dataclass(frozen=True)
class Places:
    """Lanes of an access that are in one state space, and where in its storage."""

    space: str
    lanes: Lanes
    at: npt.NDArray[np.int64]


@dataclass
class WarpTaint:
    """Labels of one warp: registers that have any, local memory, copies in flight."""

    unset: dict[str, Lanes]
    """Registers that count as uninitialised, in the lanes in which they were never set."""
    registers: dict[str, Labels] = field(default_factory=dict)
    """Shape (32, bytes of the register)."""
    local: Shadow | None = None
    uncommitted: list[list[tuple[int, Labels]]] = field(default_factory=lambda: [[] for _ in range(32)])
    groups: list[list[list[tuple[int, Labels]]]] = field(default_factory=lambda: [[] for _ in range(32)])


@dataclass(frozen=True)
class UnsetRead:
    """The first time that an instruction read a register that was never set."""

    register: str
    cta: Dim3
    warp: int
    lanes: int


class Taint:
    """Labels of CTAs. `wanted` are the PTX lines of the reads in question; `unset` names registers to watch."""

    def __init__(
        self, fresh_global: npt.NDArray[np.bool_], wanted: frozenset[int], unset: frozenset[str] = frozenset()
    ) -> None:
        self.fresh_global, self.wanted, self.unset = fresh_global, wanted, unset
        self.unset_reads: dict[int, UnsetRead] = {}
        self.bits: dict[int, int] = {}
        self.seen: set[int] = set()
        """PTX lines of the instructions that did read uninitialised bytes."""
        self.sinks: dict[int, Sink] = {}
        """PTX line of a read → the first thing its value reached."""
        self.warps: dict[tuple[Dim3, int], WarpTaint] = {}
        """By CTA and number."""
        self.shared: dict[Dim3, Shadow] = {}
        """By CTA."""
        self.flows: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    # -- labels of registers -------------------------------------------------------------------------------------

    def of(self, w: RunningWarp) -> WarpTaint:
        """Return the warp's labels."""
        key = (w.cta.index, w.number)
        if key not in self.warps:
            self.warps[key] = WarpTaint({name: np.ones(32, bool) for name in self.unset})
        return self.warps[key]

    def read_unset(self, w: RunningWarp, ins: Instruction, names: tuple[str, ...], lanes: Lanes) -> None:
        """Label the registers that `ins` reads, in lanes where they were never set, with this read."""
        own = self.of(w)
        for name in names:
            bad = own.unset[name] & lanes if name in own.unset else lanes[:0]
            if bad.any():
                mask = sum(1 << int(lane) for lane in np.flatnonzero(bad))
                self.unset_reads.setdefault(ins.line, UnsetRead(name, w.cta.index, w.number, mask))
                self.write(w, Reg(name), np.full((32, 8), self.label(ins), np.uint64), bad)

    def set_registers(self, w: RunningWarp, names: tuple[str, ...]) -> None:
        """Record that the active lanes have set these registers."""
        own = self.of(w)
        for name in names:
            if name in own.unset:
                own.unset[name] &= ~w.mask

    def flow(self, ins: Instruction) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the registers that an instruction reads (without its guard) and writes."""
        key = id(ins)
        if key not in self.flows:
            sources = {
                name
                for spec, operand in zip(ins.form.operands, ins.operands, strict=False)
                if not spec.written
                for name in register_names(operand)
            }
            if ins.form.name in ("addc", "subc", "madc"):
                sources.add(CARRY.name)
            self.flows[key] = tuple(sources), tuple(reg.name for reg in ins.written())
        return self.flows[key]

    def read(self, w: RunningWarp, operand: Operand, size: int) -> Labels:
        """Return the labels of an operand's lowest `size` bytes, shape (32, size)."""
        labels = np.zeros((32, size), np.uint64)
        name = operand.name if isinstance(operand, Reg) else operand.reg.name if isinstance(operand, Not) else ""
        found = self.of(w).registers.get(name)
        if found is not None:
            labels[:, : found.shape[1]] = found[:, :size]
        return labels

    def any_of(self, w: RunningWarp, operand: Operand) -> npt.NDArray[np.uint64]:
        """Return the labels of an operand, per lane; members of a vector and bases of addresses included."""
        total = np.zeros(32, np.uint64)
        for name in register_names(operand):
            found = self.of(w).registers.get(name)
            if found is not None:
                total |= np.bitwise_or.reduce(found, axis=1)
        return whole(total)

    def write(self, w: RunningWarp, operand: Operand, labels: Labels, lanes: Lanes | None = None) -> None:
        """Give a destination its labels in the active lanes; bytes beyond those given have none."""
        if isinstance(operand, Pair):
            operand = operand.first
        if not isinstance(operand, Reg):
            return
        lanes = w.mask if lanes is None else lanes
        registers = self.of(w).registers
        found = registers.get(operand.name)
        if found is None:
            if not labels[lanes].any():
                return
            size = max(WIDTH[w.types[operand.name]] // 8, 1)
            found = registers[operand.name] = np.zeros((32, size), np.uint64)
        size = min(found.shape[1], labels.shape[1])
        found[lanes] = 0
        found[lanes, :size] = labels[lanes, :size]
        if not found.any():
            del registers[operand.name]

    # -- memory --------------------------------------------------------------------------------------------------

    def shadow(self, w: RunningWarp, space: str) -> Shadow | None:
        """Return the shadow of a state space as a warp sees it; None for parameters."""
        if space in ("global", "const"):
            return Shadow(None, self.fresh_global)
        if space == "shared":
            if w.cta.index not in self.shared:
                self.shared[w.cta.index] = _all_fresh(len(w.cta.shared.data))
            return self.shared[w.cta.index]
        if space == "local":
            own = self.of(w)
            if own.local is None:
                own.local = _all_fresh(len(w.local.data))
            return own.local
        return None

    def places(
        self, w: RunningWarp, ins: Instruction, name: str, size: int, lanes: Lanes | None = None
    ) -> list[Places]:
        """Return where the lanes' accesses are; an address that depends on uninitialised memory is a sink."""
        lanes = w.mask if lanes is None else lanes
        operand = ins.operand(name)
        assert isinstance(operand, Mem)
        self.sink(self.any_of(w, operand)[lanes], "an address", ins)
        space, address = address_of(w, ins, name)
        return self.places_at(w, space, address, size, lanes)

    def places_at(
        self, w: RunningWarp, space: str, address: npt.NDArray[np.uint64], size: int, lanes: Lanes
    ) -> list[Places]:
        """The same for given addresses. Lanes outside every storage, which the interpreter reports, are left out."""
        found = []
        for name in _GENERIC if space == "generic" else (space,):
            shadow = self.shadow(w, name)
            if shadow is None:
                continue
            here = lanes & in_window(name, address) if space == "generic" else lanes
            at = to_offset(name, address, generic=space == "generic")
            lane_bytes = w.local.lane_bytes if name == "local" else 0
            limit = lane_bytes or len(shadow.fresh)
            here = here & (at >= 0) & (at <= limit - size)
            if here.any():
                found.append(Places(name, here, at + np.arange(32) * lane_bytes))
        return found

    def load(
        self, w: RunningWarp, ins: Instruction, places: list[Places], size: int, *, fresh_counts: bool = True
    ) -> Labels:
        """Return the labels of the bytes at `places`, shape (32, size); `ins` labels bytes that were never written."""
        labels = np.zeros((32, size), np.uint64)
        for place in places:
            shadow = self.shadow(w, place.space)
            assert shadow is not None
            index = place.at[place.lanes][:, None] + np.arange(size)
            found = np.zeros(index.shape, np.uint64) if shadow.labels is None else shadow.labels[index]
            fresh = shadow.fresh[index]
            if fresh_counts and fresh.any():
                self.seen.add(ins.line)
                found = np.where(fresh, found | self.label(ins), found)
            labels[place.lanes] = found
        return labels

    def store(self, w: RunningWarp, ins: Instruction, places: list[Places], labels: Labels) -> None:
        """Give the bytes at `places` these labels and mark them as written; a store to global memory is a sink."""
        for place in places:
            shadow = self.shadow(w, place.space)
            assert shadow is not None
            index = place.at[place.lanes][:, None] + np.arange(labels.shape[1])
            shadow.fresh[index] = False
            if shadow.labels is None:
                self.sink(labels[place.lanes], "an output", ins)
            else:
                shadow.labels[index] = labels[place.lanes]

    def label(self, ins: Instruction) -> np.uint64:
        """Return the label of a read; beyond MOST_SITES reads they share the last."""
        site = self.bits.setdefault(ins.line, min(len(self.bits), MOST_SITES - 1))
        return ALL_BITS | np.uint64(1) << np.uint64(site)

    # -- where values have an effect -----------------------------------------------------------------------------------

    def sink(self, labels: npt.NDArray[np.uint64], what: str, ins: Instruction) -> None:
        """Record that labels have reached something that has an effect."""
        if not labels.any():
            return
        reached = int(np.bitwise_or.reduce(labels, axis=None))
        for line, bit in self.bits.items():
            if reached >> bit & 1:
                self.sinks.setdefault(line, Sink(what, ins))
        if self.wanted <= self.sinks.keys():
            raise Enough


def register_names(operand: Operand) -> tuple[str, ...]:
    """Return the registers of an operand, bases of addresses and members of vectors included."""
    match operand:
        case Reg(name=name):
            return (name,)
        case Not(reg=reg):
            return (reg.name,)
        case Mem(base=Reg(name=name)):
            return (name,)
        case Vec(items=items):
            return tuple(name for item in items for name in register_names(item))
        case Pair(first=first, second=second):
            return register_names(first) + register_names(second)
    return ()


def _all_fresh(size: int) -> Shadow:
    return Shadow(np.zeros(size, np.uint64), np.ones(size, bool))
