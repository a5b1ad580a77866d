"""The code that runs when lanes have their own program counters: registers are in the warp's frame.

Lanes at the lowest block run first. A block's code runs for the lanes that are at it (the mask); a collective waits in
front of its block until all lanes that it names have arrived. When all 32 lanes meet at a block where the in-step code
can be entered, and the registers that it holds once per warp agree, the warp returns to that code.
"""

from weft.core.errors import Unsupported
from weft.ptx.module import Guard, Imm, Instruction, Operand
from weft.ptx.passes.build_cfg import Block
from weft.ptx.passes.find_hidden_ways import NOT_TAKEN, TAKEN

from ..context import (
    BLOCKED,
    CONVERGED,
    EXITED,
    EXITED_LANES,
    STUCK,
    TRAP,
    TRAPPED,
    WARP_BLOCKED,
    WARP_DIVERGENT,
    WARP_FRAME,
    WARP_ID,
    WARP_LIVE,
    WARP_PC,
    WARP_RELEASED,
    WARP_RESUME,
    WARP_SLICE,
    WARP_SPENT,
    WARP_WORKER,
    WORKER_BLOCK_THREADS,
    WORKER_THREADS,
    YIELDED,
)
from ..ir import LANES, Value, const, lanes_of, module_text, vec
from ..runtime.shape import bits, get, put, unbits
from .in_step import resume_points
from .kernel import Kernel, KernelEmitter
from .sync import arrive


