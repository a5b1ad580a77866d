"""Completes shapes and scales that host code of attention does not state, by the usual names.

A host function often reads the shape of q and assumes those of k and v; `main()` allocates bytes. Each assumption made
here is a note with the lines. Files that do not name q, k and v are not changed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from weft.attention.words import array_named

from .size_roles import CAUSAL, SCALES, size_role

_ARRAYS = ("q", "k", "v", "o")

_SHAPES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "q": (("B", "H", "S", "D"), ("B", "H", "SQ", "D"), ("BH", "S", "D"), ("BH", "SQ", "D"), ("S", "D"), ("SQ", "D")),
    "k": (
        ("B", "HKV", "S", "D"),
        ("B", "HKV", "SKV", "D"),
        ("B", "H", "SKV", "D"),
        ("B", "H", "S", "D"),
        ("BH", "SKV", "D"),
        ("BH", "S", "D"),
        ("SKV", "D"),
        ("S", "D"),
    ),
}
"""Shapes of q (and o), and of k (and v), by the sizes that the host names; the first with all its sizes is used."""
_ARRAY = re.compile(r"(?P<role>in|out|inout|workspace)\s+(?P<name>\w+) : ")


@dataclass
class Unsaid:
    """What was completed: shapes and values as `weft import --shape` and `--value` would give them, and notes."""

    shapes: dict[str, list[str]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def _by_role(arrays: Iterable[str]) -> dict[str, str]:
    """Return role → array: `q` itself before `dq`, which may be a device's q or a gradient."""
    found: dict[str, str] = {}
    for name in arrays:
        role = array_named(name, _ARRAYS)
        if role and (role not in found or len(name) < len(found[role])):
            found[role] = name
    return found


@dataclass(frozen=True)
class Said:
    """What host code states, by the names of the lines."""

    arrays: Mapping[str, Sequence[str] | None]
    """Shapes; None where the shape is not known."""
    numbers: Mapping[str, bool]
    """The numbers that the host function takes, and whether each is floating-point."""
    values: Mapping[str, str]
    """The defaults of those numbers, where there is one."""
    constants: Mapping[str, str]
    """Constants of the file → how the lines spell each."""
    read: frozenset[str]
    """Sizes that are read by something other than a shape."""


def complete(said: Said) -> Unsaid:
    """Return the shapes and values that follow from names."""
    found, arrays, numbers, values = Unsaid(), said.arrays, said.numbers, said.values
    by_role = _by_role(arrays)
    if not {"q", "k", "v"} <= set(by_role):
        return found
    sizes = {size_role(name): spelled for name, spelled in said.constants.items() if size_role(name)}
    sizes |= {size_role(name): name for name in numbers if not numbers[name] and size_role(name)}
    shapes = {role: list(shape) for role, name in by_role.items() if (shape := arrays[name]) is not None}
    for role, first in (("k", "q"), ("v", "k"), ("o", "q")):
        if role in shapes and first in shapes and len(shapes[role]) <= len(shapes[first]) > 1:
            tied = _tied(shapes[role], shapes[first], said.read)
            if tied != shapes[role]:
                shapes[role] = found.shapes[by_role[role]] = tied
                spelled = ", ".join(tied)
                found.notes.append(
                    f"{by_role[role]} is assumed to have the shape [{spelled}]: the host reads only a part of it"
                )
    for role in ("q", "k", "v", "o"):
        name = by_role.get(role, "")
        if not name or role in shapes:
            continue
        like = next((other for other in {"q": "okv", "k": "vqo", "v": "kqo", "o": "qkv"}[role] if other in shapes), "")
        named = next((row for row in _SHAPES["q" if role in "qo" else "k"] if all(each in sizes for each in row)), None)
        if named is not None:
            shapes[role] = [sizes[each] for each in named]
            found.notes.append(f"{name} is assumed to have the shape [{', '.join(shapes[role])}], by their names")
        elif like:
            shapes[role] = shapes[like]
            found.notes.append(f"{name} is assumed to have the shape of {by_role[like]}: the host does not read it")
        else:
            continue
        found.shapes[name] = shapes[role]
    last = shapes["q"][-1] if "q" in shapes else ""
    for name, floating in numbers.items():
        if floating and SCALES.fullmatch(name) and last and not _known(values.get(name, "")):
            found.values[name] = f"1 / sqrt({last})"
            found.notes.append(f"{name} is assumed to be 1 / sqrt({last}), the scale of attention")
        elif not floating and CAUSAL.fullmatch(name) and name not in values:
            found.values[name] = "0"
        elif not floating and size_role(name) and name not in values:
            found.values[name] = _DEFAULTS[size_role(name)]
    return found


def _tied(shape: Sequence[str], first: Sequence[str], read: frozenset[str]) -> list[str]:
    """Return the shape with sizes that nothing reads replaced by those of the other array."""
    padded = [*shape, *[""] * (len(first) - len(shape))]
    return [
        size if size in read or not re.fullmatch(r"\w*", size) else other
        for size, other in zip(padded, first, strict=True)
    ]


_DEFAULTS = {"B": "2", "BH": "4", "H": "2", "HKV": "2", "S": "33", "SQ": "33", "SKV": "33", "D": "64"}


def _known(value: str) -> bool:
    """Whether a default is a scale: None, 0 and negative numbers mean `not given`."""
    return re.fullmatch(r"\d*\.?\d+(e-?\d+)?f?", value) is not None and float(value.rstrip("f")) > 0


def as_task(rows: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines with the roles and the mask of the tasks, and notes."""
    arrays = {match["name"]: match for row in rows if (match := _ARRAY.match(row))}
    names = _by_role(arrays)
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
