"""PTX text → tokens. One regular expression; opcodes are one token (`ld.global.v4.f32`) and are split by the parser."""

import re
from typing import NamedTuple

from weft.core.errors import ParseError


class Token(NamedTuple):
    """A piece of PTX text, its line, and where it starts in the text."""

    kind: str
    text: str
    line: int
    start: int


_TOKEN = re.compile(
    r"""
    (?P<newline>\n+)
  | (?P<space>[ \t\r\f]+ | //[^\n]*)
  | (?P<comment>/\*.*?\*/)
  | (?P<float>0[fF][0-9a-fA-F]{8}(?![0-9a-zA-Z_]) | 0[dD][0-9a-fA-F]{16}(?![0-9a-zA-Z_])
        | \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+)
  | (?P<int>0[xX][0-9a-fA-F]+U? | 0[bB][01]+U? | \d+U?)
  | (?P<word>[A-Za-z_$%][\w$]*(?:(?:\.|::)[\w$]+)*)
  | (?P<directive>\.[A-Za-z_][\w$]*(?:::[\w$]+)*)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<punct>[{}()\[\],;:@!|+\-*/%&^~<>=?])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def tokenize(text: str, line: int = 1) -> list[Token]:
    """Return all tokens of `text`, which starts at `line`; ParseError at the first character that starts none."""
    tokens: list[Token] = []
    at, end = 0, len(text)
    match = _TOKEN.match
    while at < end:
        found = match(text, at)
        if found is None:
            raise ParseError(f"unexpected character {text[at]!r}", line)
        kind = found.lastgroup or ""
        start, at = at, found.end()
        if kind == "newline":
            line += at - found.start()
        elif kind == "comment":
            line += found.group().count("\n")
        elif kind != "space":
            tokens.append(Token(kind, found.group(), line, start))
    tokens.append(Token("end", "", line, end))
    return tokens
