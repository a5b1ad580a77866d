"""Loads whose value has no effect in the thread that made them: a race needs a value that is used.

Triton keeps a scalar, or a tensor smaller than the CTA, in several threads. All of them load it, one stores:

    ld.global.b32   %r1, [%rd1];             every thread
    add.f32         %r2, %r1, 0f3F800000;
    setp.eq.b32     %p1, %tid, 0;
    @%p1 st.global.b32 [%rd1], %r2;          thread 0

Warp 1 may load before or after the store of warp 0. Whatever it gets is used by nothing: its own store is off.

The value of a load is followed through the registers of its thread, and of the lanes of its warp once a shuffle has it.
It has no effect if it reaches no address, no branch and no store, except for those whose guard is off in these threads.
A branch around instructions that only compute, as in `logf`, passes it on to what they write. Instructions that no path
from the load leads to do not count. Otherwise order and paths are ignored, and guards count as on unless `ThreadGuards`
shows that they are off, so a load that has an effect is never left out. CTAs must be one-dimensional, with the size in
the PTX (`.reqntid`), as Triton's are.
"""

import numpy as np
import numpy.typing as npt

from weft.ptx.indices.thread_guards import ThreadGuards
from weft.ptx.isa.facts import Facts
from weft.ptx.module import Function, Instruction
from weft.ptx.passes.build_cfg import Block, Cfg, build_cfg
from weft.vm.ir import LANES

from .events import What
from .taint_slice import read_by


class UnusedLoads:
    """The loads of one kernel."""

    def __init__(self, kernel: Function) -> None:
        self._kernel = kernel
        self._instructions = [item for item in kernel.body if isinstance(item, Instruction)]
        x, *others = kernel.directives.get("reqntid", (0,))
        self._threads = x if all(size == 1 for size in others) else 0
        self._unused: dict[int, npt.NDArray[np.bool_]] = {}
        self._guards: ThreadGuards | None = None
        self._users: dict[str, list[Instruction]] = {}
        self._blocks: dict[int, set[int]] = {}
        """PTX line → its blocks."""
        self._cfg: Cfg | None = None

    def without(self, log: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Return the log without lanes that load what has no effect."""
        loads = log["what"] == What.LOAD
        if not self._threads or not loads.any():
            return log
        log = log.copy()
        for site in np.unique(log["site"][loads]).tolist():
            here = np.flatnonzero(loads & (log["site"] == site))
            lanes = self.unused(site).reshape(-1, LANES) @ (1 << np.arange(LANES, dtype=np.uint32))
            log["lanes"][here] &= ~lanes.astype(np.uint32)[log["warp"][here]]
        kept: npt.NDArray[np.void] = log[~loads | (log["lanes"] != 0)]
        return kept

    def unused(self, site: int) -> npt.NDArray[np.bool_]:
        """Return for each thread of a CTA whether the load at a PTX line has no effect there."""
        if site not in self._unused:
            self._unused[site] = self._judge(site)
        return self._unused[site]

    def _judge(self, site: int) -> npt.NDArray[np.bool_]:
        threads = -(-self._threads // LANES) * LANES
        loads = [ins for ins in self._instructions if ins.line == site]
        if not loads or any(not _is_plain_load(ins) for ins in loads):
            return np.zeros(threads, bool)
        if self._guards is None:
            self._guards = ThreadGuards(self._instructions, threads)
            for ins in self._instructions:
                for name in read_by(ins):
                    self._users.setdefault(name, []).append(ins)
        after = self._after(site)
        effects, shuffled, guarded = False, False, []
        waiting = [reg.name for load in loads for reg in load.written()]
        seen = set(waiting)
        while waiting:
            for user in self._users.get(waiting.pop(), ()):
                if not self._blocks[user.line] & after:
                    continue
                skipped = self._skipped(user)
                if skipped or _computes(user.facts):
                    shuffled |= user.facts.group == "warp"
                    fresh = {reg.name for ins in skipped or (user,) for reg in ins.written()} - seen
                    seen |= fresh
                    waiting += fresh
                elif user.guard is None or not user.facts.uses_memory or user.facts.group:
                    effects = True
                else:
                    guarded.append(user.guard)
        unused = np.full(threads, not effects)
        for guard in dict.fromkeys(guarded):
            off = [value is not None and value == guard.negated for value in self._guards.values(guard.reg)]
            unused &= np.array(off)
        return np.repeat(unused.reshape(-1, LANES).all(axis=1), LANES) if shuffled else unused

    def _after(self, site: int) -> set[int]:
        """Return the blocks that can run after the load at a PTX line, with its own."""
        if self._cfg is None:
            self._cfg = build_cfg(self._kernel)
            for block in self._cfg.blocks:
                for ins in (*block.body, *(() if block.end is None else (block.end,))):
                    self._blocks.setdefault(ins.line, set()).add(block.id)
        found: set[int] = set()
        waiting = list(self._blocks[site])
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                waiting += self._cfg.blocks[at].successors
        return found

    def _skipped(self, branch: Instruction) -> tuple[Instruction, ...]:
        """Return what runs on one way of a branch only, if the ways join at once and that only computes."""
        cfg = self._cfg
        block = next((each for each in cfg.blocks if each.end is branch), None) if cfg is not None else None
        if cfg is None or block is None or branch.facts.control != "jump" or len(set(block.successors)) != 2:
            return ()
        one, other = (cfg.blocks[way] for way in block.successors)
        if _only_computes(one) and one.successors == (other.id,):
            return one.body
        if _only_computes(other) and other.successors == (one.id,):
            return other.body
        if _only_computes(one) and _only_computes(other) and one.successors == other.successors:
            return one.body + other.body
        return ()


def _only_computes(block: Block) -> bool:
    """Whether a block computes values of its lane and has one way out."""
    plain = all(_computes(ins.facts) and not ins.facts.group for ins in block.body)
    return plain and len(block.successors) == 1 and (block.end is None or block.end.facts.control == "jump")


def _computes(facts: Facts) -> bool:
    """Whether an instruction only makes values of values, of its lane or of its warp."""
    effects = facts.control or facts.accesses or facts.waits or facts.fences or facts.starts or facts.settles
    return not effects and facts.group in ("", "warp")


def _is_plain_load(ins: Instruction) -> bool:
    """Whether threads cannot synchronise by it."""
    return ins.facts.is_load and not ins.has("order") and not ins.has("volatile")
