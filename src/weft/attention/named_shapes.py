"""Shapes and scales of attention that nothing states, by the usual names of arrays and sizes.

A host function often reads the shape of q and assumes those of k and v; `main()` allocates bytes; a kernel alone has
only parameters. Each assumption is a note. Files that do not name q, k and v get none.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .size_roles import CAUSAL, SCALES, size_role
from .words import array_named

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


@dataclass
class Unsaid:
    """What was completed: shapes and values as `weft import --shape` and `--value` would give them, and notes."""

    shapes: dict[str, list[str]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def by_role(arrays: Iterable[str]) -> dict[str, str]:
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
    names = by_role(arrays)
    if not {"q", "k", "v"} <= set(names):
        return found
    sizes = {size_role(name): spelled for name, spelled in said.constants.items() if size_role(name)}
    sizes |= {size_role(name): name for name in numbers if not numbers[name] and size_role(name)}
    shapes = {role: list(shape) for role, name in names.items() if (shape := arrays[name]) is not None}
    for role, first in (("k", "q"), ("v", "k"), ("o", "q")):
        if role in shapes and first in shapes and len(shapes[role]) <= len(shapes[first]) > 1:
            tied = _tied(shapes[role], shapes[first], said.read)
            if tied != shapes[role]:
                shapes[role] = found.shapes[names[role]] = tied
                spelled = ", ".join(tied)
                found.notes.append(
                    f"{names[role]} is assumed to have the shape [{spelled}]: the host reads only a part of it"
                )
    for role in ("q", "k", "v", "o"):
        name = names.get(role, "")
        if not name or role in shapes:
            continue
        like = next((other for other in {"q": "okv", "k": "vqo", "v": "kqo", "o": "qkv"}[role] if other in shapes), "")
        named = next((row for row in _SHAPES["q" if role in "qo" else "k"] if all(each in sizes for each in row)), None)
        if named is not None:
            shapes[role] = [sizes[each] for each in named]
            found.notes.append(f"{name} is assumed to have the shape [{', '.join(shapes[role])}], by their names")
        elif like:
            shapes[role] = shapes[like]
            found.notes.append(f"{name} is assumed to have the shape of {names[like]}: the host does not read it")
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
