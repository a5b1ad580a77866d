"""Whether the value of a read can reach anything at all, by the registers alone: true of every CTA at once.

A compiler that widens a load over padding leaves registers that nobody uses, or uses only to compute others that
nobody uses. Order and paths are ignored, so what is said to reach nothing never does.
"""

from collections.abc import Iterable

from weft.ptx.module import WIDTH, Instruction, Reg, Vec

_EFFECTS = frozenset({"st", "ld", "atom", "red", "cp", "bar", "barrier", "ldmatrix", "mbarrier", "call", "prefetch"})
"""What a register may not be used in: stores of any kind, addresses, barriers."""


class Slicer:
    """The registers of one kernel and who uses them."""

    def __init__(self, instructions: Iterable[Instruction]) -> None:
        self.users: dict[str, list[Instruction]] = {}
        self.at: dict[int, list[Instruction]] = {}
        for ins in instructions:
            self.at.setdefault(ins.line, []).append(ins)
            for reg in _sources(ins):
                self.users.setdefault(reg.name, []).append(ins)

    def reaches_nothing(self, line: int, hit_bytes: int) -> bool:
        """Whether the bytes of the mask `hit_bytes` that the load at `line` reads are of no consequence."""
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
    """Registers whose value matters to an instruction; the old value of a guarded destination does not change."""
    if ins.guard is None:
        return set(ins.read())
    return set(ins.read()) - (set(ins.written()) - _operands(ins) - {ins.guard.reg})


def _operands(ins: Instruction) -> set[Reg]:
    unguarded = Instruction(ins.opcode, ins.form, ins.mods, ins.operands, None, ins.line)
    return set(unguarded.read())


def _targets(load: Instruction, hit_bytes: int) -> list[str]:
    """Destinations of a load that hold any of the bytes."""
    operand = load.operand("d")
    items = operand.items if isinstance(operand, Vec) else (operand,)
    size = WIDTH[load.type] // 8
    whole = (1 << size) - 1
    return [item.name for at, item in enumerate(items) if isinstance(item, Reg) and hit_bytes >> at * size & whole]


def _counts(ins: Instruction) -> bool:
    stores = ins.form.name == "wmma" and (ins.has("load") or ins.has("store"))
    return ins.form.chapter == "control" or ins.form.name in _EFFECTS or stores
