"""Splits a kernel's text into lines of tokens that may be changed. Code that must not change has no tokens here."""

import io
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from weft.core.errors import UsageError
from weft.interop.torch_extension.cpp_tokens import CppSource, read_tokens

from .records import Language, Line, Token

_FROZEN_CALLS = frozenset(["asm", "static_assert", "assert", "alignas", "__launch_bounds__", "__align__"])
_FROZEN_STATEMENTS = frozenset(["using", "namespace", "enum", "struct", "template", "extern"])
_TYPES = frozenset(
    "const constexpr static float int unsigned half size_t bool auto typename __shared__ T ELEMENT Code ELEMENT float4 "
    "double short char".split()
)  # fmt: skip
_PUNCTUATION = {"word": "word", "number": "number", "punct": "punct"}


def read_lines(text: str, language: Language, path: str = "kernel") -> tuple[Line, ...]:
    """Return every line with code that may be changed, in order."""
    spans = _cuda_spans(read_tokens(text, path)) if language == "CUDA" else _triton_spans(text, path)
    by_line: dict[int, list[Token]] = {}
    for number, token in _placed(text, spans):
        by_line.setdefault(number, []).append(token)
    rows = text.splitlines()
    lines = {number: Line(number, rows[number - 1], tuple(tokens), language) for number, tokens in by_line.items()}
    return tuple(replace(line, following=lines.get(number + 1)) for number, line in lines.items())


_Span = tuple[str, str, int, int, str, int]
"""kind, text, start and end in the file, where, the other bracket's start (or -1)."""


def _placed(text: str, spans: Iterable[_Span]) -> Iterator[tuple[int, Token]]:
    """Convert positions in the file to positions in lines."""
    begins = [0]
    for row in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(row))
    number = 1
    for kind, spelled, start, end, where, other in spans:
        while begins[number] <= start:
            number += 1
        begin, behind = begins[number - 1], begins[number]
        partner = other - begin if begin <= other < behind else -1
        yield number, Token(kind, spelled, start - begin, end - begin, where, partner)


def _cuda_spans(source: CppSource) -> Iterator[_Span]:
    where = _cuda_places(source)
    for index, token in enumerate(source.tokens):
        if where[index] != "frozen" and token.kind in _PUNCTUATION:
            other = source.partner.get(index, -1)
            at = source.tokens[other].start if other >= 0 else -1
            yield token.kind, token.text, token.start, token.end, where[index], at


def _cuda_places(source: CppSource) -> list[str]:
    """Return the kind of code that contains each token."""
    where = ["code"] * len(source.tokens)

    def mark(start: int, end: int, what: str) -> None:
        where[start:end] = [what if now != "frozen" else now for now in where[start:end]]

    for opened, closed in source.angles.items():
        mark(opened, closed + 1, "template")
    for index, token in enumerate(source.tokens):
        if token.text == "[" and token.kind == "punct":
            lambda_head = index == 0 or source.tokens[index - 1].text in ("=", "(", ",", "return")
            mark(index, source.close(index) + 1, "frozen" if lambda_head else "index")
        elif token.kind == "word" and token.text in _FROZEN_CALLS:
            bracket = next((at for at in range(index, index + 3) if source.tokens[at].text == "("), None)
            if bracket is not None:
                mark(index, source.close(bracket) + 1, "frozen")
    for start, end in _statements(source):
        first = source.tokens[start].text
        if first in _FROZEN_STATEMENTS or _is_signature(source, start, end):
            mark(start, end, "frozen")
        elif first in _TYPES:
            _mark_sizes(source, start, end, where)
    return where


def _statements(source: CppSource) -> Iterator[tuple[int, int]]:
    """Yield the ranges of tokens between ; { } and directives, except for those within parentheses."""
    start, depth = 0, 0
    for index, token in enumerate(source.tokens):
        if token.kind == "punct" and token.text in "()":
            depth += 1 if token.text == "(" else -1
        if token.kind == "directive" or (token.kind == "punct" and token.text in ";{}" and depth == 0):
            if index > start:
                yield start, index
            start = index + 1


def _is_signature(source: CppSource, start: int, end: int) -> bool:
    words = {token.text for token in source.tokens[start:end]}
    return bool(words & {"__device__", "__global__"})


def _mark_sizes(source: CppSource, start: int, end: int, where: list[str]) -> None:
    """Mark the array sizes of a declaration: its brackets before `=`."""
    at, declared = start, True
    while at < end:
        text = source.tokens[at].text
        if text == "=":
            declared = False
        elif text == ",":
            declared = True
        after = source.after(at)
        if text == "[" and declared:
            where[at:after] = ["size"] * (after - at)
        at = after


def _triton_spans(text: str, path: str) -> Iterator[_Span]:
    begins = [0]
    for row in text.splitlines(keepends=True):
        begins.append(begins[-1] + len(row))
    try:
        tokens = [
            token
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
        ]
    except tokenize.TokenError as error:
        raise UsageError(f"{path} is not valid Python: {error}") from error
    for statement in _logical_lines(tokens):
        if _is_frozen(statement):
            continue
        yield from _statement_spans(statement, begins)


def _logical_lines(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[list[tokenize.TokenInfo]]:
    statement: list[tokenize.TokenInfo] = []
    for token in tokens:
        if token.type == tokenize.NEWLINE:
            yield statement
            statement = []
        else:
            statement.append(token)


def _is_frozen(statement: Sequence[tokenize.TokenInfo]) -> bool:
    first = statement[0]
    spelled = "".join(token.string for token in statement[:3])
    return (
        first.string in ("import", "from", "def", "@", "return")
        or spelled == "tl.static_assert"
        or (first.type == tokenize.STRING and len(statement) == 1)
    )


def _statement_spans(statement: Sequence[tokenize.TokenInfo], begins: Sequence[int]) -> Iterator[_Span]:
    kinds = {tokenize.NAME: "word", tokenize.NUMBER: "number", tokenize.OP: "punct"}
    places = [begins[token.start[0] - 1] + token.start[1] for token in statement]
    open_at: list[int] = []
    partner: dict[int, int] = {}
    for index, token in enumerate(statement):
        if token.string in ("(", "[", "{"):
            open_at.append(index)
        elif token.string in (")", "]", "}"):
            partner[index] = open_at.pop()
            partner[partner[index]] = index
    subscript = 0
    for index, token in enumerate(statement):
        subscript += token.string == "["
        if token.type in kinds:
            other = places[partner[index]] if index in partner else -1
            where = "index" if subscript else "code"
            yield kinds[token.type], token.string, places[index], places[index] + len(token.string), where, other
        subscript -= token.string == "]"
