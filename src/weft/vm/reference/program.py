"""A kernel and the functions it calls as one list of instructions, so that a program counter is one number."""

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.errors import LaunchError
from weft.ptx.module import Function, Instruction, Label, LabelDef, Module, Sym

from ..layout import Layout

_FRAME_ALIGN = 16


@dataclass(frozen=True, eq=False)
class Code:
    """One function within the list of instructions."""

    function: Function
    start: int
    labels: Mapping[str, int]
    frame: Mapping[str, int]
    """Variables in local memory, relative to the frame (called functions only: the layout places a kernel's)."""
    frame_bytes: int


@dataclass(frozen=True)
class Program:
    """The list of instructions. None marks the end of a function: an implicit `ret`."""

    instructions: tuple[Instruction | None, ...]
    owners: tuple[Code, ...]
    """The function of each instruction."""
    codes: Mapping[str, Code]
    entry: Code

    @property
    def has_calls(self) -> bool:
        return len(self.codes) > 1

    def frame_bytes(self, layout: Layout) -> int:
        """Return the local memory of the kernel itself."""
        return _align(layout.local_bytes)

    def target(self, code: Code, label: Label) -> int:
        """Return the program counter of a label."""
        return code.labels[label.name]


def line_up(module: Module, entry: str) -> Program:
    """Return the entry first, then every function it can reach; Unsupported if the body of one was not read."""
    if entry not in module.functions or not module.functions[entry].entry:
        raise LaunchError(f"no kernel {entry}; the module has {', '.join(module.entries()) or 'none'}")
    instructions: list[Instruction | None] = []
    owners: list[Code] = []
    codes: dict[str, Code] = {}
    wanted = [entry]
    while wanted:
        name = wanted.pop(0)
        function = module.functions.get(name)
        if name in codes or function is None or (function.extern and not function.body):
            continue
        function.check_supported()
        start = len(instructions)
        body: list[Instruction | None] = []
        labels: dict[str, int] = {}
        for item in function.body:
            if isinstance(item, LabelDef):
                labels[item.name] = start + len(body)
                continue
            body.append(item)
            if item.facts.control == "call" and isinstance(target := item.operand("func"), Sym):
                wanted.append(target.name)
        body.append(None)
        frame, size = ({}, 0) if function.entry else _frame(function)
        code = Code(function, start, labels, frame, size)
        codes[name] = code
        instructions += body
        owners += [code] * len(body)
    return Program(tuple(instructions), tuple(owners), codes, codes[entry])


def _frame(function: Function) -> tuple[dict[str, int], int]:
    frame: dict[str, int] = {}
    top = 0
    for variable in (*function.params, *function.returns, *function.variables):
        if variable.space not in ("param", "local"):
            continue
        top = -(-top // max(variable.align, 4)) * max(variable.align, 4)
        frame[variable.name] = top
        top += variable.size_bytes
    return frame, _align(top)


def _align(size: int) -> int:
    return -(-size // _FRAME_ALIGN) * _FRAME_ALIGN
