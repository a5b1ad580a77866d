"""C++ text → tokens with their positions, and matching brackets. No macro is expanded here, nothing is guessed.

Comments are not tokens; a preprocessor line is one token, with its continuations.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.core.errors import Unsupported

_RAW = re.compile(r'(?:u8|[uUL])?R"([^()\\\s]{0,16})\(')
_SCAN = re.compile(
    r"(?P<space>\s+|\\\r?\n)"
    r"|(?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?\*/)"
    r"|(?P<string>(?:u8|[uUL])?\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')"
    r"|(?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)"
    r"|(?P<word>[A-Za-z_$]\w*)"
    r"|(?P<punct><<<|::|->|\.\.\.|[=!<>+\-*/%&|^]=|&&|\|\||\+\+|--|[^\w\s])",
    re.DOTALL,
)
_CLOSES = {")": "(", "]": "[", "}": "{"}
_ANGLES = frozenset([",", "::", "*", "&", "...", "!", "-", "+", "==", "/"])
_AFTER_ANGLES = frozenset(["(", "::", "{", ",", ")", ">", "<<<", ";", "&", "*", "&&", "}", "...", "]", "="])


@dataclass(frozen=True)
class Token:
    """`kind` is word, number, string, char, punct or directive."""

    kind: str
    text: str
    start: int
    end: int
    line: int


@dataclass(frozen=True)
class CppSource:
    """A file's text, its tokens and its brackets."""

    path: str
    text: str
    tokens: tuple[Token, ...]
    partner: Mapping[int, int]
    """Index of a bracket → index of its partner, in both directions."""
    angles: Mapping[int, int]
    """Index of the `<` of template arguments → index of its `>`."""

    def spelled(self, start: int, end: int) -> str:
        """Return the text of tokens start to end, the last one excluded, on one line."""
        if start >= end:
            return ""
        return " ".join(self.text[self.tokens[start].start : self.tokens[end - 1].end].split())

    def split(self, start: int, end: int, comma: str = ",") -> list[tuple[int, int]]:
        """Return the ranges between the commas outside brackets; an empty range is left out."""
        ranges, first, at = [], start, start
        while at < end:
            if self.tokens[at].text == comma and self.tokens[at].kind == "punct":
                ranges.append((first, at))
                first = at + 1
            at = self.after(at)
        return [*ranges, (first, end)] if first < end or ranges else []

    def close(self, at: int) -> int:
        """Return the index of the matching bracket. Raises Unsupported where there is no bracket: this is not C++."""
        if at not in self.partner:
            line = self.tokens[min(at, len(self.tokens) - 1)].line
            raise refuse(self.path, line, "expected a bracket here")
        return self.partner[at]

    def after(self, at: int) -> int:
        """Return the index after a token, or after the bracket that opens there."""
        return max(self.partner.get(at, at), self.angles.get(at, at)) + 1


def refuse(path: str, line: int, what: str) -> Unsupported:
    """Return an Unsupported error at a line of the user's file; `what` names the problem and what to do."""
    return Unsupported(f"{path}:{line}: {what}")


def read_tokens(text: str, path: str) -> CppSource:
    """Read the tokens. Raises Unsupported, with the line, for text that is not C++ or whose brackets do not match."""
    return pair_tokens(tuple(scan_tokens(text, path)), text, path)


def pair_tokens(tokens: tuple[Token, ...], text: str, path: str) -> CppSource:
    """Match the brackets of tokens that have their positions in the text."""
    partner = _partners(tokens, path)
    return CppSource(path, text, tokens, partner, _angles(tokens, partner))


def scan_tokens(text: str, path: str, *, directives: bool = True) -> list[Token]:
    """Return only the tokens. Without `directives`, as in a macro's body, a `#` at the start is an operator."""
    found: list[Token] = []
    at, line, fresh = 0, 1, True  # fresh: only space and comments on this line so far
    while at < len(text):
        raw = _RAW.match(text, at)
        if raw:
            close = text.find(f'){raw[1]}"', raw.end())
            if close < 0:
                raise refuse(path, line, "a raw string is not closed")
            end, kind = close + len(raw[1]) + 2, "string"
        elif text[at] == "#" and fresh and directives:
            end, kind = _directive_end(text, at), "directive"
        else:
            match = _SCAN.match(text, at)
            kind = match.lastgroup if match and match.lastgroup else ""
            if match is None or (kind == "punct" and (match[0] in "\"'" or text.startswith("/*", at))):
                raise refuse(path, line, "a string or comment is not closed")
            end = match.end()
        if kind not in ("space", "comment"):
            found.append(Token(kind, text[at:end], at, end, line))
            fresh = False
        newlines = text.count("\n", at, end)
        fresh = fresh or (newlines > 0 and kind == "space")
        line += newlines
        at = end
    return found


def _directive_end(text: str, at: int) -> int:
    """Return where a preprocessor line ends: at a newline that no backslash and no comment continues."""
    while at < len(text) and text[at] != "\n":
        match = _SCAN.match(text, at) if text[at] in "/\"'" else None
        if match and match.lastgroup == "comment" and match[0].startswith("//"):
            return at
        if match and match.lastgroup in ("comment", "string", "char"):
            at = match.end()
        else:
            at += 2 if text.startswith("\\\n", at) else 3 if text.startswith("\\\r\n", at) else 1
    return at


def _partners(tokens: Sequence[Token], path: str) -> dict[int, int]:
    open_at: list[int] = []
    partner: dict[int, int] = {}
    for index, token in enumerate(tokens):
        if token.kind != "punct":
            continue
        if token.text in "([{":
            open_at.append(index)
        elif token.text in _CLOSES:
            if not open_at or tokens[open_at[-1]].text != _CLOSES[token.text]:
                cure = "brackets must match in every branch of an #if; write both branches in full"
                raise refuse(path, token.line, f"`{token.text}` has no opening bracket: {cure}")
            partner[index] = open_at[-1]
            partner[open_at.pop()] = index
    if open_at:
        last = tokens[open_at[-1]]
        raise refuse(path, last.line, f"`{last.text}` is never closed (or closed in one branch of an #if only)")
    return partner


def _angles(tokens: Sequence[Token], partner: Mapping[int, int]) -> dict[int, int]:
    """Return template argument brackets: a `<` after a word, if only valid template arguments follow up to a `>`."""
    found: dict[int, int] = {}
    for index, token in enumerate(tokens):
        if token.text == "<" and index and tokens[index - 1].kind == "word":
            end = _angle_end(tokens, partner, index)
            if end is not None:
                found[index] = end
    return found


def _angle_end(tokens: Sequence[Token], partner: Mapping[int, int], start: int) -> int | None:
    depth, at = 0, start
    template = tokens[start - 1].text == "template"
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "punct" and token.text == "<":
            depth += 1
        elif token.kind == "punct" and token.text == ">":
            depth -= 1
            if not depth:
                after = tokens[at + 1] if at + 1 < len(tokens) else None
                fits = after is None or after.kind != "punct" or after.text in _AFTER_ANGLES
                return at if fits or template else None
        elif token.kind == "punct" and token.text == "(":
            at = partner[at]
        elif (
            token.kind not in ("word", "number") and token.text not in _ANGLES and not (template and token.text == "=")
        ):
            return None
        at += 1
    return None
