"""The code that runs while all 32 lanes run together: registers are SSA values, uniform ones scalars.

It leaves for the `divergent` code when lanes disagree at a branch, and it can be entered again at every block in
`resume_points`: barrier continuations, loop heads, joins. A varying register that is live at one of them is kept in the
warp's frame, which both codes share: a chain of blocks loads what it reads, and stores what it has set. A CPU has
registers for 16 such vectors, so LLVM would write most of them to the stack anyway; and every barrier would copy
hundreds of registers that nothing uses before the next one. Uniform registers are stored when the code is left.
"""

from collections.abc import Iterable, Mapping

from weft.core.errors import Unsupported
from weft.ptx.module import Guard, Imm, Instruction, Reg
from weft.ptx.passes.build_cfg import Block, Cfg
from weft.ptx.passes.find_hidden_ways import NOT_TAKEN, TAKEN, is_branch
from weft.ptx.passes.find_regions import MaskedRegion
from weft.ptx.passes.find_uniform import Uniformity
from weft.ptx.passes.group_mma import group_mma

from ..context import (
    BARRIER_COUNT,
    BLOCKED,
    DIVERGED,
    EXITED,
    TRAP,
    TRAPPED,
    WARP_COUNT,
    WARP_DIVERGENT,
    WARP_FRAME,
    WARP_PC,
    WARP_RESUME,
    WARP_SLICE,
    YIELDED,
)
from ..ir import LANES, Value, const, lanes_of, module_text, vec
from ..runtime.shape import get, put
from .kernel import Kernel, KernelEmitter, chain_starts
from .matrix import mma_together
from .sync import arrive
from .tensorcore import MOST_SETS


def resume_points(cfg: Cfg, uniformity: Uniformity, regions: Mapping[int, MaskedRegion]) -> list[int]:
    """Return the blocks at which a warp may enter (again) the code for warps in step."""
    masked = {number for region in regions.values() for number in region.blocks}
    diverging = uniformity.join_of.keys() - masked - regions.keys()
    points = {0, *(uniformity.join_of[branch] for branch in diverging)}
    for block in cfg.blocks:
        points |= {target for target in block.successors if target <= block.id}
        if block.end is not None and block.end.facts.is_barrier and block.next is not None:
            points.add(block.next)
    return sorted(points - masked)


def kept_in_frame(kernel: Kernel, points: Iterable[int]) -> frozenset[str]:
    """Return the varying registers that are live at a block where a warp may enter."""
    return frozenset(
        name for point in points for name in kernel.liveness.at(point) if name in kernel.uniformity.varying
    )


