"""The parts that both versions of a kernel's code share: imports, symbols, special registers, and single instructions.

A kernel is compiled twice. `in_step` runs while all 32 lanes run together: registers are SSA values, uniform ones
scalars. `divergent` runs when lanes have their own program counters: registers are in the warp's frame.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Instruction, Mem, Module, Reg, Sym
from weft.ptx.passes.build_cfg import Cfg
from weft.ptx.passes.find_liveness import Liveness
from weft.ptx.passes.find_quiet_nans import is_quiet
from weft.ptx.passes.find_regions import MaskedRegion
from weft.ptx.passes.find_uniform import Uniformity

from ..clusters import reaches_peers
from ..context import (
    BAD_INDEX,
    TRAPPED,
    WARP_CLOCK,
    WARP_CLUSTER,
    WARP_COUNT,
    WARP_COUNTS,
    WARP_CTAID,
    WARP_ID,
    WARP_NCTAID,
    WARP_NSMID,
    WARP_NTID,
    WARP_PARAMS,
    WARP_SHARED_DYNAMIC,
    WARP_SMID,
    WARP_TABLE,
    WARP_TID,
    WARP_WORKER,
    WORKER_CALL_HOST,
    WORKER_CLUSTER,
    WORKER_RANK,
    WORKER_REGION_BYTES,
    WORKER_REGION_PLACES,
    Field,
)
from ..ir import LANES, Builder, Value, const, lanes_of, vec, vector
from ..layout import GRID_WORKSPACE, Layout, module_globals
from ..runtime.shape import ATTRIBUTES, get
from . import (
    bits,
    bulk,
    cluster,
    compare,
    control,
    convert,
    floating,
    half,
    integer,
    matrix,
    mbarrier,
    memory,
    sync,
    wgmma,
)
from .kernel_contract import KernelContract

EMIT: Mapping[str, Mapping[str, Callable[[Any, Instruction], None]]] = {
    "integer": integer.EMIT,
    "bits": bits.EMIT,
    "floating": floating.EMIT,
    "half": half.EMIT,
    "compare": compare.EMIT,
    "convert": convert.EMIT,
    "memory": memory.EMIT,
    "control": control.EMIT,
    "sync": sync.EMIT,
    "mbarrier": mbarrier.EMIT,
    "matrix": matrix.EMIT,
    "wgmma": wgmma.EMIT,
    "bulk": bulk.EMIT,
    "cluster": cluster.EMIT,
}
"""Chapter → opcode → the function that writes it. Mirrors `weft.ptx.isa`."""
FAR = ("ld.", "ldu.", "st.", "atom.", "mbarrier.")
"""Runtime functions that can access another CTA of the cluster."""


@dataclass(frozen=True)
class Kernel:
    """All information about a kernel that is known before code is written."""

    module: Module
    cfg: Cfg
    liveness: Liveness
    uniformity: Uniformity
    regions: Mapping[int, MaskedRegion]
    chains: Mapping[int, int]
    """First block of a run of blocks that follow each other unconditionally → instructions of the entire run."""
    hidden_ways: frozenset[tuple[int, int]]
    """Paths out of branches that are marked when they are taken, because block counts do not show them."""
    reads_clock: bool
    hidden_nans: frozenset[str]
    quiet_nans: frozenset[str]
    """f32 registers that never hold a signalling NaN; empty if the CPU has no instruction that needs this."""
    repeats: frozenset[int]
    """Lines of tests of mbarriers whose loop changes nothing."""
    maps_generic: bool
    """Whether generic addresses may be those of other CTAs."""
    layout: Layout
    mode: str
    arch: str
    globals_order: tuple[str, ...]
    """Module variables whose device addresses follow the parameters, in this order."""
    frame: dict[str, int] = field(default_factory=dict)
    """Register → byte offset of its slot in the warp's frame."""
    frame_bytes: int = 0


def frame_slots(cfg: Cfg, liveness: Liveness) -> tuple[dict[str, int], int]:
    """Return a slot for every register that is live across some block boundary; predicates are 4-byte masks."""
    alive = 0
    for registers in liveness.live_in:
        alive |= registers
    slots: dict[str, int] = {}
    at = 0
    for number, name in enumerate(liveness.names):
        if alive >> number & 1:
            width = WIDTH[cfg.function.registers[name]]
            slots[name] = at
            at += 64 if width == 1 else LANES * width // 8
    return slots, max(at, 64)


