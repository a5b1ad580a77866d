"""Functions that read and rewrite one line by its tokens; the operators use them."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from .records import Line, Token

Edits = Iterator[str]
"""The line's text after the edit, one for each place where the edit applies."""
Change = Callable[[Line], Edits]

TYPES = frozenset("const constexpr static float int unsigned half size_t bool auto typename T ELEMENT Code".split())
FLOAT = re.compile(r"\d*\.\d*(?:e[+-]?\d+)?f?|0x[\da-f.]+p[+-]?\d+f?", re.IGNORECASE)
INTEGER = re.compile(r"\d+")


def put(line: Line, start: int, end: int, new: str) -> str:
    """Return the line with `new` in place of columns start to end."""
    return line.text[:start] + new + line.text[end:]


def text_of(line: Line, first: int, last: int) -> str:
    """Return the text of tokens first to last, both included."""
    return line.text[line.tokens[first].start : line.tokens[last].end]


def at(line: Line, index: int) -> str:
    """Return the text of a token; empty beyond the ends."""
    return line.tokens[index].text if 0 <= index < len(line.tokens) else ""


def touchable(line: Line) -> Iterator[tuple[int, Token]]:
    """Yield the tokens of expressions: not of template arguments or array sizes."""
    return ((index, token) for index, token in enumerate(line.tokens) if token.where in ("code", "index"))


def exchange(table: Mapping[str, str], *, call: bool = False) -> Change:
    """Return a change that replaces words; with `call` only where a bracket follows."""

    def change(line: Line) -> Edits:
        for index, token in touchable(line):
            follows = at(line, index + 1)
            if token.kind == "word" and token.text in table and follows != "=" and (not call or follows == "("):
                yield put(line, token.start, token.end, table[token.text])

    return change


def symbols(table: Mapping[str, str]) -> Change:
    """Return a change that replaces punctuation in the body of a statement, not in the head of a loop."""

    def change(line: Line) -> Edits:
        head = range(*loop_head(line))
        for index, token in touchable(line):
            if token.kind == "punct" and token.text in table and index not in head:
                yield put(line, token.start, token.end, table[token.text])

    return change


def loop_head(line: Line) -> tuple[int, int]:
    """Return the range of tokens within the brackets of `for (…)`, or of `range(…)`; empty where there is no loop."""
    for index, token in enumerate(line.tokens):
        opens = token.text == "for" and line.language == "CUDA"
        if (opens or (token.text == "range" and at(line, 0) == "for")) and at(line, index + 1) == "(":
            return index + 2, closing(line, index + 1)
    return 0, 0


def closing(line: Line, opening: int) -> int:
    """Return the index of the closing bracket, or of the line's end."""
    column = line.tokens[opening].partner
    found = (index for index, token in enumerate(line.tokens) if token.start == column)
    return next(found, len(line.tokens))


def arguments(line: Line, opening: int) -> list[tuple[int, int]]:
    """Return the ranges (first token, one past the last) of a bracket's arguments."""
    return split(line, opening + 1, closing(line, opening), ",")


def split(line: Line, start: int, end: int, separators: str) -> list[tuple[int, int]]:
    """Return the ranges between separators outside brackets."""
    found, first, depth = [], start, 0
    for index in range(start, end):
        text = at(line, index)
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
        if depth == 0 and text in separators.split():
            found.append((first, index))
            first = index + 1
    return [*found, (first, end)]


def subscripts(line: Line) -> Iterator[tuple[int, int]]:
    """Yield the indices of `[` and `]` of subscripts that are on one line."""
    for index, token in enumerate(line.tokens):
        if token.text == "[" and token.where == "index" and token.partner >= 0:
            yield index, closing(line, index)


def is_binary(line: Line, index: int) -> bool:
    """Whether a `+`, `-` or `*` is between two operands: not a sign, an address or a pointer type."""
    before, after = at(line, index - 1), at(line, index + 1)
    if not before or before in TYPES or before in ("return", "else", "in") or after in ("const", ">", ")", ","):
        return False
    return before[-1].isalnum() or before[-1] in "_)]"


def multiplied(line: Line, names: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Yield the indices of a `*` and of the last token of the name after it: `* D`, `* H::STRIDE`."""
    for index, token in touchable(line):
        if token.text != "*" or not is_binary(line, index):
            continue
        last = index + 1
        while at(line, last + 1) in ("::", ".") and last + 2 < len(line.tokens):
            last += 2
        whole = line.tokens[last].kind == "word" if last < len(line.tokens) else False
        if whole and names(at(line, last)) and at(line, last + 1) not in ("(", "["):
            yield index, last


def is_statement(line: Line) -> bool:
    """Whether the line is one complete simple statement."""
    if not line.tokens or at(line, 0) in ("if", "for", "else", "return", "}", "{", "while", "constexpr", "static"):
        return False
    if line.language == "Triton":
        return at(line, len(line.tokens) - 1) not in (":", ",", "(") and any(t.text in ("=", "+=") for t in line.tokens)
    balanced = sum((t.text in ("(", "[", "{")) - (t.text in (")", "]", "}")) for t in line.tokens) == 0
    return balanced and at(line, len(line.tokens) - 1) == ";"


def assigned(line: Line) -> str:
    """Return the name a statement assigns to; empty if it assigns none."""
    for before, token in pairwise(line.tokens):
        if token.text in ("=", "+=", "*="):
            names = [each.text for each in line.tokens if each.start < token.start and each.where == "code"]
            return next((name for name in reversed(names) if name[0].isalpha() or name[0] == "_"), before.text)
    return ""


def introduced(line: Line) -> set[str]:
    """Return the names that a line may be the first to assign: those it declares, or in Python does not itself read."""
    equals = [index for index, token in enumerate(line.tokens) if token.text == "="]
    if not equals:
        return set()
    if line.language == "CUDA":
        return {at(line, index - 1) for index in equals} if at(line, 0) in TYPES else set()
    targets = {token.text for token in line.tokens[: equals[0]]}
    return targets - {token.text for token in line.tokens[equals[0] :]}
