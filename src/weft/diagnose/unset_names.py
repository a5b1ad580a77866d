"""Variables of a CUDA text that are read before anything gives them a value: `float l; … l += p;`.

The compiler may take any value for such a variable. In a build with optimisations it is often 0 or the value of another
one, so a run shows wrong numbers somewhere else, or nothing. The text shows the mistake: the first mention of the
variable changes it, or computes something from it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from weft.core.commas import split_at_commas
from weft.core.records import Place
from weft.core.statements import Statements, statements_of

_DECLARED = re.compile(
    r"\s*(?:float[24]?|double|(?:unsigned\s+)?int|unsigned|u?int(?:32|64)_t|(?:__)?half2?|__nv_bfloat16(?:2)?)\s+"
    r"(?P<names>[A-Za-z_][^;(){}]*(?:\{\s*\})?[^;(){}]*);"
)
_NAME = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
_SUBSCRIPTS = re.compile(r"(?:\s*\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\])+")
_SETS = re.compile(r"\s*=(?!=)")
_CHANGES = re.compile(r"\s*(?:(?:[-+*/%|&^]|<<|>>)=|\+\+|--)")
_FUNCTION = re.compile(r"\)[^(){};]*\{$")
"""The head of a function, a loop or a condition: not that of a struct, whose members a constructor sets."""
_BLOCK = re.compile(r"\s*(?:else|do)?\s*\{")
_CONDITION = re.compile(r"\s*(?:if|else)\b")
_READERS = frozenset(
    (
        *("", "if", "while", "for", "return", "float", "int", "max", "min", "fmaxf", "fminf", "fmaf", "fabsf", "expf"),
        *("exp2f", "logf", "log2f", "__expf", "__logf", "sqrtf", "rsqrtf", "__fmul_rn", "__fadd_rn", "__fdividef"),
    )
)
"""Calls, casts and brackets that read their arguments: other functions may take a reference, and set it."""
MOST_LINES = 12
"""Of a statement that are read."""


@dataclass(frozen=True)
class Unset:
    """A variable without a value, where it is declared, and where it is first read."""

    name: str
    declared: Place
    read: Place
    set_after: Place | None
    """The statement behind the read that gives it the value, if there is one: they are in the wrong order."""


def unset_names(path: str) -> Iterator[Unset]:
    """Yield the variables of a file that are read before they are set."""
    text = statements_of(path)
    for number in range(1, len(text.lines) + 1):
        found = _DECLARED.match(text.code(number))
        around = text.chain(number)[:-1]
        if found is None or not _is_in_function(text, around):
            continue
        for each in split_at_commas(found["names"], "([{", ")]}"):
            name = _NAME.match(each)
            line = _read_at(text, name["name"], number, found.end(), around) if name is not None else 0
            if name is not None and line:
                later = _set_after(text, name["name"], number, line)
                yield Unset(name["name"], Place(path, number), Place(path, line), Place(path, later) if later else None)


def _is_in_function(text: Statements, around: tuple[int, ...]) -> bool:
    for at in reversed(around):
        lines = " ".join(text.code(line) for line in range(at, at + MOST_LINES))
        head = lines[: lines.find("{") + 1]
        if not _BLOCK.fullmatch(head):
            return _FUNCTION.search(head) is not None
    return False


def _read_at(text: Statements, name: str, declared: int, end: int, around: tuple[int, ...]) -> int:
    """Return the line of the first mention, if it reads the variable; else 0."""
    mention = re.compile(rf"(?<![\w.>]){name}\b(?!\s*\()")
    for number in range(declared, len(text.lines) + 1):
        code = text.code(number)[end if number == declared else 0 :]
        if number > declared and text.chain(number)[: len(around)] != around:
            return 0
        found = mention.search(code) if not code.lstrip().startswith("#") else None
        if found is not None:
            start = max(text.chain(number)[-1], declared + 1) if number > declared else number
            before = " ".join(text.code(at) for at in range(start, number)) + code[: found.start()]
            rest = code[found.end() :] + " ".join(text.code(at) for at in range(number + 1, number + MOST_LINES))
            inside = text.chain(number)[len(around) :]
            sure = not any(_CONDITION.match(text.lines[at - 1]) for at in inside)
            return number if _reads(before, rest.partition(";")[0], mention, sure=sure) else 0
    return 0


def _set_after(text: Statements, name: str, declared: int, read: int) -> int:
    """Return the line behind the read, in the same block, that sets what was read; else 0. A variable from outside this
    block keeps its value for the next iteration, so it lacks its first value; an element of an array is set again.
    """
    block = text.chain(read)[:-1]
    of_this_block = text.chain(declared)[:-1] == block
    mentioned = re.search(rf"(?<![\w.>]){name}\b({_SUBSCRIPTS.pattern})?", text.code(read))
    subscripts = mentioned[1] if mentioned is not None else None
    if not of_this_block and subscripts is None:
        return 0
    sets = re.compile(rf"\s*{name}{re.escape(subscripts or '')}{_SETS.pattern}")
    behind = (line for line in range(read + 1, read + MOST_LINES) if text.chain(line)[:-1] == block)
    return next((line for line in behind if sets.match(text.code(line))), 0)


def _reads(before: str, after: str, mention: re.Pattern[str], *, sure: bool) -> bool:
    """Whether a mention between these texts reads a value. One that does not change the variable must be `sure` to run:
    a loop may set it first.
    """
    if "asm" in before or re.search(r"(?<!&)&\s*$", before):
        return False
    behind = _without_subscripts(after)
    if _CHANGES.match(behind) or re.search(r"(?:\+\+|--)\s*$", before):
        return True
    if _SETS.match(behind):  # the next in `a[0] = a[1] = 0` is set as well
        return any(not _SETS.match(_without_subscripts(behind[each.end() :])) for each in mention.finditer(behind))
    opened = _open_call(before)
    assigned = re.search(r"(?<![=!<>])=(?!=)", before) or re.match(r"\s*return\b", before)
    return sure and bool(assigned) and (opened is None or opened in _READERS)


def _without_subscripts(text: str) -> str:
    return _SUBSCRIPTS.sub("", text, count=1) if text.lstrip().startswith("[") else text


def _open_call(before: str) -> str | None:
    """Return the name of the innermost call that is still open, empty for brackets; None without one."""
    depth = 0
    for at in range(len(before) - 1, -1, -1):
        depth += (before[at] == ")") - (before[at] == "(")
        if depth < 0:
            name = re.search(r"(\w*>?)\s*$", before[:at])
            return name[1] if name is not None else ""
    return None