class Divergent(KernelEmitter):
    """Emits `i32 @divergent(ptr warp)`."""

    def __init__(self, kernel: Kernel, symbol: str, imports: list[str]) -> None:
        super().__init__(kernel, symbol, imports)
        self.known: dict[str, Value] = {}
        self.dirty: dict[str, None] = {}
        self.mask = const("i32", 0)
        self.mask_lanes = const(vec("i1"), 0)
        self.frame = Value("ptr", "%frame")
        syncs = [block for block in self.cfg.blocks if block.collective and block.body[0].facts.is_warp_barrier]
        self.splits = len(syncs) > 1
        """Whether lanes can meet at different bar.warp.sync; every other collective is one instruction for all."""

    # -- registers ------------------------------------------------------------------------------------------

    def get(self, name: str) -> Value:
        if name not in self.known:
            predicate = self.registers[name] == "pred"
            ty = "i32" if predicate else vec(self.register_llvm(name))
            if name in self.kernel.frame:
                value = self.b.load(ty, self.b.offset(self.frame, self.kernel.frame[name]), align=4)
            else:
                value = const(ty, 0)  # never live across blocks, so the old value is never read
            self.known[name] = unbits(self.b, value) if predicate else value
        return self.known[name]

    def put(self, name: str, value: Value) -> None:
        if lanes_of(value.ty) == 1:
            value = self.b.splat(value)
        guarded = self.ins is not None and self.ins.guard is not None
        if guarded or name in self.kernel.frame:
            lanes = unbits(self.b, self.active()) if guarded else self.mask_lanes
            value = self.b.select(lanes, value, self.get(name))
        self.known[name] = value
        self.dirty[name] = None

    def active(self) -> Value:
        guard = self.ins.guard if self.ins else None
        return self.mask if guard is None else self.b.op("and", self.mask, self.guard_bits(guard))

    def guard_bits(self, guard: Guard) -> Value:
        value = bits(self.b, self.get(guard.reg.name))
        return self.b.op("xor", value, const("i32", -1)) if guard.negated else value

    def width_of(self, ins: Instruction) -> int:
        return LANES

    # -- the function ---------------------------------------------------------------------------------------

    def emit_module(self) -> str:
        """Return the entire function as LLVM IR text."""
        b = self.b
        b.do("%frame = load ptr, ptr " + b.offset(self.warp, WARP_FRAME.at).ref + ", align 8")
        self.parked, self.ran = b.alloca("i32"), b.alloca("i32")
        b.store(const("i32", 0), self.parked, align=4)
        b.store(const("i32", 0), self.ran, align=4)
        if self.splits:
            self.asked = b.alloca(vec("i32"))
            b.store(const(vec("i32"), 0), self.asked, align=64)
        self.dispatch()
        for block in self.cfg.blocks:
            self.emit_block(block)
        return module_text([b])

    def dispatch(self) -> None:
        """Choose the lanes that run next."""
        b = self.b
        count = len(self.cfg.blocks)
        b.place("next")
        live = get(b, self.warp, WARP_LIVE)
        pcs = b.load(vec("i32"), b.offset(self.warp, WARP_PC.at), align=64)
        leaving = b.op("and", live, bits(b, b.icmp("eq", pcs, const(vec("i32"), count))))
        some_leave, stay = b.label("leave"), b.label("stay")
        b.cbr(b.icmp("ne", leaving, const("i32", 0)), some_leave, stay)
        b.place(some_leave)
        put(b, self.warp, WARP_LIVE, b.op("xor", live, leaving))
        worker = get(b, self.warp, WARP_WORKER)
        gone = b.intrinsic("ctpop", "i32", [leaving])
        put(b, worker, WORKER_THREADS, b.op("sub", get(b, worker, WORKER_THREADS), gone))
        b.store(const("i32", 0), self.parked, align=4)
        b.br("next")
        b.place(stay)
        none_live, some_live = b.label("none_live"), b.label("some_live")
        b.cbr(b.icmp("eq", live, const("i32", 0)), none_live, some_live)
        b.place(none_live)
        b.ret(const("i32", EXITED))
        b.place(some_live)
        blocked = get(b, self.warp, WARP_BLOCKED)
        parked = b.load("i32", self.parked, align=4)
        idle = b.op("or", blocked, parked)
        ready = b.op("and", live, b.op("xor", idle, const("i32", -1)))
        none_ready, some_ready = b.label("idle"), b.label("ready")
        b.cbr(b.icmp("eq", ready, const("i32", 0)), none_ready, some_ready)
        b.place(none_ready)
        moved = b.icmp("ne", b.load("i32", self.ran, align=4), const("i32", 0))
        b.ret(b.select(moved, const("i32", BLOCKED), const("i32", STUCK)))
        b.place(some_ready)
        # Lanes that used a turn let others run first, until all had one: they may spin on a value from any of them.
        spent = get(b, self.warp, WARP_SPENT)
        others = b.op("and", ready, b.op("xor", spent, const("i32", -1)))
        no_others = b.icmp("eq", others, const("i32", 0))
        pool = b.select(no_others, ready, others)
        put(b, self.warp, WARP_SPENT, b.select(no_others, const("i32", 0), spent))
        candidates = b.select(unbits(b, pool), pcs, const(vec("i32"), count + 1))
        lowest = b.intrinsic("vector.reduce.umin", "i32", [candidates], overloads=[vec("i32")])
        # Lanes at the same place as the chosen ones run with them: a collective needs them all at once.
        here = b.op("and", ready, bits(b, b.icmp("eq", pcs, b.splat(lowest))))
        self.choice = b.alloca("i32")
        b.store(here, self.choice, align=4)
        whole, partial = b.label("whole"), b.label("partial")
        all_here = b.icmp("eq", here, const("i32", -1))
        if self.splits:
            none_released = b.icmp("eq", get(b, self.warp, WARP_RELEASED), const("i32", 0))
            all_here = b.op("and", all_here, none_released)
        b.cbr(all_here, whole, partial)
        b.place(whole)
        points = resume_points(self.cfg, self.kernel.uniformity, self.kernel.regions)
        b.switch(lowest, partial, [(point, f"join.{point}") for point in points])
        for point in points:
            self.join(point, partial)
        b.place(partial)
        b.switch(lowest, "lost", [(block.id, f"block.{block.id}") for block in self.cfg.blocks])
        b.place("lost")
        b.do("unreachable")
        b.closed = True

    def join(self, point: int, partial: str) -> None:
        """Write the return to the in-step code if all lanes are at `point` and its warp-wide registers agree."""
        b = self.b
        b.place(f"join.{point}")
        agree = const("i1", 1)
        for name in self.kernel.liveness.at(point) if point else ():
            if name in self.kernel.uniformity.varying:
                continue
            place = b.offset(self.frame, self.kernel.frame[name])
            if self.registers[name] == "pred":
                mask = b.load("i32", place, align=4)
                same = b.op("or", b.icmp("eq", mask, const("i32", 0)), b.icmp("eq", mask, const("i32", -1)))
            else:
                value = b.load(vec(self.register_llvm(name)), place, align=4)
                equal = b.icmp("eq", value, b.splat(b.extract(value, 0)))
                same = b.icmp("eq", bits(b, equal), const("i32", -1))
            agree = b.op("and", agree, same)
        back = b.label("back")
        b.cbr(agree, back, partial)
        b.place(back)
        put(b, self.warp, WARP_DIVERGENT, const("i32", 0))
        put(b, self.warp, WARP_RESUME, const("i32", point))
        put(b, self.warp, WARP_SPENT, const("i32", 0))
        b.ret(const("i32", CONVERGED))

    def emit_block(self, block: Block) -> None:
        b = self.b
        self.known, self.dirty, self.ins, self.met = {}, {}, None, None
        b.place(f"block.{block.id}")
        self.mask = b.load("i32", self.choice, align=4)
        if block.collective:
            self.assemble(block.body[0])
        self.mask_lanes = unbits(b, self.mask)
        b.store(const("i32", 0), self.parked, align=4)
        b.store(const("i32", 1), self.ran, align=4)
        if block.size:
            self.count_block(len(self.cfg.blocks) + block.id, block.size)
        for ins in block.body:
            self.instruction(ins)
        self.terminate(block)

    def assemble(self, ins: Instruction) -> None:
        """Wait until every lane that the collective names is here; the lanes that have arrived are parked meanwhile."""
        b = self.b
        live = get(b, self.warp, WARP_LIVE)
        first = b.intrinsic("cttz", "i32", [self.mask, const("i1", 1)])
        wanted = ins.find("mask")
        if wanted is None or isinstance(wanted, Imm):
            members: Value = const("i32", wanted.value if isinstance(wanted, Imm) else -1)
            same = self.mask
        else:
            each = self.read(wanted, "u32", ins.line)
            members = b.extract(each, first)
            same = b.op("and", self.mask, bits(b, b.icmp("eq", each, b.splat(members))))
        need = b.op("and", members, live)
        if self.splits and ins.facts.is_warp_barrier:
            self.assemble_split(same, members, need)
            return
        missing = b.op("and", need, b.op("xor", same, const("i32", -1)))
        self.go_or_park(b.icmp("eq", missing, const("i32", 0)), same)
        if wanted is None:  # PTX lets a member mask name exited lanes; matrix instructions need the entire warp
            self.report_exited(ins, self.exited())
        self.mask = same

    def go_or_park(self, complete: Value, lanes: Value) -> None:
        """Continue here if `complete`, else park `lanes` and choose others."""
        b = self.b
        wait, go = b.label("wait"), b.label("go")
        b.cbr(complete, go, wait)
        b.place(wait)
        b.store(b.op("or", b.load("i32", self.parked, align=4), lanes), self.parked, align=4)
        b.br("next")
        b.place(go)

    def assemble_split(self, same: Value, members: Value, need: Value) -> None:
        """Meet at bar.warp.sync: the mask counts, not the instruction. Lanes that met at another one are released.

        `asked` has the mask of every lane that waits; lanes in `released` have met and only have to continue.
        """
        b, nothing = self.b, const("i32", 0)
        released = get(b, self.warp, WARP_RELEASED)
        free = b.op("and", same, released)
        is_free = b.icmp("ne", free, nothing)
        asked = b.load(vec("i32"), self.asked, align=64)
        waiting = b.op("and", same, b.op("xor", released, const("i32", -1)))
        asked = b.select(unbits(b, waiting), b.splat(members), asked)
        b.store(asked, self.asked, align=64)
        come = b.op("or", waiting, b.op("and", need, bits(b, b.icmp("eq", asked, b.splat(members)))))
        missing = b.op("and", need, b.op("xor", come, const("i32", -1)))
        self.go_or_park(b.op("or", is_free, b.icmp("eq", missing, nothing)), same)
        come = b.select(is_free, nothing, come)
        b.store(b.select(unbits(b, come), const(vec("i32"), 0), asked), self.asked, align=64)
        elsewhere = b.op("and", come, b.op("xor", same, const("i32", -1)))
        left = b.op("xor", released, free)
        put(b, self.warp, WARP_RELEASED, b.op("or", left, elsewhere))
        self.met = b.op("and", come, members)
        self.mask = b.select(is_free, free, same)

    def exited(self) -> Value:
        """Return the i32 mask of lanes that existed and have exited; lanes that never existed do not count."""
        b = self.b
        threads = get(b, get(b, self.warp, WARP_WORKER), WORKER_BLOCK_THREADS)
        left = b.op("sub", threads, b.op("shl", get(b, self.warp, WARP_ID), const("i32", 5)))
        few = b.op("sub", b.op("shl", const("i32", 1), b.op("and", left, const("i32", 31))), const("i32", 1))
        existing = b.select(b.icmp("uge", left, const("i32", LANES)), const("i32", -1), few)
        return b.op("and", existing, b.op("xor", get(b, self.warp, WARP_LIVE), const("i32", -1)))

    def report_exited(self, ins: Instruction, lanes: Value) -> None:
        """Report `lanes` as needed by `ins` although they have exited, if there are any."""
        b = self.b
        some, none = b.label("exited"), b.label("present")
        b.cbr(b.icmp("eq", lanes, const("i32", 0)), none, some, likely=True)
        b.place(some)
        self.runtime("report", "void", [const("i32", EXITED_LANES), const("i32", ins.line), lanes, const("i64", 0)])
        b.place(none)

    # -- ends of blocks -------------------------------------------------------------------------------------

    def flush(self) -> None:
        for name in self.dirty:
            if name in self.kernel.frame:
                value = self.known[name]
                value = bits(self.b, value) if self.registers[name] == "pred" else value
                self.b.store(value, self.b.offset(self.frame, self.kernel.frame[name]), align=4)
        self.dirty = {}

    def move(self, lanes: Value, target: int | Value) -> None:
        """Set the program counter of `lanes` (an i32 mask)."""
        b = self.b
        place = b.offset(self.warp, WARP_PC.at)
        to = const(vec("i32"), target) if isinstance(target, int) else target
        b.store(b.select(unbits(b, lanes), to, b.load(vec("i32"), place, align=64)), place, align=64)

    def terminate(self, block: Block) -> None:
        end, b = block.end, self.b
        self.ins = end
        count = len(self.cfg.blocks)
        follow = count if block.next is None else block.next
        if end is None:
            self.flush()
            self.move(self.mask, follow)
        elif end.facts.is_barrier:
            lanes = self.active()
            arrive(self, end, lanes)
            self.flush()
            self.move(self.mask, follow)
        elif end.facts.control in ("jump", "return", "exit"):
            lanes = self.active()
            if end.guard is not None:
                self.mark_way(block.id, TAKEN, lanes)
                self.mark_way(block.id, NOT_TAKEN, b.op("and", self.mask, b.op("xor", lanes, const("i32", -1))))
            self.flush()
            self.move(self.mask, follow)
            self.move(lanes, block.targets[0] if end.facts.control == "jump" else count)
        elif end.facts.control == "table":
            self.indexed(block, end.operand("index"), end.line)
        elif end.facts.control == "trap":
            self.trap(follow)
        else:
            raise Unsupported(end.opcode, end.line)
        if not b.closed:
            self.give_way(block)

    def indexed(self, block: Block, operand: Operand, line: int) -> None:
        b = self.b
        index = self.read(operand, "u32", line)
        self.flush()
        self.check_index(index, len(block.targets), self.mask)
        to = const(vec("i32"), block.targets[-1])
        for number, target in enumerate(block.targets[:-1]):
            to = b.select(b.icmp("eq", index, const(vec("i32"), number)), const(vec("i32"), target), to)
        self.move(self.mask, to)

    def trap(self, follow: int) -> None:
        b = self.b
        lanes = self.active()
        self.flush()
        self.move(self.mask, follow)
        hit, go_on = b.label("trap"), b.label("on")
        b.cbr(b.icmp("eq", lanes, const("i32", 0)), go_on, hit)
        b.place(hit)
        self.runtime("report", "void", [const("i32", TRAP), self.site(), lanes, const("i64", 0)])
        b.ret(const("i32", TRAPPED))
        b.place(go_on)

    def give_way(self, block: Block) -> None:
        """Let other warps have a turn after a backward edge."""
        b = self.b
        if all(successor > block.id for successor in block.successors):
            b.br("next")
            return
        left = b.op("sub", get(b, self.warp, WARP_SLICE), const("i64", 1))
        put(b, self.warp, WARP_SLICE, left)
        out = b.label("yield")
        b.cbr(b.icmp("slt", left, const("i64", 0)), out, "next", likely=False)
        b.place(out)
        put(b, self.warp, WARP_SPENT, b.op("or", get(b, self.warp, WARP_SPENT), self.mask))
        b.ret(const("i32", YIELDED))