class InStep(KernelEmitter):
    """Emits `i32 @in_step(ptr warp)`."""

    def __init__(self, kernel: Kernel, symbol: str, imports: list[str]) -> None:
        super().__init__(kernel, symbol, imports)
        self.varying = kernel.uniformity.varying
        self.points = resume_points(self.cfg, kernel.uniformity, kernel.regions)
        self.starts = chain_starts(self.cfg, self.points)
        self.in_frame = kept_in_frame(kernel, self.points)
        self.frame = get(self.b, self.warp, WARP_FRAME)
        self.slots: dict[str, Value] = {}
        self.known: dict[str, Value] = {}
        self.lifted: dict[str, Value] = {}
        self.dirty: dict[str, None] = {}
        self.lanes_on: Value | None = None
        """In a masked region: the lanes that are in the current block."""
        self.needed: set[str] = set()
        """In a masked region: registers that are read after the current block."""
        masked = [number for region in kernel.regions.values() for number in (*region.blocks, region.join)]
        self.groups = group_mma(self.cfg, [*kernel.chains, *masked], most=MOST_SETS)
        self.waiting = {number for *early, _ in self.groups.values() for number in early}
        """Blocks whose `mma` is executed in a later block, together with others."""

    # -- registers ------------------------------------------------------------------------------------------

    def storage_type(self, name: str) -> str:
        """Return how a register is kept: iN or <32 x iN>; varying predicates as an i32 mask."""
        scalar = self.register_llvm(name)
        if name not in self.varying:
            return scalar
        return "i32" if scalar == "i1" else vec(scalar)

    def slot(self, name: str) -> tuple[Value, int]:
        """Return where a register is between chains of blocks, and the alignment."""
        if name in self.in_frame:
            return self.b.offset(self.frame, self.kernel.frame[name]), 4
        if name not in self.slots:
            self.slots[name] = self.b.alloca(self.storage_type(name))
        return self.slots[name], 64

    def load_slot(self, name: str) -> Value:
        pointer, align = self.slot(name)
        return self.b.load(self.storage_type(name), pointer, align=align)

    def store_slot(self, name: str, value: Value) -> None:
        pointer, align = self.slot(name)
        self.b.store(value, pointer, align=align)

    def stored(self, name: str) -> Value:
        """Return the register as it is kept."""
        if name not in self.known:
            self.known[name] = self.load_slot(name)
        return self.known[name]

    def get(self, name: str) -> Value:
        value = self.stored(name)
        predicate = self.registers[name] == "pred"
        if name in self.varying:
            if self.lanes == 1:  # the instruction gives the same value for every lane
                return self.b.extract(self.mask_vector(value) if predicate else value, 0)
            if not predicate:
                return value
            if name not in self.lifted:
                self.lifted[name] = self.mask_vector(value)
            return self.lifted[name]
        if self.lanes == 1:
            return value
        if name not in self.lifted:
            self.lifted[name] = self.b.splat(value)
        return self.lifted[name]

    def put(self, name: str, value: Value) -> None:
        guard = self.ins.guard if self.ins else None
        varying = name in self.varying
        if varying and lanes_of(value.ty) == 1:
            value = self.b.splat(value)
        if guard is not None or (self.lanes_on is not None and name in self.needed):
            wide = self.lanes
            self.lanes = LANES if varying else 1
            old = self.get(name)
            value = self.b.select(self.write_lanes(guard, lanes_of(value.ty)), value, old)
            self.lanes = wide
        self.lifted.pop(name, None)
        if varying and self.registers[name] == "pred":
            self.lifted[name] = value
            value = self.mask_bits(value)
        self.known[name] = value
        self.dirty[name] = None

    def write_lanes(self, guard: Guard | None, lanes: int) -> Value:
        """Return the lanes in which a write takes effect, as i1 or <32 x i1>."""
        if self.lanes_on is not None:
            return self.mask_vector(self.active())
        assert guard is not None
        return self.guard_value(guard, lanes)

    def guard_value(self, guard: Guard, lanes: int) -> Value:
        """Return the guard as i1 or <32 x i1>."""
        wide = self.lanes
        self.lanes = 1 if guard.reg.name not in self.varying else LANES
        value = self.get(guard.reg.name)
        if guard.negated:
            value = self.b.op("xor", value, const(value.ty, 1))
        self.lanes = wide
        return self.b.splat(value) if lanes > 1 and value.ty == "i1" else value

    def guard_bits(self, guard: Guard) -> Value:
        """Return the guard as an i32 lane mask."""
        if guard.reg.name in self.varying:
            value = self.stored(guard.reg.name)
        else:
            value = self.b.cast("sext", self.stored(guard.reg.name), "i32")
        return self.b.op("xor", value, const("i32", -1)) if guard.negated else value

    def active(self) -> Value:
        guard = self.ins.guard if self.ins else None
        if guard is None:
            return self.lanes_on or const("i32", -1)
        lanes = self.guard_bits(guard)
        return lanes if self.lanes_on is None else self.b.op("and", lanes, self.lanes_on)

    def width_of(self, ins: Instruction) -> int:
        if ins.facts.for_each_lane:
            return LANES
        return 1 if self.kernel.uniformity.is_uniform(ins) else LANES

    # -- the function ---------------------------------------------------------------------------------------

    def emit_module(self) -> str:
        """Return the entire function as LLVM IR text."""
        b = self.b
        resume = get(b, self.warp, WARP_RESUME)
        b.switch(resume, "resume.0", [(point, f"resume.{point}") for point in self.points if point])
        for point in self.points:
            self.begin()
            b.place(f"resume.{point}")
            self.reload(point)
            b.br(f"block.{point}")
        masked = {number for region in self.kernel.regions.values() for number in region.blocks}
        for block in self.cfg.blocks:
            if block.id in masked:
                continue
            if block.id in self.starts or b.closed:
                self.begin()
                b.place(f"block.{block.id}")
            if block.id in self.kernel.chains:
                self.count_block(block.id, self.kernel.chains[block.id])
            self.body(block)
            self.terminate(block)
        return module_text([b])

    def body(self, block: Block) -> None:
        """Write a block's instructions; an `mma` that is grouped with later ones is delayed to the last of them."""
        rest = block.body
        if block.id in self.waiting:
            rest = rest[1:]
        elif block.id in self.groups:
            self.ins, rest = rest[0], rest[1:]
            mma_together(self, [self.cfg.blocks[member].body[0] for member in self.groups[block.id]])
        for ins in rest:
            self.instruction(ins)

    def begin(self) -> None:
        """Forget the known registers, because a new chain of blocks starts."""
        self.known, self.lifted, self.dirty, self.ins = {}, {}, {}, None

    def flush(self, block: Block) -> None:
        """Store registers that later blocks read."""
        alive: set[str] = set()
        for successor in block.successors:
            alive.update(self.kernel.liveness.at(successor))
        for name in self.dirty:
            if name in alive:
                self.store_slot(name, self.known[name])
        self.dirty = {}

    def reload(self, point: int) -> None:
        """Load the registers live at `point` from the frame; one that is read before it is set starts as zero."""
        if point == 0:
            for name in self.kernel.liveness.at(0):
                self.store_slot(name, const(self.storage_type(name), 0))
            return
        b = self.b
        for name in self.kernel.liveness.at(point):
            if name in self.in_frame:
                continue
            place = b.offset(self.frame, self.kernel.frame[name])
            ty = self.storage_type(name)
            if ty == "i1":
                bits = b.load("i32", place, align=4)
                self.store_slot(name, b.icmp("ne", bits, const("i32", 0)))
            else:
                self.store_slot(name, b.load(ty, place, align=4))

    def spill(self, names: list[str], *, for_lanes: bool) -> None:
        """Store registers to the frame; `for_lanes` in the divergent code's form: 32 lanes each.

        Predicates are masks. Only the first lane of a register that is the same in all lanes is read here again.
        """
        b = self.b
        for name in names:
            if name in self.in_frame:
                continue
            value = self.load_slot(name)
            if value.ty == "i1":
                value = b.cast("sext", value, "i32")
            elif for_lanes and name not in self.varying:
                value = b.splat(value)
            b.store(value, b.offset(self.frame, self.kernel.frame[name]), align=4)

    def leave(self, status: int, point: int) -> None:
        """Store the registers that `point` needs and return to the scheduler."""
        self.spill(self.kernel.liveness.at(point), for_lanes=False)
        put(self.b, self.warp, WARP_RESUME, const("i32", point))
        self.b.ret(const("i32", status))

    # -- ends of blocks -------------------------------------------------------------------------------------

    def terminate(self, block: Block) -> None:
        end, b = block.end, self.b
        self.ins = end
        if end is None:
            if block.next is not None and block.next not in self.starts:
                return
            self.flush(block)
            if block.next is None:
                b.ret(const("i32", EXITED))
            else:
                self.jump(block, block.next)
            return
        if end.facts.is_barrier:
            self.barrier(block, end)
        elif end.facts.control == "jump":
            self.branch(block, end, f"edge.{block.id}.taken", block.targets[0])
        elif end.facts.control in ("return", "exit"):
            self.branch(block, end, f"exit.{block.id}", len(self.cfg.blocks))
        elif end.facts.control == "table":
            self.indexed(block, end)
        elif end.facts.control == "trap":
            self.flush(block)
            self.trap(block, end)
        else:
            raise Unsupported(end.opcode, end.line)

    def jump(self, block: Block, target: int) -> None:
        """Write an unconditional edge; at a backward edge the warp may yield to others."""
        b = self.b
        if target > block.id:
            b.br(f"block.{target}")
            return
        left = b.op("sub", get(b, self.warp, WARP_SLICE), const("i64", 1))
        put(b, self.warp, WARP_SLICE, left)
        give_way = b.label("yield")
        b.cbr(b.icmp("slt", left, const("i64", 0)), give_way, f"block.{target}", likely=False)
        b.place(give_way)
        self.leave(YIELDED, target)

    def go(self, block: Block, target: int) -> None:
        """Write an edge to a block, or out of the kernel."""
        if target == len(self.cfg.blocks):
            self.b.ret(const("i32", EXITED))
        else:
            self.jump(block, target)

    def branch(self, block: Block, end: Instruction, taken: str, target: int) -> None:
        """Write `@p bra` and `@p exit`: together if all lanes agree, else leave for the divergent code."""
        b, guard = self.b, end.guard
        if guard is None:
            self.flush(block)
            self.go(block, target)
            return
        assert block.next is not None
        if guard.reg.name not in self.varying:
            condition = self.guard_value(guard, 1)
            self.flush(block)
            other = b.label("edge")
            b.cbr(condition, taken, other)
            self.place_ways(block, taken, target, other)
            return
        lanes = self.guard_bits(guard)
        self.flush(block)
        if block.id in self.kernel.regions:
            self.run_masked(block, target, lanes)
            return
        mixed, other, some = b.label("mixed"), b.label("edge"), b.label("some")
        b.cbr(b.icmp("eq", lanes, const("i32", 0)), other, some)
        b.place(some)
        b.cbr(b.icmp("eq", lanes, const("i32", -1)), taken, mixed)
        self.place_ways(block, taken, target, other)
        b.place(mixed)
        self.mark_way(block.id, TAKEN)
        self.mark_way(block.id, NOT_TAKEN)
        pcs = b.select(self.mask_vector(lanes), const(vec("i32"), target), const(vec("i32"), block.next))
        self.diverge(pcs, {*block.targets, block.next})

    def place_ways(self, block: Block, taken: str, target: int, other: str) -> None:
        """Write the two paths out of a branch that all lanes take together."""
        assert block.next is not None
        self.b.place(taken)
        self.mark_way(block.id, TAKEN)
        self.go(block, target)
        self.b.place(other)
        self.mark_way(block.id, NOT_TAKEN)
        self.jump(block, block.next)

    def run_masked(self, block: Block, target: int, lanes: Value) -> None:
        """Write the region after a varying branch, block after block, each for the lanes that reach it."""
        b, region = self.b, self.kernel.regions[block.id]
        masks = {number: b.alloca("i32") for number in region.blocks}
        for slot in masks.values():
            b.store(const("i32", 0), slot, align=4)
        self.forget_unset(block)

        def arrive(source: Block, way: int, number: int, coming: Value) -> None:
            if is_branch(source):
                self.mark_way(source.id, way, coming)
            if number in masks:
                slot = masks[number]
                b.store(b.op("or", b.load("i32", slot, align=4), coming), slot, align=4)

        assert block.next is not None
        arrive(block, TAKEN, target, lanes)
        arrive(block, NOT_TAKEN, block.next, b.op("xor", lanes, const("i32", -1)))
        for number in region.blocks:
            here = self.cfg.blocks[number]
            self.begin()
            skip, enter = b.label("skip"), b.label("masked")
            on = b.load("i32", masks[number], align=4)
            b.cbr(b.icmp("eq", on, const("i32", 0)), skip, enter)
            b.place(enter)
            self.lanes_on = on
            self.needed = {name for way in here.successors for name in self.kernel.liveness.at(way)}
            if number in self.kernel.chains:
                self.count_block(number, self.kernel.chains[number])
            for ins in here.body:
                self.instruction(ins)
            self.ins = here.end
            taken = self.active() if here.end is not None else const("i32", 0)
            self.flush(here)
            if here.end is not None:
                arrive(here, TAKEN, here.targets[0], taken)
            if here.next is not None:
                arrive(here, NOT_TAKEN, here.next, b.op("and", on, b.op("xor", taken, const("i32", -1))))
            self.lanes_on, self.ins = None, None
            b.place(skip)
        self.jump(block, region.join)

    def forget_unset(self, block: Block) -> None:
        """Clear the registers that are first set in the region: without this their old values would seem needed."""
        alive = {name for way in block.successors for name in self.kernel.liveness.at(way)}
        region = self.kernel.regions[block.id]
        written = {
            reg.name for number in region.blocks for ins in self.cfg.blocks[number].body for reg in ins.written()
        }
        for name in sorted(written - alive):
            if name in self.kernel.frame:
                self.store_slot(name, const(self.storage_type(name), 0))

    def diverge(self, pcs: Value, ways: set[int]) -> None:
        """Store registers and program counters, and continue in the divergent code."""
        alive = set()
        for way in ways:
            alive |= set(self.kernel.liveness.at(way))
        self.spill([name for name in self.kernel.liveness.names if name in alive], for_lanes=True)
        self.b.store(pcs, self.b.offset(self.warp, WARP_PC.at), align=64)
        put(self.b, self.warp, WARP_DIVERGENT, const("i32", 1))
        self.b.ret(const("i32", DIVERGED))

    def indexed(self, block: Block, end: Instruction) -> None:
        """Write `brx.idx`: a switch if the index is the same in all lanes, else the divergent code."""
        b = self.b
        count = len(block.targets)
        operand = end.operand("index")
        if end.guard is not None:
            raise Unsupported("a guarded brx.idx", end.line)
        uniform = not (isinstance(operand, Reg) and operand.name in self.varying)
        self.lanes = 1 if uniform else LANES
        index = self.read(operand, "u32", end.line)
        self.lanes = LANES
        self.flush(block)
        self.check_index(index, count, const("i32", -1))
        scalar = index if uniform else b.extract(index, 0)
        if not uniform:
            same = b.icmp("eq", b.cast("bitcast", b.icmp("eq", index, b.splat(scalar)), "i32"), const("i32", -1))
            together, mixed = b.label("together"), b.label("mixed")
            b.cbr(same, together, mixed)
            b.place(mixed)
            pcs = const(vec("i32"), block.targets[-1])
            for number in range(count - 1):
                here = b.icmp("eq", index, const(vec("i32"), number))
                pcs = b.select(here, const(vec("i32"), block.targets[number]), pcs)
            self.diverge(pcs, set(block.targets))
            b.place(together)
        labels = [b.label("case") for _ in block.targets]
        b.switch(scalar, labels[-1], list(enumerate(labels[:-1])))
        for label, target in zip(labels, block.targets, strict=True):
            b.place(label)
            self.jump(block, target)

    def barrier(self, block: Block, end: Instruction) -> None:
        """Arrive, store the live registers, and yield until all threads have arrived."""
        b = self.b
        assert block.next is not None
        alone, crowd = b.label("alone"), b.label("crowd")
        number = end.operand("a")
        simple = len(end.operands) == 1 and isinstance(number, Imm) and number.value < BARRIER_COUNT
        if simple:
            only = b.icmp("eq", get(b, self.warp, WARP_COUNT), const("i32", 1))
            self.flush(block)
            b.cbr(only, alone, crowd)
            b.place(crowd)
        arrive(self, end, const("i32", -1))
        self.flush(block)
        self.leave(BLOCKED, block.next)
        if simple:
            b.place(alone)
            self.runtime("barrier.alone", "void", [self.site()])
            b.br(f"block.{block.next}")

    def trap(self, block: Block, end: Instruction) -> None:
        b = self.b
        lanes = self.active()
        if end.guard is not None:
            assert block.next is not None
            hit = b.label("trap")
            go_on = b.label("edge")
            b.cbr(b.icmp("eq", lanes, const("i32", 0)), go_on, hit)
            b.place(go_on)
            self.jump(block, block.next)
            b.place(hit)
        self.runtime("report", "void", [const("i32", TRAP), self.site(), lanes, const("i64", 0)])
        b.ret(const("i32", TRAPPED))
