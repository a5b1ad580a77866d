"""Follow uninitialised values through CTAs: which reads reach a branch, an address or an output.

The reference interpreter executes them. Every register and every byte of shared and local memory has a word of labels,
one bit for each instruction that read an uninitialised byte the value depends on. Where labels reach a guard of a
branch or store, an address, or a store to global memory, these reads have an effect. Copies, arithmetic, shuffles and
mma pass labels on (a product with zero as well); what `selp`, a guard or an `and` with zero bytes leaves out does not
count.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.core.errors import WeftError
from weft.ptx.module import WIDTH, Instruction, Reg
from weft.vm.reference.interpreter import run
from weft.vm.reference.machine import Observer, RunningWarp
from weft.vm.reference.warp import Lanes
from weft.vm.runtime.watch import Scene

from .taint_rules import EFFECTS, MEMORY, RULES, smear
from .taint_state import Enough, Sink, Taint, UnsetRead


@dataclass(frozen=True)
class Followed:
    """What the values of uninitialised reads reached in some CTAs."""

    sinks: Mapping[int, Sink]
    """PTX line of a read → the first thing its value reached."""
    harmless: frozenset[int]
    """PTX lines of reads that were repeated and whose values reached nothing until the CTAs' end."""
    steps: int
    """Warp instructions that were executed for it."""
    unset: Mapping[int, UnsetRead]
    """PTX line → the register it read although it was never set; also in `sinks` if the value has an effect."""


def follow(
    scene: Scene, ctas: Sequence[int], lines: frozenset[int], max_steps: int, *, registers: frozenset[str] = frozenset()
) -> Followed:
    """Run CTAs again, from the memory their launch started with, and follow the values of the reads at `lines`.

    `registers` count as uninitialised until they are set.
    """
    memory = copy.copy(scene.memory)
    memory.arena = scene.before.copy()
    taint = Taint(scene.written == 0, lines, registers)
    observer = _Observer(taint)
    function = scene.source.inlined
    module = replace(scene.source.module, functions={**scene.source.module.functions, function.name: function})
    launch = replace(scene.launch, max_steps=max_steps)
    complete = False
    try:
        outcome = run(
            module,
            launch,
            memory,
            layout=scene.layout,
            globals_at=scene.globals_at,
            arch=scene.source.arch,
            ctas=ctas,
            observer=observer,
        )
        complete = not any(finding.code[0] in "SX" for finding in outcome.findings)
    except Enough:
        pass
    except WeftError:  # the interpreter cannot run it: nothing is known
        pass
    harmless = taint.seen - taint.sinks.keys() if complete else set()
    return Followed(taint.sinks, frozenset(harmless), observer.steps, taint.unset_reads)


class _Observer(Observer):
    """Moves labels as the interpreter moves values."""

    def __init__(self, taint: Taint) -> None:
        self.taint = taint
        self.steps = 0

    def guard(self, w: RunningWarp, ins: Instruction, group: Lanes) -> None:
        """Handle a guard, which decides about a branch, an effect on memory, or the value of a register."""
        assert ins.guard is not None
        if self.taint.unset:
            self.taint.read_unset(w, ins, (ins.guard.reg.name,), group)
        labels = self.taint.any_of(w, ins.guard.reg)
        if not labels[group].any():
            return
        if ins.form.chapter == "control":
            self.taint.sink(labels[group], "a branch", ins)
        elif ins.form.name in EFFECTS:
            self.taint.sink(labels[group], "the guard of a store", ins)
        else:
            self._add(w, ins, labels, group)

    def before(self, w: RunningWarp, ins: Instruction) -> None:
        self.steps += 1
        taint = self.taint
        registers = taint.of(w).registers
        sources, targets = taint.flow(ins)
        if taint.unset:
            taint.read_unset(w, ins, sources, w.mask)
            taint.set_registers(w, targets)
        labelled = any(name in registers for name in sources)
        decided = taint.any_of(w, ins.guard.reg) if ins.guard is not None else None
        if labelled or ins.form.name in MEMORY:
            RULES.get(ins.form.name, smear)(taint, w, ins)
        else:
            for name in targets:
                if name in registers:
                    taint.write(w, Reg(name), np.zeros((32, 1), np.uint64))
        if decided is not None and decided.any():
            self._add(w, ins, decided, w.mask)

    def _add(self, w: RunningWarp, ins: Instruction, labels: Lanes, lanes: Lanes) -> None:
        """Add labels to the destinations."""
        for reg in ins.written():
            size = max(WIDTH[w.types[reg.name]] // 8, 1)
            self.taint.write(w, reg, self.taint.read(w, reg, size) | labels[:, None], lanes)
