"""The line of the text that gives a variable its first value."""

import re
from collections.abc import Callable

from weft.core.records import Place, inlining_chain
from weft.core.statements import statements_of

_WORD = re.compile(r"[A-Za-z_]\w*")
_GIVEN = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?:\s*\[[^\]]*\])*\s*=(?!=)\s*((?:[^;,({]|\([^;]*|\{[^}]*\})*)")
"""A name, and what it is given: up to the next name of a declaration, or the end."""
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?")
"""Of floating point: an integer is a bound or a step."""


def start_line(site: Place | None, is_start: Callable[[float], bool], *, steps: int = 3) -> Place | None:
    """Return the nearest line above that gives such a number to a name of the line that computes the value; else to a
    name that one of these is computed from, and so on in so many steps. An array without numbers starts at 0, if no
    name is given a number.
    """
    return _start_line(site, is_start, _constants, steps) or _start_line(site, is_start, _blank, steps)


def _start_line(
    site: Place | None, is_start: Callable[[float], bool], numbers: Callable[[str], list[float]], steps: int
) -> Place | None:
    for at in inlining_chain(site):
        text = statements_of(at.file)
        names = set(_WORD.findall(text.code(at.line)))
        for _ in range(steps):
            fresh: set[str] = set()
            for number in range(at.line - 1, 0, -1):
                for given in _GIVEN.finditer(text.code(number)):
                    if given[1] in names and any(map(is_start, numbers(given[2]))):
                        return Place(at.file, number)
                    fresh |= set(_WORD.findall(given[2])) if given[1] in names else set()
            names |= fresh
    return None


def _blank(text: str) -> list[float]:
    return [0.0] if text.replace(" ", "") == "{}" else []


def definition_line(site: Place | None, word: str) -> Place | None:
    """Return the nearest line above that computes a name of this line from `word`, if the line itself has no `word`."""
    for at in inlining_chain(site):
        text = statements_of(at.file)
        names = set(_WORD.findall(text.code(at.line)))
        for number in range(at.line - 1, 0, -1) if word not in names else ():
            for given in _GIVEN.finditer(text.code(number)):
                if given[1] in names and word in _WORD.findall(given[2]):
                    return Place(at.file, number)
    return None


def _constants(text: str) -> list[float]:
    """Return the numbers of an expression that is a constant."""
    if "tl." in text:
        return [*map(float, _NUMBER.findall(text)), *([0.0] if "tl.zeros(" in text else [])]
    items = text.strip(" {}").split(",") if text.startswith("{") else [text]
    found = [(_NUMBER.match(item.strip()), item.strip()) for item in items]
    return [float(number[0]) for number, item in found if number and item[number.end() :] in ("", "f")]
