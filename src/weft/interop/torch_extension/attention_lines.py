"""Gives the lines of attention the roles and the mask of the tasks. Files without q, k and v keep theirs."""

import re
from collections.abc import Mapping, Sequence

from weft.attention.named_shapes import by_role
from weft.attention.size_roles import CAUSAL

_ARRAY = re.compile(r"(?P<role>in|out|inout|workspace)\s+(?P<name>\w+) : ")


def as_task(rows: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines with the roles and the mask of the tasks, and notes."""
    arrays = {match["name"]: match for row in rows if (match := _ARRAY.match(row))}
    names = by_role(arrays)
    if not {"q", "k", "v"} <= set(names):
        return list(rows), []
    notes: list[str] = []
    done = _lever("\n".join(rows), names, notes).split("\n")
    if all(arrays[name]["role"] == "workspace" for name in names.values()):
        # cudaMalloc of a program: whether it is an input or an output is decided by its name
        for role, name in names.items():
            kind, start = ("out      ", "") if role == "o" else ("in       ", " = normal")
            done = [re.sub(rf"^workspace ({name} : .*)", rf"{kind} \1{start}", row) for row in done]
    return done, notes


def _words(text: str, names: Mapping[str, str]) -> str:
    """Replace names in all rows, except keywords: an array may be called `out`."""
    word = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    rows = (row.partition(" ") for row in text.split("\n"))
    return "\n".join(key + space + word.sub(lambda match: names[match[0]], rest) for key, space, rest in rows)


def _lever(text: str, names: Mapping[str, str], notes: list[str]) -> str:
    """Replace a parameter of the host function that selects the mask by the macro that the tasks set."""
    sizes = re.search(r"^sizes .*$", text, re.MULTILINE)
    found = [name for name in re.findall(r"(\w+)=", sizes[0] if sizes else "") if CAUSAL.fullmatch(name)]
    if len(found) != 1 or (found[0] != "CAUSAL" and re.search(r"\bCAUSAL\b", text)):
        return text
    text = re.sub(rf" {found[0]}=\d+", "", text, count=1)
    text = re.sub(r"^sizes *\n", "", text, flags=re.MULTILINE)
    text = _words(text, {found[0]: "CAUSAL"})
    added = ["lever     CAUSAL = 0 in 0, 1"]
    shape = r" : \w+\[[^\]]*?(\w+), \w+\]"
    q, k = (re.search(rf"^\w+ +{names[role]}{shape}", text, re.MULTILINE) for role in "qk")
    if q and k and q[1] != k[1]:
        added.append(f"require   {q[1]} == {k[1]} when CAUSAL : the alignment of the causal mask is not known")
        notes.append(f"{found[0]} is judged only where {q[1]} = {k[1]}: the alignment of the mask is not known")
    return _before_arrays(text, added)


def _before_arrays(text: str, added: Sequence[str]) -> str:
    rows = text.split("\n")
    at = next(number for number, row in enumerate(rows) if not row.startswith(("sizes", "define")))
    return "\n".join([*rows[:at], *added, *rows[at:]])


def before_launch(rows: Sequence[str], added: Sequence[str]) -> list[str]:
    """Return the rows with these before the first launch."""
    at = next((number for number, row in enumerate(rows) if row.startswith("launch")), len(rows))
    return [*rows[:at], *added, *rows[at:]]