def chain_starts(cfg: Cfg, points: Iterable[int]) -> set[int]:
    """Return the blocks that can be entered other than by falling through from a block that always does so."""
    starts = {0, *points}
    for block in cfg.blocks:
        if block.end is not None:
            starts.update(block.successors)
    return starts


def find_chains(cfg: Cfg, points: Iterable[int]) -> dict[int, int]:
    """Return runs of blocks that are split only by collectives: counted once, at their first block."""
    starts = chain_starts(cfg, points)
    chains: dict[int, int] = {}
    first = 0
    for block in cfg.blocks:
        if block.id in starts:
            first = block.id
        chains[first] = chains.get(first, 0) + block.size
    return {number: size for number, size in chains.items() if size}


class KernelEmitter(KernelContract):
    """Emits the body of a kernel's blocks; the subclasses decide where registers are kept and how blocks connect."""

    def __init__(self, kernel: Kernel, symbol: str, imports: list[str]) -> None:
        self.kernel = kernel
        self.cfg = kernel.cfg
        self.registers = kernel.cfg.function.registers
        self.imports = imports
        self.mode, self.arch, self.param_bytes = kernel.mode, kernel.arch, kernel.layout.param_bytes
        self.b = Builder(symbol, "i32", [("ptr", "warp")], ATTRIBUTES)
        self.warp = self.b.param("warp")
        self.lanes = LANES
        self.ins: Instruction | None = None
        self.scratch: dict[tuple[str, int], Value] = {}

    # -- emitter contract -----------------------------------------------------------------------------------

    def register_type(self, name: str) -> str:
        return self.registers[name]

    def register_llvm(self, name: str) -> str:
        """Return the scalar LLVM type of a register's bits; predicates are i1."""
        declared = self.registers[name]
        return "i1" if declared == "pred" else f"i{WIDTH[declared]}"

    def imported(self, name: str) -> Value:
        if name not in self.imports:
            self.imports.append(name)
        table = get(self.b, self.warp, WARP_TABLE)
        return self.b.load("ptr", self.b.offset(table, 8 * self.imports.index(name)), align=8)

    def runtime(self, name: str, result: str, args: Sequence[Value]) -> Value:
        if name.startswith(FAR) and self.ins and reaches_peers(self.ins, generic=self.kernel.maps_generic):
            name = f"peer.{name}"
        return self.b.call_pointer(self.imported(name), result, [self.warp, *args])

    def hides_nan(self, ins: Instruction) -> bool:
        return all(reg.name in self.kernel.hidden_nans for reg in ins.written())

    def ranges(self, ins: Instruction) -> bool:
        quiet = self.kernel.quiet_nans
        sources = (ins.find(name) for name in "abc")
        return bool(quiet) and all(source is None or is_quiet(source, quiet) for source in sources)

    def repeats(self, ins: Instruction) -> bool:
        return ins.line in self.kernel.repeats

    def site(self) -> Value:
        """Return the current instruction as a number for reports: its PTX line."""
        assert self.ins is not None
        return const("i32", self.ins.line)

    def position(self, ins: Instruction) -> int:
        return next(at for at, item in enumerate(self.cfg.function.body) if item is ins)

    def buffer(self, role: str, size_bytes: int) -> Value:
        """Return stack memory for passing several registers to the runtime; one per role and size."""
        key = (role, size_bytes)
        if key not in self.scratch:
            self.scratch[key] = self.b.alloca(f"[{size_bytes} x i8]")
        return self.scratch[key]

    def symbol(self, sym: Sym) -> Value:
        placed = self.kernel.layout.symbols.get(sym.name)
        if placed is not None:
            return const("i64", placed.address + sym.offset)
        if sym.name not in self.kernel.globals_order:
            raise Unsupported(f"symbol {sym.name}", self.ins.line if self.ins else None)
        at = self.kernel.layout.param_bytes + 8 * self.kernel.globals_order.index(sym.name)
        address = self.b.load("i64", self.b.offset(get(self.b, self.warp, WARP_PARAMS), at), align=8)
        return self.b.op("add", address, const("i64", sym.offset)) if sym.offset else address

    def constants(self) -> list[tuple[Value, int]]:
        return [
            (self.symbol(Sym(variable.name)), variable.size_bytes)
            for variable in module_globals(self.kernel.module)
            if variable.space == "const"
        ]

    def special(self, name: str) -> Value:
        value = self._special(name)
        return self.lift(value)

    def _special(self, name: str) -> Value:
        b, warp = self.b, self.warp
        base, _, axis = name[1:].partition(".")
        at = "xyz".index(axis) if axis else 0
        scalars: dict[str, Field] = {"ctaid": WARP_CTAID, "nctaid": WARP_NCTAID, "ntid": WARP_NTID}
        if base in scalars:
            return get(b, warp, scalars[base], at)
        if base in ("clusterid", "nclusterid", "cluster_ctaid"):
            whole = get(b, warp, WARP_NCTAID if base == "nclusterid" else WARP_CTAID, at)
            return b.op("urem" if base == "cluster_ctaid" else "udiv", whole, get(b, warp, WARP_CLUSTER, at))
        if base == "tid":
            return b.load(vec("i32"), b.offset(warp, WARP_TID.at + 128 * at), align=64)
        lanes = vector("i32", range(LANES))
        match base:
            case "laneid":
                return lanes
            case "lanemask_eq":
                return vector("i32", (1 << lane for lane in range(LANES)))
            case "lanemask_lt":
                return vector("i32", ((1 << lane) - 1 for lane in range(LANES)))
            case "lanemask_le":
                return vector("i32", ((2 << lane) - 1 for lane in range(LANES)))
            case "lanemask_gt":
                return vector("i32", (0xFFFFFFFF & ~((2 << lane) - 1) for lane in range(LANES)))
            case "lanemask_ge":
                return vector("i32", (0xFFFFFFFF & ~((1 << lane) - 1) for lane in range(LANES)))
            case "warpid":
                return get(b, warp, WARP_ID)
            case "nwarpid":
                return get(b, warp, WARP_COUNT)
            case "cluster_nctaid":
                return get(b, warp, WARP_CLUSTER, at)
            case "cluster_ctarank":
                return get(b, get(b, warp, WARP_WORKER), WORKER_RANK)
            case "cluster_nctarank":
                return get(b, get(b, warp, WARP_WORKER), WORKER_CLUSTER)
            case "gridid":
                return const("i64", 0)
            case "smid":
                return get(b, warp, WARP_SMID)
            case "nsmid":
                return get(b, warp, WARP_NSMID)
            case "clock64" | "globaltimer":
                return get(b, warp, WARP_CLOCK)
            case "clock" | "globaltimer_lo":
                return b.cast("trunc", get(b, warp, WARP_CLOCK), "i32")
            case "clock_hi" | "globaltimer_hi":
                return b.cast("trunc", b.op("lshr", get(b, warp, WARP_CLOCK), const("i64", 32)), "i32")
            case "reserved_smem_offset_cap":
                return const("i32", len(self.kernel.layout.reserved))
            case "reserved_smem_offset_begin" | "reserved_smem_offset_0" | "reserved_smem_offset_1":
                return const("i32", self.kernel.layout.reserved.start)
            case "reserved_smem_offset_end":
                return const("i32", self.kernel.layout.reserved.stop)
            case "envreg1" | "envreg2":
                workspace = self.symbol(Sym(GRID_WORKSPACE.name))
                half = workspace if base == "envreg2" else b.op("lshr", workspace, const("i64", 32))
                return b.cast("trunc", half, "i32")
            case "dynamic_smem_size":
                return get(b, warp, WARP_SHARED_DYNAMIC)
            case "total_smem_size":
                static = const("i32", self.kernel.layout.static_shared_bytes)
                return b.op("add", get(b, warp, WARP_SHARED_DYNAMIC), static)
        raise Unsupported(f"special register {name}", self.ins.line if self.ins else None)

    # -- instructions ---------------------------------------------------------------------------------------

    @abstractmethod
    def width_of(self, ins: Instruction) -> int:
        """Return 1 if the instruction may be computed once for the warp, else 32."""

    def instruction(self, ins: Instruction) -> None:
        """Write one instruction of a block's body."""
        self.ins = ins
        self.lanes = self.width_of(ins)
        chapter = EMIT[ins.form.chapter]
        write = _mark if ins.pragma else chapter.get(ins.form.name)
        if write is None:
            raise Unsupported(ins.opcode, ins.line)
        write(self, ins)
        self.lanes = LANES

    def check_index(self, index: Value, count: int, lanes: Value) -> None:
        """End the launch if one of `lanes` (an i32 mask) would branch outside a table of `count` targets."""
        b = self.b
        wide = index if lanes_of(index.ty) > 1 else b.splat(index)
        outside = b.op("and", lanes, b.cast("bitcast", b.icmp("uge", wide, const(wide.ty, count)), "i32"))
        bad, good = b.label("beyond"), b.label("within")
        b.cbr(b.icmp("eq", outside, const("i32", 0)), good, bad, likely=True)
        b.place(bad)
        first = b.extract(wide, b.intrinsic("cttz", "i32", [outside, const("i1", 1)]))
        self.runtime("report", "void", [const("i32", BAD_INDEX), self.site(), outside, b.cast("zext", first, "i64")])
        b.ret(const("i32", TRAPPED))
        b.place(good)

    def count_block(self, number: int, size: int) -> None:
        """Count a visit; the virtual clock runs only if the kernel reads it."""
        b = self.b
        slot = b.offset(get(b, self.warp, WARP_COUNTS), 8 * number)
        b.store(b.op("add", b.load("i64", slot, align=8), const("i64", 1)), slot, align=8)
        if not self.kernel.reads_clock:
            return
        clock = b.offset(self.warp, WARP_CLOCK.at)
        b.store(b.op("add", b.load("i64", clock, align=8), const("i64", size)), clock, align=8)

    def mark_way(self, block: int, way: int, lanes: Value | None = None) -> None:
        """Record that a path out of a branch was taken, by some of `lanes` (an i32 mask; None: by all here)."""
        if (block, way) not in self.kernel.hidden_ways:
            return
        b = self.b
        slot = b.offset(get(b, self.warp, WARP_COUNTS), 8 * (2 * (len(self.cfg.blocks) + block) + way))
        if lanes is None:
            b.store(const("i64", 1), slot, align=8)
        else:
            b.store(b.op("or", b.load("i64", slot, align=8), b.cast("zext", lanes, "i64")), slot, align=8)

    def address(self, ins: Instruction, name: str, space: str) -> Value:
        """Return a memory operand: i64 for global and generic, i32 for shared and local; lifted to the lanes."""
        operand = ins.operand(name)
        if not isinstance(operand, Mem):
            raise Unsupported(f"operand {name} of {ins.opcode} is not an address", ins.line)
        narrow = space in ("shared", "local")
        scalar = "i32" if narrow else "i64"
        base = operand.base
        if isinstance(base, Reg):
            value = self.get(base.name)
            value = self._shared_address(value) if narrow else self.narrow(value, "i64")
        elif isinstance(base, Sym):
            value = self.b.cast("trunc", self.symbol(base), "i32") if narrow else self.symbol(base)
            value = self.lift(value)
        else:
            value = self.const(scalar, base.value)
        if operand.offset:
            value = self.b.op("add", value, self.const(scalar, operand.offset))
        return value

    def space_of(self, ins: Instruction) -> str:
        space = ins.mods.get("space", "global" if ins.has("global") else "generic").partition("::")[0]
        if space == "const":
            return "global"
        operand = ins.find("a")
        if space == "param" and isinstance(operand, Mem) and isinstance(operand.base, Sym):
            placed = self.kernel.layout.symbols.get(operand.base.name)
            return placed.space if placed is not None else "param"
        return space

    def _shared_address(self, value: Value) -> Value:
        """Return a 64-bit register as a 32-bit shared or local address; one that does not fit becomes invalid."""
        b = self.b
        if not value.ty.endswith("i64>") and value.ty != "i64":
            return self.narrow(value, "i32")
        too_big = b.icmp("ugt", value, self.const("i64", 0xFFFFFFFF))
        return b.select(too_big, self.const("i32", 0xFFFFFFF0), b.cast("trunc", value, self.ty("i32")))


