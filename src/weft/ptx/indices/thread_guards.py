"""Guards that depend only on a thread's number in its CTA: `@%p st.global …` with %p = (tid.x & 96) == 0.

The value of such a guard is the same at every execution, so it can be computed from the text: its registers have one
definition each, without a guard, and are made of `%tid`, literals and nothing else. What depends on memory, parameters
or the CTA is unknown; `false and unknown` is false.
"""

from collections.abc import Iterable

from ..module import Instruction, Reg
from .numbers import Difference, Number, Truth, Value, known
from .steps import followed_step, is_followed


class ThreadGuards:
    """The guards of a kernel whose CTAs are one-dimensional and have `threads` threads."""

    def __init__(self, instructions: Iterable[Instruction], threads: int) -> None:
        self.threads = threads
        writers: dict[str, list[Instruction]] = {}
        for ins in instructions:
            for reg in ins.written():
                writers.setdefault(reg.name, []).append(ins)
        self._made_by = {
            name: made[0]
            for name, made in writers.items()
            if len(made) == 1 and made[0].guard is None and not made[0].facts.group
        }
        self._values: dict[str, tuple[bool | None, ...]] = {}

    def values(self, predicate: Reg) -> tuple[bool | None, ...]:
        """Return the value of a predicate in each thread of a CTA; None where it is not known."""
        name = predicate.name
        if name not in self._values:
            steps = [followed_step(ins) for ins in self._needed(name)]
            found = []
            for number in range(self.threads):
                thread = _Thread(number, self.threads)
                for step in steps:
                    step(thread)
                truth = thread.registers.get(name)
                found.append(truth.value if isinstance(truth, Truth) else None)
            self._values[name] = tuple(found)
        return self._values[name]

    def _needed(self, name: str) -> list[Instruction]:
        """Return the instructions that make a register, in an order in which they can be executed."""
        order: dict[int, Instruction] = {}
        open_names: set[str] = set()

        def visit(register: str) -> None:
            made = self._made_by.get(register)
            if made is None or id(made) in order or register in open_names or not is_followed(made):
                return
            open_names.add(register)  # a definition in terms of itself stays unknown
            for reg in made.read():
                visit(reg.name)
            order[id(made)] = made

        visit(name)
        return list(order.values())


class _Thread:
    """A thread of which only its number is known; see `steps.Thread`."""

    def __init__(self, number: int, threads: int) -> None:
        values = {"tid.x": number, "tid.y": 0, "tid.z": 0, "ntid.x": threads, "ntid.y": 1, "ntid.z": 1}
        values |= {"laneid": number % 32}
        self.registers: dict[str, Value] = {f"%{name}": known(value, "u32") for name, value in values.items()}
        self.call_memory: dict[tuple[str, int, int], Value] = {}

    def decides(self, site: Instruction, *differences: Difference) -> None:
        pass

    def compares(self, site: Instruction, numbers: tuple[Number, ...]) -> None:
        pass

    def accesses(self, site: Instruction, address: Number, offset: int) -> None:
        pass
