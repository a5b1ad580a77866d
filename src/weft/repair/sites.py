"""The places of a -G build where edits are made: instructions of the user's lines, with the variables in scope."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from weft.core.records import Place
from weft.ptx.module import Args, FloatImm, Function, Imm, Instruction, Mem, Reg, Sym

MOST_VARIABLES = 5
"""Variables, apart from parameters, that are tested in place of one operand: those defined nearest before it."""

_INSTRUCTION = re.compile(r"^\t(?P<opcode>[a-z][\w.:]*)\s+(?P<operands>[^;{}]*);$")
_OUTSIDE_BRACKETS = re.compile(r",\s*(?![^\[]*\])")


@dataclass(frozen=True)
class Call:
    """A finished call: the function, and the operands that were passed."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Site:
    """One instruction of a source line."""

    ins: Instruction
    place: Place
    opcode: str
    operands: tuple[str, ...]
    scope: "Scope"
    ends: bool
    """Whether the value of a variable, an argument or an array element is made here, not only a part of it."""
    call: Call | None
    """For an instruction that reads the result of a call: the call."""

    @property
    def name(self) -> str:
        return self.opcode.split(".", 1)[0]

    @property
    def result_type(self) -> str:
        """Return the declared type of the register that is written, empty if there is none."""
        written = [reg.name for reg in self.ins.written()]
        return self.scope.types.get(written[0], "") if len(written) == 1 else ""

    @property
    def is_address(self) -> bool:
        """Return whether the compiler wrote it: an index times the size of an element, or its sum with a pointer."""
        if self.opcode == "shl.b64" or self.opcode.startswith("mul.wide"):
            return True
        sources = (operand.name for operand in self.ins.operands[1:] if isinstance(operand, Reg))
        return self.opcode in ("add.s64", "add.u64") and any(name in self.scope.scaled for name in sources)

    def register_type(self, at: int) -> str:
        """Return the declared type of the register that is a source operand, empty if it is none."""
        operand = self.ins.operands[at]
        return self.scope.types.get(operand.name, "") if isinstance(operand, Reg) else ""


class Scope:
    """The registers of a function that hold variables of the source, and the sizes of the problem."""

    def __init__(self, function: Function, lines: Sequence[str], sizes: Mapping[str, int]) -> None:
        self.types, self.sizes = function.registers, sizes
        self.parameters: list[str] = []
        self.defined: list[tuple[int, str]] = []
        self.body = [item for item in function.body if isinstance(item, Instruction)]
        for ins in self.body:
            for reg in ins.written():
                if _is_parameter(ins):
                    self.parameters.append(reg.name)
                elif _is_labelled(ins, lines):
                    self.defined.append((ins.line, reg.name))
        self.named = {*self.parameters, *(name for _, name in self.defined)}

    def like(self, name: str, line: int) -> list[str]:
        """Return variables of the same type as `name`, parameters first, then the nearest, without itself."""
        return [other for other in self.of_type(self.types.get(name, ""), line) if other != name]

    def of_type(self, kind: str, line: int) -> list[str]:
        """Return the parameters of a type and the variables of it that are defined nearest before a PTX line."""
        before = [other for at, other in reversed(self.defined) if at < line and self.types.get(other) == kind]
        parameters = [other for other in self.parameters if self.types.get(other) == kind]
        return [*parameters, *list(dict.fromkeys(before))[:MOST_VARIABLES]]

    @cached_property
    def constants(self) -> Mapping[str, Imm | FloatImm]:
        """Registers that hold a constant, which several variables may start with."""
        movs = [(list(ins.written()), ins.copied) for ins in self.body]
        return {regs[0].name: held for regs, held in movs if len(regs) == 1 and isinstance(held, Imm | FloatImm)}

    @cached_property
    def scaled(self) -> frozenset[str]:
        """Registers with an index times the size of an element, and the stack pointer."""
        found = [ins for ins in self.body if ins.opcode == "shl.b64" or ins.opcode.startswith("mul.wide")]
        return frozenset({"%SP", *(reg.name for ins in found for reg in ins.written())})

    @cached_property
    def limits(self) -> list[str]:
        """The right sides of integer comparisons: constants, parameters and variables that bound an index."""
        found: dict[str, None] = {}
        for ins in self.body:
            if ins.opcode.startswith(("setp.lt.s32", "setp.ge.s32")):
                right = ins.operands[2]
                if isinstance(right, Imm) and right.value > 0:
                    found[str(right.value)] = None
                elif isinstance(right, Reg) and right.name in self.parameters:
                    found[right.name] = None
        return list(found)

    @cached_property
    def read_at(self) -> Mapping[tuple[str, int], list[Instruction]]:
        """Source line → its instructions."""
        found: dict[tuple[str, int], list[Instruction]] = {}
        for ins in self.body:
            if ins.place is not None:
                found.setdefault((ins.place.file, ins.place.line), []).append(ins)
        return found

    def integers_at(self, place: Place) -> list[str]:
        """Return the integer variables that the instructions of a source line read."""
        read = (reg.name for ins in self.read_at[place.file, place.line] for reg in ins.read())
        return [name for name in dict.fromkeys(read) if name in self.named and self.types.get(name) == "b32"]


def sites_of(
    function: Function, lines: Sequence[str], files: Sequence[str], sizes: Mapping[str, int]
) -> Iterator[Site]:
    """Yield the instructions of one function whose line is in one of `files`."""
    scope = Scope(function, lines, sizes)
    passed: dict[str, str] = {}
    call: Call | None = None
    for ins in scope.body:
        matched = _INSTRUCTION.match(lines[ins.line - 1])
        operands = _OUTSIDE_BRACKETS.split(matched["operands"].strip()) if matched is not None else []
        argument = ins.space == "param" and ins.opcode.startswith("st")
        if argument and len(operands) == 2:
            passed[operands[0].strip("[]").partition("+")[0]] = operands[1]
        if ins.facts.control == "call":
            call, passed = _call_of(ins, passed), {}
        if ins.guard is not None or matched is None or ins.place is None or len(operands) != len(ins.operands):
            continue
        result = ins.opcode.startswith("ld.param") and not _is_parameter(ins)
        if ins.place.file in files and ins.place.line > 0:
            ends = argument or result or ins.opcode.startswith("st") or _is_labelled(ins, lines)
            made = call if result else None
            yield Site(ins, ins.place, matched["opcode"], tuple(operands), scope, ends, made)


def _call_of(ins: Instruction, passed: Mapping[str, str]) -> Call | None:
    name = next((operand.name for operand in ins.operands if isinstance(operand, Sym)), None)
    lists = [operand for operand in ins.operands if isinstance(operand, Args)]
    if name is None or not lists:
        return None
    names = [item.name.partition("@")[0] for item in lists[-1].items if isinstance(item, Sym)]
    return Call(name, tuple(passed[each] for each in names if each in passed))


def _is_parameter(ins: Instruction) -> bool:
    """Return whether it reads a parameter of the function, not the result of a call."""
    if ins.space != "param" or not ins.opcode.startswith("ld"):
        return False
    base = next((operand.base for operand in ins.operands if isinstance(operand, Mem)), None)
    return isinstance(base, Sym) and "_param_" in base.name


def _is_labelled(ins: Instruction, lines: Sequence[str]) -> bool:
    return ins.line < len(lines) and lines[ins.line].startswith("$L__tmp")
