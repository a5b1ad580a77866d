"""One PTX text with all edits of a kernel: a number in device memory chooses the one that takes effect.

So a kernel is compiled once for all edits, and trying one is a launch.
"""

import re
from collections import defaultdict
from collections.abc import Sequence

from .edits import Edit

CHOICE = "weft_edit"
"""The variable that chooses: 0 is the kernel as it is, n the n-th edit."""

_VARIABLE = f".global .align 4 .u32 {CHOICE};"
_READ_CHOICE = (
    "\t.reg .b32 %weft_c, %weft_n;",
    "\t.reg .pred %weft_p, %weft_q;",
    "\t.reg .b64 %weft_a;",
    f"\tmov.u64 %weft_a, {CHOICE};",
    "\tld.global.u32 %weft_c, [%weft_a];",
)
_HEAD = re.compile(r"^(\.visible |\.weak )?\.(entry|func)\b")


def switched(text: str, edits: Sequence[Edit]) -> str:
    """Return the PTX with all edits; the n-th, counted from 1, takes effect if the variable is n."""
    numbers: defaultdict[int, list[int]] = defaultdict(list)
    for number, edit in enumerate(edits, 1):
        numbers[edit.ptx_line].append(number)
    out: list[str] = []
    body_follows = False
    for at, line in enumerate(text.splitlines(), 1):
        if at in numbers:
            out += _chosen(line.strip(), [(number, edits[number - 1].text) for number in numbers[at]])
            continue
        out.append(line)
        if line.startswith(".address_size"):
            out.append(_VARIABLE)
        if _HEAD.match(line):
            body_follows = True
        if line == "{" and body_follows:
            out += _READ_CHOICE
            body_follows = False
    return "\n".join(out) + "\n"


def _chosen(line: str, edits: Sequence[tuple[int, str]]) -> list[str]:
    """Return the instruction, skipped if one of its edits is chosen, then each edit. Their numbers are consecutive."""
    first, count = edits[0][0], len(edits)
    out = [
        f"\tsub.u32 %weft_n, %weft_c, {first};",
        f"\tsetp.lt.u32 %weft_q, %weft_n, {count};",
        f"\t@!%weft_q {line}",
    ]
    for number, text in edits:
        out += [f"\tsetp.eq.u32 %weft_p, %weft_c, {number};", f"\t@%weft_p {text}"]
    return out
