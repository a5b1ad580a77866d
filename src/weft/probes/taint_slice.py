"""Whether the value of a read can reach anything at all, by the registers alone: the answer holds for every CTA.

A compiler that widens a load over padding leaves registers that no instruction uses, or that are used only to compute
other unused registers. Order and paths are ignored, so a value reported to reach nothing never does.
"""

from collections.abc import Iterable

from weft.ptx.module import WIDTH, Instruction, Reg
from weft.shadow.marks import members, sources_of
from weft.shadow.transport import has_effects


class Slicer:
    """The registers of one kernel and the instructions that use them."""

    def __init__(self, instructions: Iterable[Instruction]) -> None:
        self.users: dict[str, list[Instruction]] = {}
        self.at: dict[int, list[Instruction]] = {}
        for ins in instructions:
            self.at.setdefault(ins.line, []).append(ins)
            for name in read_by(ins):
                self.users.setdefault(name, []).append(ins)

    def reaches_nothing(self, line: int, hit_bytes: int) -> bool:
        """Whether the bytes of the mask `hit_bytes` that the load at `line` reads have no effect."""
        loads = self.at.get(line, [])
        if not loads or not all(load.facts.is_load for load in loads):
            return False
        waiting = [name for load in loads for name in _targets(load, hit_bytes)]
        known = set(waiting)
        while waiting:
            for user in self.users.get(waiting.pop(), ()):
                if _counts(user):
                    return False
                fresh = {reg.name for reg in user.written()} - known
                known |= fresh
                waiting += fresh
        return True


def read_by(ins: Instruction) -> set[str]:
    """Return the names of the registers that an instruction depends on, with its guard."""
    return {*sources_of(ins), *(() if ins.guard is None else (ins.guard.reg.name,))}


def _targets(load: Instruction, hit_bytes: int) -> list[str]:
    """Return the destinations of a load that hold any of the bytes."""
    size = WIDTH[load.type] // 8
    whole = (1 << size) - 1
    items = members(load.operand("d"))
    return [item.name for at, item in enumerate(items) if isinstance(item, Reg) and hit_bytes >> at * size & whole]


def _counts(ins: Instruction) -> bool:
    """Whether a use in it has an effect: stores of any kind, addresses, barriers, branches."""
    return bool(ins.facts.control) or bool(ins.facts.accesses) or has_effects(ins)
