"""A position in the tokens of a PTX text, and the readers of its smallest parts."""

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from weft.core.errors import ParseError

from .lex import Token
from .module import FloatImm, Imm

_T = TypeVar("_T")

MOST_NESTING = 128
"""Limit of nested braces and parentheses; compilers stay far below, and the input must not overflow Python's stack."""
_LONGEST_INTEGER = 66
"""Characters: 64 binary digits and their prefix."""


class Cursor:
    """Moves over tokens; every error has the line."""

    def __init__(self, tokens: list[Token], files: Mapping[int, str] | None = None) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.files = _files(tokens) if files is None else files

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind == "end":
            raise ParseError("unexpected end of file", token.line)
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.tokens[self.at].text == text and self.tokens[self.at].kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        token = self.take()
        if token.text != text:
            raise ParseError(f"expected {text!r}, found {token.text!r}", token.line)
        return token

    def kind(self, kind: str) -> Token:
        token = self.take()
        if token.kind != kind:
            raise ParseError(f"expected a {kind}, found {token.text!r}", token.line)
        return token

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Count one level deeper."""
        self.depth += 1
        if self.depth > MOST_NESTING:
            raise ParseError(f"nested more than {MOST_NESTING} levels deep", self.token.line)
        yield
        self.depth -= 1

    def integer(self) -> int:
        negative = self.accept("-")
        value = _int(self.kind("int"))
        return -value if negative else value

    def comma_list(self, item: Callable[[], _T], close: str) -> list[_T]:
        items: list[_T] = []
        while not self.accept(close):
            if items:
                self.expect(",")
            items.append(item())
        return items

    def pragma(self) -> list[str]:
        """Read the rest of a `.pragma` directive: its strings, without the quotes.

        It may be at module scope, between a function's header and its body, and among statements (PTX ISA,
        performance-tuning directives).
        """
        line = self.token.line
        texts = self.comma_list(lambda: self.kind("string").text[1:-1], ";")
        if not texts:
            raise ParseError(".pragma needs a string", line)
        return texts

    def function_name(self) -> str:
        """Return the name in the header that starts here: the first word outside parentheses."""
        depth, at = 0, self.at
        while self.tokens[at].kind != "word" or depth:
            depth += (self.tokens[at].text == "(") - (self.tokens[at].text == ")")
            if self.tokens[at].kind == "end":
                raise ParseError("a function without a name", self.token.line)
            at += 1
        return self.tokens[at].text

    def literal(self) -> Imm | FloatImm:
        negative = self.accept("-")
        token = self.take()
        if token.kind == "int":
            return Imm(-_int(token) if negative else _int(token))
        if token.kind == "float":
            return _float(token, negative)
        raise ParseError(f"expected a number, found {token.text!r}", token.line)


def _files(tokens: list[Token]) -> dict[int, str]:
    """Return the `.file` entries, read ahead: NVRTC writes them at the end, after the `.loc` lines that use them."""
    rows = zip(tokens, tokens[1:], tokens[2:], strict=False)
    return {
        _int(number): name.text[1:-1]
        for word, number, name in rows
        if word.text == ".file" and number.kind == "int" and name.kind == "string"
    }


def _int(token: Token) -> int:
    if len(token.text) > _LONGEST_INTEGER:
        raise ParseError("an integer of more than 64 bits", token.line)
    value = int(token.text.rstrip("U"), 0) if token.text[:1] != "0" or len(token.text) < 2 else _radix(token)
    if value >> 64:
        raise ParseError(f"{token.text} has more than 64 bits", token.line)
    return value


def _radix(token: Token) -> int:
    text = token.text.rstrip("U")
    if text[1:2] in "xXbB":
        return int(text, 0)
    try:
        return int(text, 8)
    except ValueError:
        raise ParseError(f"bad octal number {text}", token.line) from None


def _float(token: Token, negative: bool) -> FloatImm:
    text = token.text
    if text[1:2] in "fF":
        return FloatImm(int(text[2:], 16) ^ (negative << 31), 32)
    if text[1:2] in "dD":
        return FloatImm(int(text[2:], 16) ^ (negative << 63), 64)
    value = float(text)
    return FloatImm(struct.unpack("<Q", struct.pack("<d", -value if negative else value))[0], 64)
