"""PTX text → where each function is in it, without reading the bodies: a module of 20 MB takes about a second.

A kernel is then read together with only the functions that it can call (`parse.py`). The bodies are cut out by their
braces alone; comments and strings are skipped.
"""

import functools
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from weft.core.errors import ParseError
from weft.toolchain.cache import Cache, cache_key

from .cursor import Cursor
from .lex import tokenize

CACHED_CHARACTERS = 1 << 20
"""Texts this long have their index in the cache; for others, cutting is as fast as reading it."""

_SKIPPED = r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"'
_OUTSIDE = re.compile(
    rf"(?P<skipped>{_SKIPPED})|(?P<linking>\.(?:visible|extern|weak|common)\b)|(?P<function>\.(?:entry|func)\b)"
    r"|(?P<pragma>\.pragma\b)|(?P<end>;)|(?P<open>\{)|(?P<close>\})|(?P<broken>/\*)",
    re.DOTALL | re.ASCII,
)
_INSIDE = re.compile(rf"\{{|\}}|{_SKIPPED}|/\*", re.DOTALL | re.ASCII)
_WORDS = bytes(
    code if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "_$%") else 32 for code in range(256)
)
"""Replaces all that is no part of a name by blanks."""
_INDIRECT = frozenset([b"callprototype", b"calltargets"])


@dataclass(frozen=True)
class Piece:
    """A function with a body: its place in the text, from its first directive to its last brace."""

    name: str
    entry: bool
    start: int
    body: int
    """Where its first brace is."""
    end: int
    line: int
    """The line of `start`."""
    names: tuple[str, ...]
    """Functions of the text that it may call, or whose address it may take; a name in a comment counts too."""
    indirect: bool
    """Whether it calls one of them through a register."""


@dataclass(frozen=True)
class ModuleIndex:
    """The functions with a body of a PTX text, in its order."""

    pieces: tuple[Piece, ...]

    @functools.cached_property
    def by_name(self) -> dict[str, Piece]:
        return {piece.name: piece for piece in self.pieces}

    def reach(self, entry: str) -> tuple[Piece, ...]:
        """Return the kernel and every function that it can call, in the order of the text.

        A call through a register can reach each function whose address is taken anywhere: all pieces that name a
        function are then among them, because they show which these are.
        """
        found: dict[str, Piece] = {}
        left = [entry]
        everywhere = False
        while left:
            piece = self.by_name.get(left.pop())
            if piece is None or piece.name in found:
                continue
            found[piece.name] = piece
            left += piece.names
            if piece.indirect and not everywhere:
                everywhere = True
                left += [other.name for other in self.pieces if other.names or not other.entry]
        return tuple(piece for piece in self.pieces if piece.name in found)

    def without_bodies(self, text: str) -> str:
        """Return the text with each body replaced by a semicolon, on the same lines: declarations only."""
        parts, at = [], 0
        for piece in self.pieces:
            parts += [text[at : piece.body], ";", "\n" * text.count("\n", piece.body, piece.end)]
            at = piece.end
        return "".join([*parts, text[at:]])


@functools.lru_cache(maxsize=8)
def index_of(text: str) -> ModuleIndex:
    """Return the index of a PTX text, from the cache if it is long; ParseError if its braces do not match."""
    if len(text) < CACHED_CHARACTERS:
        return cut(text)
    cache, key = Cache("ptx_index"), cache_key([_version(), text])
    stored = cache.get(key)
    if stored is not None:
        rows = json.loads(stored)
        return ModuleIndex(tuple(Piece(**{**row, "names": tuple(row["names"])}) for row in rows))
    index = cut(text)
    cache.put(key, json.dumps([asdict(piece) for piece in index.pieces]).encode())
    return index


@functools.cache
def _version() -> bytes:
    return hashlib.sha256(Path(__file__).read_bytes()).digest()


def cut(text: str) -> ModuleIndex:
    """Find every function of a PTX text."""
    spans = list(_spans(text))
    heads = [_head(text[start:body], line) for start, body, _, line in spans]
    functions = frozenset(name.encode() for name, entry in heads if not entry)
    pieces = []
    for (start, body, end, line), (name, entry) in zip(spans, heads, strict=True):
        named = frozenset[bytes]()
        if functions:
            named = (functions | _INDIRECT).intersection(text[start:end].encode().translate(_WORDS).split())
        names = tuple(sorted(each.decode() for each in named - _INDIRECT - {name.encode()}))
        pieces.append(Piece(name, entry, start, body, end, line, names, bool(named & _INDIRECT)))
    return ModuleIndex(tuple(pieces))


def _spans(text: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield start, first brace, end and line of every function with a body."""
    at, line, counted = 0, 1, 0
    start: int | None = None
    function = pragma = False
    while (found := _OUTSIDE.search(text, at)) is not None:
        at = found.end()
        match found.lastgroup:
            case "linking" | "function":
                start = found.start() if start is None else start
                function |= found.lastgroup == "function"
            case "pragma":
                pragma = True
            case "end" if pragma:  # also between the header of a function and its body
                pragma = False
            case "end":
                start, function = None, False
            case "open":
                body, at = found.start(), _closed(text, at)
                if function and start is not None:
                    line, counted = line + text.count("\n", counted, start), start
                    yield start, body, at, line
                    start, function = None, False
            case "close" | "broken":
                raise ParseError(f"unexpected {found.group()!r}", 1 + text.count("\n", 0, found.start()))


def _closed(text: str, at: int) -> int:
    """Return the end of the block whose first brace is before `at`."""
    depth, first = 1, at
    search = _INSIDE.search
    while depth:
        found = search(text, at)
        if found is None or found.group() == "/*":
            what, end = ("brace", len(text)) if found is None else ("comment", found.start())
            opened = 1 + text.count("\n", 0, first if found is None else end)
            raise ParseError(f"the {what} of line {opened} is not closed", 1 + text.count("\n", 0, end))
        at = found.end()
        character = text[found.start()]
        depth += (character == "{") - (character == "}")
    return at


def _head(text: str, line: int) -> tuple[str, bool]:
    """Return the name of a function and whether it is a kernel, by its header."""
    cursor = Cursor(tokenize(text, line))
    while (word := cursor.take().text) not in (".entry", ".func"):
        pass
    return cursor.function_name(), word == ".entry"
