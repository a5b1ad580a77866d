"""Moves marks as the interpreter moves values: registers, memory, lanes, matrix fragments, asynchronous copies.

Which rule moves the marks of an instruction follows from the facts of its row. An asynchronous copy moves its marks
when the interpreter carries it out, whatever waits for it: a group or an mbarrier.
"""

from dataclasses import dataclass

from weft.ptx.module import Instruction
from weft.vm.reference.machine import Copy, Grid, Observer, RunningWarp
from weft.vm.reference.warp import Lanes

from .marks import Algebra, Finish, Marks, Rule, Shadow, sources_of
from .rules import rule_for


@dataclass(frozen=True)
class _Plan:
    """What is needed to move the marks of an instruction."""

    instruction: Instruction
    sources: tuple[str, ...]
    rule: Rule
    always: bool
    """Whether the rule is needed although no operand has marks: memory may have."""


class Transport(Observer):
    """The marks of the CTAs of a launch, moved by the rules."""

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra
        self.shadow = Shadow(algebra)
        self.grid: Grid | None = None
        self._plans: dict[int, _Plan] = {}
        self._finish: Finish | None = None

    # -- what the interpreter reports ----------------------------------------------------------------------------

    def guard(self, w: RunningWarp, ins: Instruction, group: Lanes) -> None:
        """A guard decides about a branch, an effect on memory or on others, or the value of a register."""
        assert ins.guard is not None
        self._enter(w.grid)
        self.algebra.meets_guard(self.shadow, w, ins, group)
        if ins.guard.reg.name not in self.shadow.file(w):
            return
        decides = self.shadow.value(w, ins.guard.reg)
        if ins.facts.control:
            self.algebra.used(ins, decides[group], "a branch")
        elif has_effects(ins):
            self.algebra.used(ins, decides[group], "the guard of a store")
        else:
            self._decide(w, ins, decides, group)

    def before(self, w: RunningWarp, ins: Instruction) -> None:
        self._enter(w.grid)
        self.algebra.executes(self.shadow, w, ins)
        plan = self._plan(ins)
        file = self.shadow.file(w)
        guarded = ins.guard is not None and ins.guard.reg.name in file
        decides = self.shadow.value(w, ins.guard.reg) if guarded and ins.guard is not None else None
        if plan.always or any(name in file for name in plan.sources):
            self._finish = plan.rule(self.shadow, w, ins)
        else:
            self.shadow.forget(w, ins)
            self._finish = self.algebra.unmarked(w, ins)
        if decides is not None:
            self._decide(w, ins, decides, w.mask)

    def after(self, w: RunningWarp, ins: Instruction) -> None:
        if self._finish is not None:
            self._finish()

    def landing(self, w: RunningWarp, copy: Copy) -> None:
        """An asynchronous copy reads its source and writes its destination now."""
        self.shadow.copy(copy)

    def _plan(self, ins: Instruction) -> _Plan:
        """Return how the marks of an instruction move."""
        known = self._plans.get(id(ins))
        if known is None:
            always = bool(ins.facts.accesses) or ins.facts.control == "call" or ins.facts.multiplies == "wgmma"
            known = _Plan(ins, sources_of(ins), rule_for(ins, self.algebra), always)
            self._plans[id(ins)] = known
        return known

    def _decide(self, w: RunningWarp, ins: Instruction, decides: Marks, lanes: Lanes) -> None:
        """Add the marks of a guard to the destinations."""
        for register in ins.written():
            size = w.file[register.name].dtype.itemsize
            self.shadow.write(w, register, self.algebra.decided(self.shadow.read(w, register, size), decides), lanes)

    def _enter(self, grid: Grid) -> None:
        if grid is not self.grid:
            self.grid, self.shadow = grid, Shadow(self.algebra)
            self.algebra.begin(self.shadow, grid)


def has_effects(ins: Instruction) -> bool:
    """Whether an instruction does more than to set registers: it writes memory, or other threads may wait for it."""
    facts = ins.facts
    waits = facts.waits or facts.group in ("cta", "cluster")
    return facts.writes_memory or waits or bool(facts.starts) or bool(facts.settles)
