"""Edits of a CUDA source that no instruction of the -G build shows: two statements in the other order, another constant
that has a name.

The -G build computes values in registers that are written once, so a statement cannot be moved behind its neighbour
there, and a `constexpr` is folded into the instructions of every line that uses it. Each text is compiled by itself.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from weft.core.errors import Unsupported

from .rewrite import line_edits
from .templates import Kind

_COMMENT = re.compile(r"//.*")
_STATEMENT = re.compile(r"\s*(?!return\b|break\b|continue\b|else\b|case\b|using\b|typedef\b|#)[\w*(][^{}]*;\s*")
_CONTROL = re.compile(r"\s*(?:if|for|while|switch|do)\b")
_WORD = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^=]*\])?\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)")
_NAMED = re.compile(
    r"\s*(?:static\s+)?constexpr\b[^=;{}()]*?(?P<name>[A-Za-z_]\w*)\s*=(?!=)|\s*#\s*define\s+(?P<macro>[A-Za-z_]\w*)\s"
)
_DECLARATION = re.compile(r"\s*(?:static\s+)?(?:const\w*|int|float|unsigned|size_t|auto|bool|half|double)\b")
_INTEGER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_OTHER_SIGN = {"/": "%", "%": "/", "+": "-", "-": "+"}
_SIGN = re.compile(r"(?<=[\w)\]] )[-+/%](?= [\w(])")
"""A binary operator, with a space on both sides."""
_LONGEST = 5
"""Lines that a statement may have."""
_ENDS = re.compile(r"[;{}]\s*(?://.*)?$|\)\s*(?:#.*)?$")
"""A line that ends a statement; in Python a call."""
_BARRIERS = ("__syncthreads", "__syncwarp", "asm", "commit", "wait", "arrive")
"""Words of statements whose order racecheck judges."""


@dataclass(frozen=True)
class SourceEdit:
    """A changed text of the file."""

    line: int
    words: str
    kind: Kind
    text: str
    used_at: tuple[int, ...]
    """Lines that show how suspicious it is: its own, and those that use the constant."""


def source_edits(text: str) -> Iterator[SourceEdit]:
    """Yield all edits, in the order of the file."""
    lines = text.splitlines(keepends=True)
    bare = [_COMMENT.sub("", line).rstrip("\r\n") for line in lines]
    for at in range(len(bare) - 1):
        if _may_change_places(bare[at], bare[at + 1]):
            changed = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
            words = f"exchange lines {at + 1} and {at + 2}"
            yield SourceEdit(at + 1, words, Kind.ORDER, "".join(changed), (at + 1, at + 2))
    for at, line in enumerate(bare):
        named = _NAMED.match(line)
        if named is None:
            continue
        name = re.compile(rf"\b{named['name'] or named['macro']}\b")
        users = tuple(number for number, other in enumerate(bare, 1) if number != at + 1 and name.search(other))
        for number in _INTEGER.finditer(line, named.end()) if users else ():
            for value in (int(number[0]) - 1, int(number[0]) + 1):
                new = lines[at][: number.start()] + str(value) + lines[at][number.end() :]
                changed = [*lines[:at], new, *lines[at + 1 :]]
                yield SourceEdit(at + 1, f"{number[0]} → {value}", Kind.NAMED, "".join(changed), (at + 1, *users))
        for sign in _SIGN.finditer(line, named.end()) if users else ():
            new = lines[at][: sign.start()] + _OTHER_SIGN[sign[0]] + lines[at][sign.end() :]
            words = f"{sign[0]} → {_OTHER_SIGN[sign[0]]}"
            yield SourceEdit(at + 1, words, Kind.NAMED, "".join([*lines[:at], new, *lines[at + 1 :]]), (at + 1, *users))


def edits_of_lines(text: str, path: str, numbers: Sequence[int]) -> Iterator[SourceEdit]:
    """Yield small edits of these lines, in their order."""
    for number in dict.fromkeys(numbers):
        try:
            found = line_edits(text, path, number)
        except Unsupported:  # no C++ that can be read: nothing is tested
            return
        yield from (SourceEdit(number, words, Kind.NAMED, changed, (number,)) for words, changed in found)


def barrier_edits(text: str, number: int, barriers: Sequence[str]) -> Iterator[SourceEdit]:
    """Yield texts with one of the barriers behind the statement at a line."""
    lines = text.splitlines(keepends=True)
    ends = (at for at in range(number, min(number + _LONGEST, len(lines) + 1)) if _ENDS.search(lines[at - 1]))
    end = next(ends, number)
    first = lines[number - 1]
    space = first[: len(first) - len(first.lstrip())]
    for barrier in barriers:
        changed = "".join([*lines[:end], f"{space}{barrier}\n", *lines[end:]])
        yield SourceEdit(number, f"add {barrier} after line {end}", Kind.BARRIER, changed, (number,))


def _may_change_places(first: str, second: str) -> bool:
    """Whether both are complete statements at the same depth, and one uses what the other assigns."""
    depth = [len(line) - len(line.lstrip()) for line in (first, second)]
    if depth[0] != depth[1] or any(_CONTROL.match(line) or not _STATEMENT.fullmatch(line) for line in (first, second)):
        return False
    if any(word in line for line in (first, second) for word in _BARRIERS):
        return False
    if _DECLARATION.match(first) and _uses(second, first):  # the name is not known before it
        return False
    return _uses(second, first) or _uses(first, second)


def _uses(reader: str, writer: str) -> bool:
    return not set(_WORD.findall(reader)).isdisjoint(_ASSIGNED.findall(writer))


def by_suspicion(edits: Iterator[SourceEdit], suspected: Sequence[int]) -> list[SourceEdit]:
    """Return exchanged statements and constants of suspected lines in turn, the most suspicious first."""
    places = {line: place for place, line in reversed(list(enumerate(suspected)))}
    last = len(suspected)
    found = [(min(places.get(at, last) for at in edit.used_at), edit) for edit in edits]
    found.sort(key=lambda each: each[0])
    order = [edit for _, edit in found if edit.kind is Kind.ORDER]
    named = [edit for place, edit in found if edit.kind is Kind.NAMED and place < last]
    return [edit for edit in chain.from_iterable(zip_longest(order, named)) if edit is not None]
