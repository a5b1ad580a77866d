"""Whether the value of a read can reach anything at all, by the registers alone: the answer holds for every CTA.

A compiler that widens a load over padding leaves registers that no instruction uses, or that are used only to compute
other unused registers. Order and paths are ignored, so a value reported to reach nothing never does.
"""

from collections.abc import Iterable

from weft.ptx.module import WIDTH, Instruction, Reg, Vec

_EFFECTS = frozenset({"st", "ld", "atom", "red", "cp", "bar", "barrier", "ldmatrix", "mbarrier", "call", "prefetch"})
"""Opcodes in which a use has an effect: stores of any kind, addresses, barriers."""


class Slicer:
    """The registers of one kernel and the instructions that use them."""

    def __init__(self, instructions: Iterable[Instruction]) -> None:
        self.users: dict[str, list[Instruction]] = {}
        self.at: dict[int, list[Instruction]] = {}
        for ins in instructions:
            self.at.setdefault(ins.line, []).append(ins)
            for reg in _sources(ins):
                self.users.setdefault(reg.name, []).append(ins)

    def reaches_nothing(self, line: int, hit_bytes: int) -> bool:
        """Whether the bytes of the mask `hit_bytes` that the load at `line` reads have no effect."""
        loads = self.at.get(line, [])
        if not loads or any(load.form.name != "ld" for load in loads):
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


def _sources(ins: Instruction) -> set[Reg]:
    """Return the registers that an instruction's result depends on; a guarded destination's old value stays."""
    if ins.guard is None:
        return set(ins.read())
    return set(ins.read()) - (set(ins.written()) - _operands(ins) - {ins.guard.reg})


def _operands(ins: Instruction) -> set[Reg]:
    unguarded = Instruction(ins.opcode, ins.form, ins.mods, ins.operands, None, ins.line)
    return set(unguarded.read())


def _targets(load: Instruction, hit_bytes: int) -> list[str]:
    """Return the destinations of a load that hold any of the bytes."""
    operand = load.operand("d")
    items = operand.items if isinstance(operand, Vec) else (operand,)
    size = WIDTH[load.type] // 8
    whole = (1 << size) - 1
    return [item.name for at, item in enumerate(items) if isinstance(item, Reg) and hit_bytes >> at * size & whole]


def _counts(ins: Instruction) -> bool:
    stores = ins.form.name == "wmma" and (ins.has("load") or ins.has("store"))
    return ins.form.chapter == "control" or ins.form.name in _EFFECTS or stores
