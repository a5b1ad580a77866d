"""Follow uninitialised values through CTAs: which reads reach a branch, an address or an output.

The reference interpreter executes the CTAs, and `weft.shadow` moves labels as it moves values. Every register and every
byte of shared and local memory has a word of labels (`taint_labels.py`), one bit for each instruction that read an
uninitialised byte the value depends on. Where labels reach a guard of a branch or store, an address, or a store to
global memory, these reads have an effect. Copies, arithmetic, shuffles and mma pass labels on (a product with zero as
well); what `selp`, a guard or an `and` with zero bytes leaves out does not count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from weft.core.errors import WeftError
from weft.shadow.transport import Transport
from weft.vm.device_heap import repeated
from weft.vm.reference.interpreter import run
from weft.vm.runtime.watch import Scene

from .taint_labels import Enough, Sink, Taint, UnsetRead


@dataclass(frozen=True)
class Followed:
    """What the values of uninitialised reads reached in some CTAs."""

    sinks: Mapping[int, Sink]
    """PTX line of a read → the first thing its value reached."""
    harmless: frozenset[int]
    """PTX lines of reads that were repeated and whose values reached nothing until the CTAs' end."""
    steps: int
    """Warp instructions that were executed for it."""
    complete: bool
    """Whether the CTAs ran to their end."""
    unset: Mapping[int, UnsetRead]
    """PTX line → the register it read although it was never set; also in `sinks` if the value has an effect."""


def runnable(scene: Scene, wanted: Sequence[int], most_steps: int) -> tuple[Sequence[int], ...]:
    """Return the CTAs to run again, as they can run: one by one, or all together where one may wait for another or
    use what another allocated.
    """
    if not scene.source.passes.waits and not scene.source.uses_heap:
        return tuple((cta,) for cta in wanted)
    return (range(prod(scene.launch.grid)),) if scene.instructions <= most_steps else ()


def follow(
    scene: Scene, ctas: Sequence[int], lines: frozenset[int], max_steps: int, *, registers: frozenset[str] = frozenset()
) -> Followed:
    """Run CTAs again, from the memory their launch started with, and follow the values of the reads at `lines`.

    `registers` count as uninitialised until they are set.
    """
    memory, arena = scene.memory, scene.memory.arena
    with repeated(memory, scene.heap):
        memory.arena = memory.copy_buffers(scene.before)
        try:
            return _follow(scene, ctas, lines, max_steps, registers)
        finally:
            memory.arena = arena


def _follow(
    scene: Scene, ctas: Sequence[int], lines: frozenset[int], max_steps: int, registers: frozenset[str]
) -> Followed:
    taint = Taint(scene.written == 0, lines, registers)
    function = scene.source.inlined
    module = replace(scene.source.module, functions={**scene.source.module.functions, function.name: function})
    launch = replace(scene.launch, max_steps=max_steps)
    complete = False
    try:
        outcome = run(
            module,
            launch,
            scene.memory,
            layout=scene.layout,
            globals_at=scene.globals_at,
            arch=scene.source.arch,
            ctas=ctas,
            observer=Transport(taint),
        )
        complete = not any(finding.code[0] in "SX" for finding in outcome.findings)
    except Enough:
        pass
    except WeftError:  # the interpreter cannot run it: nothing is known
        pass
    harmless = taint.seen - taint.sinks.keys() if complete else set()
    return Followed(taint.sinks, frozenset(harmless), taint.steps, complete, taint.unset_reads)
