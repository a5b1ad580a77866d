"""Small edits of one PTX instruction: another constant, comparison, operation or variable.

They are made in the -G build, where every source line has instructions that belong to it alone: a constant of the
source is an operand, a comparison is a `setp`, a variable is a register. In optimised PTX a stride or a starting value
is often folded into instructions of other lines.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weft.core.records import Place
from weft.ptx.module import FloatImm, Function, Imm, Instruction, Reg

MOST_VARIABLES = 4
"""Variables that are tested in place of one operand: the parameters, and those defined nearest before it."""
CONSTANT, OPERATION, OPERAND, TERM = range(4)
"""Kinds of edits, the likelier mistake first: where edits at two lines work, the lower number is reported first."""

_COMPARISONS = {
    "lt": ("le", "gt", "ge"), "le": ("lt", "ge", "gt"), "gt": ("ge", "lt", "le"), "ge": ("gt", "le", "lt"),
    "eq": ("ne",), "ne": ("eq",),
}  # fmt: skip
_OPERATIONS = {"add": "sub", "sub": "add", "min": "max", "max": "min", "div": "rem", "rem": "div"}
_SYMBOLS = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "add": "+", "sub": "-", "mul": "*", "min": "min", "max": "max", "div": "/", "rem": "%",
}  # fmt: skip
_ORDINALS = ("", "first", "second")
_FLOATS = (0.0, 1.0, -float("inf"))
"""Starting values of sums, products and maxima."""
_EDITED = (
    "add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "neg", "setp", "selp", "mov", "cvt", "st", "shl",
)  # fmt: skip
"""Opcodes whose sources are tested; an address or a branch target is none."""
_INSTRUCTION = re.compile(r"^\t(?P<opcode>[a-z][\w.:]*)\s+(?P<operands>[^;{}]*);$")
_OUTSIDE_BRACKETS = re.compile(r",\s*(?![^\[]*\])")


@dataclass(frozen=True)
class Edit:
    """One instruction in place of another."""

    ptx_line: int
    place: Place
    text: str
    """The instruction, without its guard."""
    kind: int
    words: str
    """What is changed, in the source's terms: `33 → 32`, `< → <=`."""
    number: int
    """Which of the edits of this source line with these words."""

    @property
    def key(self) -> tuple[int, str, int]:
        """Identifies the edit in another build of the same source."""
        return self.place.line, self.words, self.number


def edits_of(text: str, functions: Sequence[Function], files: Sequence[str]) -> list[Edit]:
    """Return the edits of all instructions whose line is in one of `files`."""
    lines = text.splitlines()
    found: list[Edit] = []
    counts: dict[tuple[int, str], int] = {}
    for function in functions:
        variables = _Variables(function, lines)
        for ins in (item for item in function.body if isinstance(item, Instruction)):
            matched = _INSTRUCTION.match(lines[ins.line - 1])
            if matched is None or ins.place is None or ins.place.file not in files or ins.place.line <= 0:
                continue
            operands = _OUTSIDE_BRACKETS.split(matched["operands"].strip())
            if len(operands) != len(ins.operands):
                continue
            for kind, opcode, changed, words in _changes(ins, operands, variables):
                number = counts[ins.place.line, words] = counts.get((ins.place.line, words), -1) + 1
                found.append(Edit(ins.line, ins.place, f"{opcode} {', '.join(changed)};", kind, words, number))
    return found


class _Variables:
    """The registers that hold variables of the source: parameters, and those whose definition a debug label follows."""

    def __init__(self, function: Function, lines: Sequence[str]) -> None:
        self.types = function.registers
        self.parameters: list[str] = []
        self.defined: list[tuple[int, str]] = []
        for ins in (item for item in function.body if isinstance(item, Instruction)):
            for reg in ins.written():
                if ins.space == "param" and not ins.opcode.startswith("st"):
                    self.parameters.append(reg.name)
                elif ins.line < len(lines) and lines[ins.line].startswith("$L__tmp"):
                    self.defined.append((ins.line, reg.name))

    def like(self, name: str, line: int) -> list[str]:
        """Return variables of the same type as `name`, nearest first, without itself."""
        before = [other for at, other in reversed(self.defined) if at < line]
        alike = [
            other
            for other in dict.fromkeys((*before, *self.parameters))
            if other != name and self.types.get(other) == self.types.get(name)
        ]
        return alike[:MOST_VARIABLES]


Change = tuple[int, str, list[str], str]


def _changes(ins: Instruction, operands: list[str], variables: _Variables) -> Iterator[Change]:
    """Yield (kind, opcode, operands, words) of everything that is tested in place of an instruction."""
    opcode, name = ins.opcode, ins.opcode.split(".")[0]
    if name not in _EDITED or ins.space == "param" or opcode.startswith("st.") != (name == "st"):
        return
    sources = range(1, len(operands))
    for at in sources:
        for kind, text, words in _instead(ins, at, operands[at], variables):
            yield kind, opcode, [*operands[:at], text, *operands[at + 1 :]], words
    parts = opcode.split(".")
    if name == "setp":
        for other in _COMPARISONS.get(parts[1], ()):
            yield OPERATION, ".".join(["setp", other, *parts[2:]]), operands, _arrow(parts[1], other)
    elif name in _OPERATIONS and not (name in ("div", "rem") and parts[-1].startswith("f")):
        other = _OPERATIONS[name]
        yield OPERATION, ".".join([other, *parts[1:]]), operands, _arrow(name, other)
    if name in ("add", "sub", "mul") and len(operands) == 3 and "wide" not in parts:
        for at in (1, 2):
            if isinstance(ins.operands[at], Reg):
                words = f"without the {_ORDINALS[3 - at]} operand of {_SYMBOLS[name]}"
                yield TERM, f"mov.{parts[-1]}", [operands[0], operands[at]], words


def _instead(ins: Instruction, at: int, text: str, variables: _Variables) -> Iterator[tuple[int, str, str]]:
    """Yield (kind, operand, words) of what is tested in place of one source operand."""
    operand = ins.operands[at]
    if isinstance(operand, Imm):
        steps = (operand.value - 1, operand.value + 1)
        for value in dict.fromkeys((*steps, 0, 1)):
            if value != operand.value:
                yield CONSTANT, str(value), f"{operand.value} → {value}"
    elif isinstance(operand, FloatImm) and operand.width == 32:
        held = struct.unpack("<f", operand.bits.to_bytes(4, "little"))[0]
        for number in (*_FLOATS, -held):
            bits = struct.unpack("<I", struct.pack("<f", number))[0]
            if bits != operand.bits:
                yield CONSTANT, f"0f{bits:08X}", f"{held:g} → {number:g}"
    elif isinstance(operand, Reg) and not ins.opcode.startswith("mov"):  # copies: their uses are tested
        for other in variables.like(operand.name, ins.line):
            yield OPERAND, other, "another variable in place of an operand"


def _arrow(was: str, becomes: str) -> str:
    return f"{_SYMBOLS[was]} → {_SYMBOLS[becomes]}"
