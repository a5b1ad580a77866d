"""State of the reference interpreter: a grid, its CTAs, their warps, an observer. No instruction is executed here."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import floordiv, mod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from weft.core.errors import LaunchError, Unsupported
from weft.core.records import Dim3, Finding
from weft.ptx.module import Instruction, Module, Sym

from ..clusters import cluster_of, maps_generic
from ..device_functions import uses_heap
from ..device_heap import heap_of
from ..launch_spec import LaunchSpec, pool_registers
from ..layout import GRID_WORKSPACE, Layout
from ..memory import GlobalMemory
from .integer import CARRY
from .program import Code, Program
from .spaces import SpaceStorage, global_objects, global_region, local_region, param_region, shared_region
from .warp import Lanes, Warp

RUNNING, PARKED, WAITING, EXITED = range(4)
"""A lane runs, is parked at a warp collective, waits at a CTA barrier, or has exited."""


class Copy(NamedTuple):
    """An asynchronous copy in flight: destination and offset, source and offset, bytes read, bytes written.

    `rest` follows the bytes that are read; empty: zeros.
    """

    to: SpaceStorage
    at: int
    source: SpaceStorage
    start: int
    length: int
    size: int
    call: Instruction
    rest: bytes = b""


@dataclass(frozen=True)
class Reduction:
    """Elements of shared memory that are combined with elements of global memory: offsets of both, and the type."""

    op: str
    type: str
    elements: tuple[tuple[int, int], ...]
    """Offset in the global arena, offset in shared memory."""


@dataclass(frozen=True)
class BulkCopy:
    """A bulk or tensor copy that has been issued: the pieces that it moves, in any order."""

    warp: "RunningWarp"
    cta: "Cta"
    """The CTA with the shared memory; of a multicast, each of those that receive it."""
    lane: int
    call: Instruction
    pieces: tuple[Copy, ...]
    mbarrier: int | None
    """A load: the mbarrier that counts its bytes, an offset in shared memory."""
    bytes: int
    group: int = 0
    """A store: the number of its bulk group among those of the thread."""
    reduction: Reduction | None = None


@dataclass(frozen=True)
class Arrival:
    """An arrival at the mbarrier at `at` of shared memory, when the copies of a lane are complete."""

    warp: "RunningWarp"
    lane: int
    at: int
    copies: tuple[Copy, ...]
    call: Instruction


class Observer:
    """Ignores every event. `w.mask` has the lanes that execute `ins`; registers and memory are the warp's."""

    def guard(self, w: "RunningWarp", ins: Instruction, group: Lanes) -> None:
        """Called when the lanes of `group` reach an instruction with a guard, which may disable some or all of them."""

    def before(self, w: "RunningWarp", ins: Instruction) -> None:
        """Called before the lanes execute `ins`: its sources still hold what it will read."""

    def after(self, w: "RunningWarp", ins: Instruction) -> None:
        """Called after `ins`: its destinations hold the result (those of a barrier's reduction do not yet)."""

    def landing(self, w: "RunningWarp", copy: Copy) -> None:
        """Called before an asynchronous copy of the warp reads its source and writes its destination."""


class Stop(Exception):
    """Ends the launch: trap, deadlock, exhausted budget. The finding is already recorded."""