def _mark(e: KernelContract, ins: Instruction) -> None:
    """Write an instruction with a `.pragma "weft.…"` in front of it, a mark of `weft.h`.

        .pragma "weft.region scores";  mad.lo.u32 d, bytes, 0, address;
    In plain PTX d is the address. Here the host gives the region its own place (`vm/regions.py`) and d is its address.
    """
    if ins.pragma.split()[0] not in ("weft.region", "weft.reuse") or ins.form.name != "mad":
        raise Unsupported(f'.pragma "{ins.pragma}" before {ins.opcode}', ins.line)
    b = e.b
    worker = get(b, e.warp, WARP_WORKER)
    for name, place in (("c", WORKER_REGION_PLACES), ("a", WORKER_REGION_BYTES)):
        value = e.src(ins, name)
        lanes = value if lanes_of(value.ty) == LANES else b.splat(value)
        b.store(lanes, b.offset(worker, place.at), align=64)
    pointer = get(b, worker, WORKER_CALL_HOST)
    b.call_pointer(pointer, "void", [worker, e.warp, const("i32", e.position(ins)), e.active()])
    places = b.load(vec("i32"), b.offset(worker, WORKER_REGION_PLACES.at), align=64)
    e.dst(ins, places if e.lanes == LANES else b.extract(places, 0))
