"""Uninitialised variables that live in registers.

In a -G build every use of a variable is still there, and scalars are registers. One that is live at the kernel's start
is read before it is set, on some path; whether a thread takes that path, and whether the value matters, a run that
follows it shows. Optimised code is not asked: there such registers are the compiler's choice.
"""

from weft.core.records import Finding
from weft.vm.runtime.watch import Scene

from .initcheck_review import MOST_STEPS
from .taint import follow

_NO_LINE = frozenset({-1})


def unset_variables(scene: Scene) -> tuple[Finding, ...]:
    """One finding for each place that a value nobody set reaches, in the first, the middle and the last CTA."""
    liveness = scene.source.kernel.liveness
    registers = frozenset(liveness.at(0))
    if not registers:
        return ()
    nx, ny, nz = scene.launch.grid
    total = nx * ny * nz
    found: dict[object, Finding] = {}
    left = MOST_STEPS
    for cta in sorted({0, total // 2, total - 1}):
        if left <= 0:
            break
        followed = follow(scene, cta, _NO_LINE, left, registers=registers)
        left -= followed.steps
        for line, read in followed.unset.items():
            sink = followed.sinks.get(line)
            if sink is None:
                continue
            place = sink.instruction.place
            index = (cta % nx, cta // nx % ny, cta // (nx * ny))
            message = f"uninitialised variable (register {read.register}), its value reaches {sink.what}"
            finding = Finding("I203", message, line, place, index, read.warp, read.lanes, name=read.register)
            found.setdefault(place or line, finding)
    return tuple(found.values())