@dataclass
class Grid:
    """The state that the CTAs of one launch share."""

    module: Module
    launch: LaunchSpec
    layout: Layout
    memory: GlobalMemory
    globals_at: Mapping[str, int]
    arch: str
    program: Program
    observer: Observer | None = None
    steps: int = 0
    turn: int = 0
    """Warp instructions of a warp's turn."""
    printed: list[str] = field(default_factory=list)
    conditions: dict[int, int] = field(default_factory=dict)
    """Handle → value, as the kernel set the conditions of a graph's nodes."""
    findings: dict[tuple[str, int], Finding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needed = max((p.address + p.size_bytes for p in self.layout.symbols.values() if p.space == "param"), default=0)
        if len(self.launch.params) < needed:
            raise LaunchError(f"{self.launch.entry} takes {needed} bytes of parameters, got {len(self.launch.params)}")
        if GRID_WORKSPACE.name in self.globals_at:
            self.memory.write(self.globals_at[GRID_WORKSPACE.name], bytes(GRID_WORKSPACE.size_bytes))
        if any(ins is not None and uses_heap(ins) for ins in self.program.instructions):
            heap_of(self.memory).begin()
        entry = self.program.entry.function
        explicit = "explicitcluster" in entry.directives
        self.cluster = cluster_of(entry.cluster, self.launch.cluster, self.launch.grid, self.arch, explicit=explicit)
        self.maps_generic = any(maps_generic(code.function) for code in self.program.codes.values())
        self.global_region = global_region(self.memory)
        self.param_region = param_region(self.launch.params)

    def follow_memory(self) -> None:
        """Take notice of buffers that came or went."""
        self.global_region.set_objects(global_objects(self.memory))

    def record(self, finding: Finding) -> None:
        """Keep the first finding of a code and line; count the others."""
        key = (finding.code, finding.ptx_line)
        known = self.findings.get(key)
        self.findings[key] = finding if known is None else replace(known, count=known.count + 1)


@dataclass
class Barrier:
    """One of the sixteen barriers of a CTA, in its current phase."""

    expected: int = 0
    """Threads named by the instruction; 0 = every thread of the CTA that has not exited."""
    arrived: int = 0
    """A warp whose live lanes arrive together counts as 32, as on the hardware."""
    waiting: list[tuple["RunningWarp", Lanes, Instruction]] = field(default_factory=list)
    true: int = 0
    """Threads whose predicate was true (bar.red)."""
    voted: int = 0


@dataclass
class Cluster:
    """The CTAs that run together, by rank, and the phases of their barrier that are over."""

    ctas: "list[Cta]"
    phase: int = 0


class Cta:
    """One cooperative thread array: shared memory, barriers and warps."""

    def __init__(self, grid: Grid, index: Dim3) -> None:
        self.grid = grid
        self.index = index
        self.shared = shared_region(grid.layout, grid.launch.shared_bytes)
        self.barriers: dict[int, Barrier] = {}
        self.pending_bytes: dict[int, int] = {}
        """Address of an mbarrier → bytes that its phase waits for."""
        self.fruitless = 0
        """Rounds since an mbarrier changed or a warp did more than to test one."""
        self.registers = pool_registers(grid.launch, grid.program.entry.function.bounds_registers)
        """Registers of each thread when it starts; 0: `setmaxnreg` has no effect."""
        self.arrivals: list[Arrival] = []
        """Arrivals at mbarriers that depend on asynchronous copies."""
        self.steps: dict[int, list[tuple[tuple[int, ...], Instruction]]] = {}
        """Warpgroup → the products and changes of registers that its warps executed together."""
        self.cluster = Cluster([self])
        self.bulk: list[BulkCopy] = []
        """Bulk copies that are not carried out yet, the oldest first."""
        x, y, z = grid.launch.block
        self.warps = [RunningWarp(self, number) for number in range(-(-x * y * z // 32))]

    def live_threads(self) -> int:
        """Return how many threads have not exited."""
        return sum(int(np.count_nonzero(warp.state != EXITED)) for warp in self.warps)


@dataclass
class Frame:
    """The state that a lane needs to return from a call."""

    return_pc: int
    registers: dict[str, Lanes]
    """The callee's registers in this lane before the call (it may be recursive)."""
    base: int
    """The caller's frame in local memory."""
    call: Instruction


def _each(operation: Callable[[int, int], int], left: Dim3, right: Dim3) -> Dim3:
    x, y, z = (operation(a, b) for a, b in zip(left, right, strict=True))
    return x, y, z


class RunningWarp(Warp):
    """A warp with its program counters, its memory and the state of its waiting lanes."""

    def __init__(self, cta: Cta, number: int) -> None:
        grid = cta.grid
        program = grid.program
        super().__init__({**program.entry.function.registers, CARRY: "pred"})
        self.home = cta
        self.cta = cta
        """The CTA whose shared memory it accesses: another one of its cluster during such an access."""
        self.far = 0
        """Then the rank of that one plus one: it is above the addresses."""
        self.grid = grid
        self.number = number
        self.files: dict[str, dict[str, Lanes]] = {program.entry.function.name: self.file}
        self.code: Code = program.entry
        threads = int(np.prod(grid.launch.block))
        self.present: Lanes = np.arange(32) + 32 * number < threads
        self.state: npt.NDArray[np.int8] = np.where(self.present, RUNNING, EXITED).astype(np.int8)
        self.pc: npt.NDArray[np.int64] = np.zeros(32, np.int64)
        self.next_pc: npt.NDArray[np.int64] = np.zeros(32, np.int64)
        """The next program counter of each lane of the current group; a branch changes it."""
        self.member: npt.NDArray[np.uint32] = np.zeros(32, np.uint32)
        """Member mask of the collective a lane is parked at."""
        self.line: npt.NDArray[np.int64] = np.zeros(32, np.int64)
        """PTX line of the instruction a lane executed last."""
        self.steps = 0
        self.gives_way = False
        """Set by an instruction whose wait did not succeed: its turn is over."""
        self.waits_at = 0
        """The mbarrier that it tested then, an offset in shared memory."""
        self.last_run: npt.NDArray[np.int64] = np.zeros(32, np.int64)
        self.favoured, self.favoured_until = 0, 0
        """A lane that was passed over for long, and the step until which it runs first."""
        self.local = local_region(grid.layout, calls=program.has_calls)
        self.frame_base: npt.NDArray[np.int64] = np.zeros(32, np.int64)
        self.stack: list[list[Frame]] = [[] for _ in range(32)]
        self.uncommitted: list[list[Copy]] = [[] for _ in range(32)]
        self.groups: list[list[list[Copy]]] = [[] for _ in range(32)]
        self.registers = cta.registers
        self.missing_registers: tuple[int, int] | None = None
        """If it waits for registers: how many it needs, and how many are free."""
        self.missing_threads = 0
        """If it waits for its cluster: how many threads have not arrived."""
        self.behind: RunningWarp | None = None
        """If it waits for its warpgroup: a warp that has not issued the same products yet."""
        self.arrived, self.odd, self.to_wait = (np.zeros(32, bool) for _ in range(3))
        """Lanes that arrived at the cluster's barrier in its current phase, that did so last in an odd phase, and that
        did not wait since."""
        self.steps_taken: int | None = 0
        """How many of its warpgroup's steps; None: they differ, which was reported."""
        self.bulk_groups = [0] * 32
        """Bulk groups that each lane has committed."""

    @property
    def live(self) -> Lanes:
        """Return the lanes that have not exited."""
        live: Lanes = self.state != EXITED
        return live

    def enter(self, code: Code) -> None:
        """Make `code` the function whose registers the operands name."""
        if code is self.code:
            return
        name = code.function.name
        if name not in self.files:
            self.files[name] = Warp({**code.function.registers, CARRY: "pred"}).file
        self.code = code
        self.types = {**code.function.registers, CARRY: "pred"}
        self.file = self.files[name]

    def lanes_on(self) -> Iterator[int]:
        """Return the lanes of the current instruction, in order."""
        return (int(lane) for lane in np.flatnonzero(self.mask))

    def region(self, space: str) -> SpaceStorage:
        """Return the storage of a state space, as this warp sees it."""
        match space:
            case "global" | "const":
                return self.grid.global_region
            case "shared":
                return self.cta.shared
            case "local":
                return self.local
            case "param":
                return self.grid.param_region
        raise KeyError(space)

    # -- names -----------------------------------------------------------------------------------------------

    def space_of(self, sym: Sym) -> str:
        """Return the state space that really contains a variable."""
        if sym.name in self.code.frame:
            return "local"
        if sym.name in self.grid.globals_at:
            return "global"
        placed = self.grid.layout.symbols.get(sym.name)
        if placed is None:
            raise Unsupported(f"{sym.name} has no address")
        return placed.space

    def symbol(self, sym: Sym) -> Lanes:
        if sym.name in self.code.frame:
            addresses: Lanes = (self.frame_base + (self.code.frame[sym.name] + sym.offset)).astype(np.uint64)
            return addresses
        if sym.name in self.grid.globals_at:
            return np.full(32, self.grid.globals_at[sym.name] + sym.offset, np.uint64)
        self.space_of(sym)
        return np.full(32, self.grid.layout.symbols[sym.name].address + sym.offset, np.uint64)

    def special(self, name: str) -> Lanes:
        grid = self.grid
        launch = grid.launch
        lane = np.arange(32, dtype=np.uint64)
        base, _, axis = name[1:].partition(".")
        if base == "tid":
            x, y, _ = launch.block
            thread = 32 * self.number + lane
            by_axis: dict[str, Lanes] = {"x": thread % x, "y": thread // x % y, "z": thread // (x * y)}
            return by_axis[axis]
        if axis:
            triples = {"ntid": launch.block, "ctaid": self.cta.index, "nctaid": launch.grid}
            sizes = grid.cluster
            triples |= {"clusterid": _each(floordiv, self.cta.index, sizes), "cluster_nctaid": sizes}
            triples |= {
                "nclusterid": _each(floordiv, launch.grid, sizes),
                "cluster_ctaid": _each(mod, self.cta.index, sizes),
            }
            triple = triples[base]
            return np.full(32, triple["xyz".index(axis)], np.uint64)
        if base.startswith("lanemask_"):
            below = (np.uint64(1) << lane) - np.uint64(1)
            here = np.uint64(1) << lane
            every = np.uint64(0xFFFFFFFF)
            masks: dict[str, Lanes] = {
                "eq": here,
                "lt": below,
                "le": below | here,
                "ge": every & ~below,
                "gt": every & ~(below | here),
            }
            return masks[base.removeprefix("lanemask_")]
        workspace = grid.globals_at.get(GRID_WORKSPACE.name, 0)
        counts = {
            "envreg1": workspace >> 32,
            "envreg2": workspace & 0xFFFFFFFF,
            "warpid": self.number,
            "nwarpid": -(-int(np.prod(launch.block)) // 32),
            "smid": self._linear() % launch.sms,
            "nsmid": launch.sms,
            "cluster_ctarank": self.home.cluster.ctas.index(self.home),
            "cluster_nctarank": len(self.home.cluster.ctas),
            "gridid": 0,
            "clock": self.steps,
            "clock64": self.steps,
            "globaltimer": self.steps,
            "globaltimer_lo": self.steps,
            "clock_hi": self.steps >> 32,
            "globaltimer_hi": self.steps >> 32,
            "dynamic_smem_size": launch.shared_bytes,
            "total_smem_size": grid.layout.static_shared_bytes + launch.shared_bytes,
        }
        if base.startswith("reserved_smem_offset_"):
            reserved = grid.layout.reserved
            places = {"end": reserved.stop, "cap": len(reserved)}
            return np.full(32, places.get(base.rpartition("_")[2], reserved.start), np.uint64)
        return lane if base == "laneid" else np.full(32, counts[base], np.uint64)

    def _linear(self) -> int:
        """Return the number of its CTA in the grid."""
        (x, y, z), (nx, ny, _) = self.cta.index, self.grid.launch.grid
        return x + nx * (y + ny * z)

    # -- findings --------------------------------------------------------------------------------------------

    def report(self, code: str, message: str, ins: Instruction, lanes: Lanes, address: int = 0) -> None:
        """Record a finding of this warp at `ins`."""
        bits = sum(1 << int(lane) for lane in np.flatnonzero(lanes))
        self.grid.record(Finding(code, message, ins.line, ins.place, self.home.index, self.number, bits, address))


__all__ = [
    "EXITED",
    "PARKED",
    "RUNNING",
    "WAITING",
    "Arrival",
    "Barrier",
    "BulkCopy",
    "Cluster",
    "Copy",
    "Cta",
    "Frame",
    "Grid",
    "Reduction",
    "RunningWarp",
    "Stop",
]
