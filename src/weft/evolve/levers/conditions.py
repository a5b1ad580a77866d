"""Conditions of `#if` that depend only on levers, evaluated without a preprocessor.

#if STAGES >= 2 && COPY_async      with STAGES=1 COPY=async  →  False
#if __CUDA_ARCH__ >= 800                                     →  ignored
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.core.errors import UsageError
from weft.engines.expressions import Expression
from weft.engines.launch_records import LeverLine

DIRECTIVE = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b\s*(.*?)\s*(?://.*)?$")
NAME = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True)
class Directive:
    """A line that opens, divides or closes a branch."""

    line: int
    keyword: str
    condition: str


def directives(source: str) -> Iterator[Directive]:
    """Yield the directives of a file, in order."""
    for line, text in enumerate(source.splitlines(), 1):
        match = DIRECTIVE.match(text)
        if match:
            yield Directive(line, match[1], match[2])


def macros_of(levers: Sequence[LeverLine], values: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers that the compiler sees: levers of numbers, and the words of the others as 1 or 0."""
    macros: dict[str, int] = {}
    for lever in levers:
        value = values[lever.name]
        if lever.words:
            macros |= {word: int(each == value) for word, each in lever.words.items()}
        else:
            macros[lever.name] = int(value)
    return macros


def decided(condition: str, macros: Mapping[str, int]) -> bool | None:
    """Return the value of a condition, or None if it uses other names than these, or none."""
    names = set(NAME.findall(condition))
    if not names or not names <= set(macros):
        return None
    # Without brackets, ` || ` has the lowest precedence: check_directives refuses other forms.
    return any(all(_truth(term, macros) for term in either.split("&&")) for either in condition.split("||"))


def _truth(term: str, macros: Mapping[str, int]) -> bool:
    stripped = term.strip()
    if stripped.startswith("!"):
        return not _truth(stripped[1:], macros)
    return bool(Expression.parse(stripped).value(macros))


def check_directives(source: str, file: str, levers: Sequence[LeverLine]) -> None:
    """Refuse misleading conditions: misspelt words, and tests of the name of a lever that has words."""
    words = {word for lever in levers for word in lever.words}
    of_words = {lever.name: lever for lever in levers if lever.words}
    values = macros_of(levers, {lever.name: lever.default for lever in levers})
    for directive in directives(source):
        place = f"{file}:{directive.line}"
        for name in NAME.findall(directive.condition):
            owner = next((lever for lever in of_words if name == lever or name.startswith(f"{lever}_")), None)
            if owner is not None and name not in words:
                known = ", ".join(of_words[owner].words)
                raise UsageError(f"{place}: {name} is not a macro of lever {owner}; test one of {known}")
            if directive.keyword in ("ifdef", "ifndef") and (name in values or name in of_words):
                raise UsageError(f"{place}: {name} is always defined; test its value with #if")
        if directive.keyword in ("if", "elif"):
            try:
                decided(directive.condition, values)
            except UsageError as error:
                raise UsageError(f"{place}: a condition on levers has !, &&, || and formulas only: {error}") from error
