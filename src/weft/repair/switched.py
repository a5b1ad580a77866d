"""One PTX text with all edits of a kernel: a number in device memory chooses the one that takes effect.

So a kernel is compiled once for all edits, and trying one is a launch. An operand is chosen before its instruction,
which stands there once: a load or a store with its checks is far more code for the host than a copy of a register.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from .edits import Edit
from .templates import AFTER, CHOSEN, GUARD, INSTEAD, TEMP, Change

CHOICE = "weft_edit"
"""The variable that chooses: 0 is the kernel as it is, n the n-th edit."""

_VARIABLE = f".global .align 4 .u32 {CHOICE};"
_READ_CHOICE = (
    "\t.reg .b32 %weft_c, %weft_n;",
    "\t.reg .pred %weft_p, %weft_q, %weft_g;",
    "\t.reg .b64 %weft_a;",
    f"\tmov.u64 %weft_a, {CHOICE};",
    "\tld.global.u32 %weft_c, [%weft_a];",
)
_HEAD = re.compile(r"^(\.visible |\.weak )?\.(entry|func)\b")
_OPERANDS = re.compile(r",\s*(?![^\[]*\])")

Chosen = tuple[int, Change]
"""The number of an edit, and what it changes."""


def switched(text: str, edits: Sequence[Edit]) -> str:
    """Return the PTX with all edits, which are in the order of `Edit.order`; the n-th, counted from 1, takes effect if
    the variable is n.
    """
    chosen: defaultdict[int, list[Chosen]] = defaultdict(list)
    for number, edit in enumerate(edits, 1):
        for change in edit.changes:
            chosen[change.ptx_line].append((number, change))
    lines = text.splitlines()
    with_edits = _bodies_with(lines, chosen)
    out: list[str] = []
    for at, line in enumerate(lines, 1):
        if at in chosen:
            out += _edited(line.strip(), chosen[at], f"%weft_t{at}_")
            continue
        out.append(line)
        if line.startswith(".address_size"):
            out.append(_VARIABLE)
        if at in with_edits:
            out += _READ_CHOICE
            out += [f"\t.reg .{kind} {name};" for name, kind in with_edits[at]]
    return "\n".join(out) + "\n"


def _bodies_with(lines: Sequence[str], chosen: dict[int, list[Chosen]]) -> dict[int, list[tuple[str, str]]]:
    """Return the line of the opening brace of each body with edits → the names and types of its substitutes."""
    found: dict[int, list[tuple[str, str]]] = {}
    opened, awaits = 0, False
    for at, line in enumerate(lines, 1):
        if _HEAD.match(line):
            awaits = True
        elif line == "{" and awaits:
            opened, awaits = at, False
        elif at in chosen:
            types = {change.at: change.type for _, change in chosen[at] if change.at >= 0}
            found.setdefault(opened, []).extend((f"%weft_t{at}_{operand}", kind) for operand, kind in types.items())
    return found


def _edited(line: str, chosen: Sequence[Chosen], temporary: str) -> list[str]:
    """Return the instruction with its substituted operands, skipped if an edit stands in its place, and those after."""
    opcode, _, rest = line.rstrip(";").partition("\t") if "\t" in line else line.rstrip(";").partition(" ")
    operands = _OPERANDS.split(rest.strip())
    out: list[str] = []
    for at in sorted({change.at for _, change in chosen if change.at >= 0}):
        name = f"{temporary}{at}"
        here = [(number, change) for number, change in chosen if change.at == at]
        out.append(f"\tmov.{here[0][1].type} {name}, {operands[at]};")
        operands[at] = name
        for number, change in here:
            out += _if_chosen(number, change.text.replace(TEMP, name))
    whole = f"{opcode.strip()} {', '.join(operands)};"
    instead = [(number, change) for number, change in chosen if change.at == INSTEAD]
    if instead:
        out += [
            f"\tsub.u32 %weft_n, %weft_c, {instead[0][0]};",
            f"\tsetp.lt.u32 %weft_q, %weft_n, {len(instead)};",
        ]
    out.append(f"\t@!%weft_q {whole}" if instead else f"\t{whole}")
    for number, change in (*instead, *((n, change) for n, change in chosen if change.at == AFTER)):
        text = change.text.replace(CHOSEN, "%weft_p").replace(GUARD, "%weft_g")
        out += [f"\tsetp.eq.u32 %weft_p, %weft_c, {number};", *_instructions(text)]
    return out


def _if_chosen(number: int, text: str) -> list[str]:
    return [f"\tsetp.eq.u32 %weft_p, %weft_c, {number};", *(f"\t@%weft_p {each}" for each in _each(text))]


def _instructions(text: str) -> list[str]:
    return [f"\t{each}" for each in _each(text)]


def _each(text: str) -> Iterator[str]:
    return (f"{each.strip()};" for each in text.split(";") if each.strip())
