"""Tokens of a C++ file → its items at namespace level: directives, namespaces, declarations, definitions."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .cpp_tokens import CppSource, Token

_RECORDS = frozenset(["struct", "class", "union", "enum"])


@dataclass(frozen=True)
class Item:
    """`kind` is directive, open, close (of a namespace or extern "C" block), macro (written like a call, expands to
    entire declarations), function or other."""

    kind: str
    start: int
    """Index of the first token."""
    end: int
    """Index after the last token."""
    head: tuple[str, ...] = ()
    """Its words outside brackets, before its body."""
    body: int = 0
    """Index of the brace that opens a function's body; 0: it has none."""
    scope: tuple[str, ...] = ()
    """The named namespaces around it."""


def read_items(source: CppSource, macros: Collection[str] = ()) -> list[Item]:
    """Return all items in order. `macros` are names of macros with parameters, where they are not expanded."""
    return list(_walk(source, 0, len(source.tokens), (), macros))


def _walk(source: CppSource, start: int, end: int, scope: tuple[str, ...], macros: Collection[str]) -> Iterator[Item]:
    at = start
    while at < end:
        token = source.tokens[at]
        brace = _block(source, at, end)
        if token.kind == "directive":
            yield Item("directive", at, at + 1, scope=scope)
            at += 1
        elif brace is not None:
            names = tuple(t.text for t in source.tokens[at:brace] if t.kind == "word" and t.text not in _NOT_NAMES)
            close = source.partner[brace]
            yield Item("open", at, brace + 1, scope=scope)
            yield from _walk(source, brace + 1, close, (*scope, *names), macros)
            yield Item("close", close, close + 1, scope=scope)
            at = close + 1
        elif token.text in macros and (after := _macro_end(source, at, end)):
            yield Item("macro", at, after, (token.text,), scope=scope)
            at = after
        else:
            item = _declaration(source, at, end, scope)
            yield item
            at = item.end


def _macro_end(source: CppSource, at: int, end: int) -> int:
    """Return the index after `NAME(…)` or `NAME(…);`; 0 if it is the head of a function."""
    if at + 1 >= end or source.tokens[at + 1].text != "(":
        return 0
    after = source.after(at + 1)
    if after < end and source.tokens[after].text == "{":
        return 0
    return after + 1 if after < end and source.tokens[after].text == ";" else after


_NOT_NAMES = frozenset(["namespace", "inline", "extern"])


def _block(source: CppSource, at: int, end: int) -> int | None:
    """Return the brace of `namespace a::b {` or `extern "C" {`."""
    words = source.tokens[at : min(at + 12, end)]
    first = words[0].text
    if first == "inline" and len(words) > 1:
        first = words[1].text
    opens = first == "namespace" or (first == "extern" and len(words) > 2 and words[2].text == "{")
    if not opens:
        return None
    for offset, token in enumerate(words):
        if token.text in ("=", ";") or (token.text == "(" and first == "extern"):
            return None
        if token.text == "{":
            return at + offset
    return None


def _declaration(source: CppSource, start: int, end: int, scope: tuple[str, ...]) -> Item:
    """Return the item up to its `;`, or to the closing brace of a function's body."""
    at, head = start, list[str]()
    calls, equals = False, False
    while at < end:
        token = source.tokens[at]
        if token.kind == "directive":
            at += 1
            continue
        if token.text == ";":
            kind = "function" if calls and not equals and not _RECORDS & set(head) else "other"
            return Item(kind, start, at + 1, tuple(head), scope=scope)
        if token.text == "{":
            close = source.partner[at]
            if calls and not equals and not (_RECORDS & set(head[:-1]) and not _is_function(source.tokens, at)):
                return Item("function", start, close + 1, tuple(head), at, scope)
            at = close + 1
            continue
        calls = calls or token.text == "("
        equals = equals or (token.text == "=" and "operator" not in head)
        if token.kind == "word" or (token.kind == "string" and head[-1:] == ["extern"]):
            head.append(token.text)
        at = source.after(at)
    return Item("other", start, end, tuple(head), scope=scope)


def _is_function(tokens: tuple[Token, ...], brace: int) -> bool:
    """Whether it is `struct P f(int x) {` and not `struct alignas(8) P {`: a `)` comes before a function's body."""
    return tokens[brace - 1].text in (")", "const", "noexcept")
