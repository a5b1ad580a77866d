"""Notes of ptxas (C75xx) → findings of a launch (P701): products that wait for each other, `setmaxnreg` ignored."""

from collections.abc import Iterator, Mapping

from weft.core.records import AssemblerNote, Binary, Finding
from weft.ptx.module import Instruction
from weft.vm.program import Program

IGNORED = "C7508"
"""The note that `setmaxnreg` has no effect: the number of registers at entry is not known. It names no kernel."""


def note_findings(binary: Binary, symbol: str, program: Program) -> Iterator[Finding]:
    """Yield a finding for each note about a kernel, or about a function that it may call."""
    kernels = frozenset(binary.entries.values()) | frozenset(binary.resources)
    bounded = program.source.function.bounds_registers
    for note in binary.notes:
        if note.code == IGNORED and bounded:
            continue
        if note.function == symbol or note.function not in kernels:
            at = _instruction(note, program.source.instruction_at)
            if at is not None:
                message = f"ptxas changed the code: {note.message} ({note.code})"
                yield Finding("P701", message, at.line, at.place)


def fixes_registers(binary: Binary) -> bool:
    """Return whether ptxas ignored a `setmaxnreg` for another reason than a bound that is missing."""
    return any("setmaxnreg" in note.message and note.code != IGNORED for note in binary.notes)


def _instruction(note: AssemblerNote, instruction_at: Mapping[int, Instruction]) -> Instruction | None:
    """Return the instruction that a note is about: the last one up to its line, or the first of its kind."""
    if note.code == IGNORED:
        kind = [line for line, ins in instruction_at.items() if ins.facts.registers]
    else:
        kind = [line for line, ins in instruction_at.items() if ins.facts.multiplies == "wgmma"]
    before = [line for line in instruction_at if line <= note.line]
    return instruction_at[max(before) if before else min(kind)] if kind else None
