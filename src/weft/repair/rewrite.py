"""An edit of the -G build → texts of its source line that may be the same edit, the likeliest first.

The -G build says which line, and what kind of edit repairs it. The compiler may have turned a comparison around or
computed a constant, so that one edit has several spellings: each is compiled and judged afterwards.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from weft.interop.torch_extension.cpp_tokens import CppSource, Token, read_tokens

from .templates import Kind

_NUMBER = re.compile(r"(?P<digits>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)(?P<suffix>[fFuUlL]*)")
_NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_EQUALITIES = {"==": "!=", "!=": "=="}
_CLOSED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_SIGNS = {"+": "-", "-": "+", "/": "%", "%": "/"}
_EXTREMES = {"fmaxf": "fminf", "fminf": "fmaxf", "max": "min", "min": "max", "__hmax": "__hmin", "__hmin": "__hmax"}
_SHUFFLES = {
    "__shfl_down_sync": "__shfl_xor_sync", "__shfl_up_sync": "__shfl_xor_sync", "__shfl_xor_sync": "__shfl_down_sync",
}  # fmt: skip
_OTHER_BASE = {
    "expf": "exp2f", "exp2f": "expf", "__expf": "exp2f", "logf": "log2f", "__logf": "__log2f", "log2f": "logf",
}  # fmt: skip
_FACTORS = {"log2(e)": "1.44269504f", "ln(2)": "0.69314718f"}
_PRECEDENCE = {"*": 5, "/": 5, "%": 5, "+": 4, "-": 4, "<": 3, ">": 3, "<=": 3, ">=": 3, "==": 2, "!=": 2}
"""Binary operators; all other punctuation outside brackets ends an operand, but for `.`, `->` and `::`."""
_JOINS = frozenset([".", "->", "::"])
_KEYWORDS = frozenset(
    "if else for while return const int float unsigned half auto bool size_t constexpr static void break continue "
    "__syncthreads __shared__ true false threadIdx blockIdx blockDim gridDim x y z".split()
)  # fmt: skip
_CUTS = frozenset(["floorf", "truncf", "rintf", "roundf", "ceilf", "nearbyintf"])
_NEARBY = 40
"""Lines before and after, whose variables and comparisons are candidates."""
_MOST_NAMES = 8

Rewrites = Iterator[str]


@dataclass(frozen=True)
class SourceLine:
    """A line of a C++ file, by its tokens."""

    source: CppSource
    number: int

    @property
    def indices(self) -> list[int]:
        return [index for index, token in enumerate(self.source.tokens) if token.line == self.number]

    def tokens(self, kind: str = "") -> Iterator[tuple[int, Token]]:
        """Yield the tokens of the line, with their index in the file."""
        for index in self.indices:
            if not kind or self.source.tokens[index].kind == kind:
                yield index, self.source.tokens[index]

    def put(self, first: int, last: int, new: str) -> str:
        """Return the file with `new` in place of tokens first to last, both included."""
        text, tokens = self.source.text, self.source.tokens
        before, behind = text[: tokens[first].start], text[tokens[last].end :]
        if new:
            return before + new + behind
        behind = behind.lstrip(" ")
        return (before.rstrip(" ") if behind[:1] in (";", ")", "]", ",") else before) + behind

    def at(self, index: int) -> str:
        return self.source.tokens[index].text if 0 <= index < len(self.source.tokens) else ""

    def spelled(self, first: int, last: int) -> str:
        return self.source.text[self.source.tokens[first].start : self.source.tokens[last].end]

    def names(self) -> Iterator[int]:
        """Yield the tokens of the line that name a variable."""
        for index, token in self.tokens("word"):
            member = self.at(index - 1) in _JOINS or self.at(index + 1) in ("(", "::")
            if token.text not in _KEYWORDS and not member:
                yield index

    def operand(self, operator: int, step: int) -> tuple[int, int]:
        """Return the tokens of the operand before (step -1) or after (1) a binary operator."""
        strength, at = _PRECEDENCE.get(self.at(operator), 0), operator + step
        edge = operator
        while 0 <= at < len(self.source.tokens):
            token = self.source.tokens[at]
            other = self.source.partner.get(at)
            if other is not None and (other - at) * step > 0:
                at = other
            elif token.kind == "punct" and token.text not in _JOINS:
                unary = step > 0 and edge == operator and token.text in ("-", "!", "*", "&")
                binds = _PRECEDENCE.get(token.text, 0)
                if not unary and (other is not None or binds < strength or (binds == strength and step > 0)):
                    break
            elif token.text in ("return", "else"):
                break
            edge = at
            at += step
        return (edge, operator - 1) if step < 0 else (operator + 1, edge)


def rewrites(text: str, path: str, number: int, kind: Kind, words: str) -> list[str]:
    """Return texts of the file in which one line differs, each once; `words` are those of the edit.

    Raises Unsupported for a file whose tokens cannot be read.
    """
    line = SourceLine(read_tokens(text, path), number)
    return [each for each in dict.fromkeys(_BY_KIND[kind](line, words)) if each != text]


def line_edits(text: str, path: str, number: int) -> list[tuple[str, str]]:
    """Return small edits of one line, as words and the text of the file: a float that is not cut to an integer, another
    comparison, integer or sign.

    They need no evidence of the -G build, which computes conditions of constants and sums of zero when it compiles.
    Raises Unsupported for a file whose tokens cannot be read.
    """
    line = SourceLine(read_tokens(text, path), number)
    angles = {*line.source.angles, *line.source.angles.values()}
    found = [
        ("int → float", line.put(index, index, "float"))
        for index, token in line.tokens("word")
        if token.text == "int" and line.at(index + 1) == "("
    ]
    for table in (_EQUALITIES, _CLOSED, _SIGNS):
        for index, token in line.tokens("punct"):
            binary = line.at(index - 1) not in ("", "(", ",", "=", "return") and index not in angles
            if token.text in table and binary:
                other = table[token.text]
                found.append((f"{token.text} → {other}", line.put(index, index, other)))
        if table is _EQUALITIES:
            for index, token in line.tokens("number"):
                if token.text.isdigit():
                    for other in (str(int(token.text) + 1), str(int(token.text) - 1)):
                        found += [(f"{token.text} → {other}", line.put(index, index, other))] * (other != "-1")
    return found


def _constants(line: SourceLine, words: str) -> Rewrites:
    was, becomes = words.split(" → ")
    for index, token in line.tokens("number"):
        if _value(token.text) == _value(was):
            yield line.put(index, index, _like(token.text, becomes))
    for index, token in line.tokens("word"):
        if token.text == "INFINITY" and was in ("-inf", "inf"):
            first = index - 1 if line.at(index - 1) == "-" else index
            yield line.put(first, index, _float(becomes))
    if _difference(becomes, was) == _difference("0", becomes) != 0:  # half of it: `2 * 32` → `32`
        for index, token in line.tokens("number"):
            if token.text == "2" and line.at(index + 1) == "*":
                yield line.put(index, index + 1, "")
            elif token.text == "2" and line.at(index - 1) == "*":
                yield line.put(index - 1, index, "")
    difference = _difference(was, becomes)
    if difference in (-1, 1):
        for index, token in line.tokens("number"):
            if token.text.isdigit():
                yield line.put(index, index, str(int(token.text) + difference))
                yield line.put(index, index, str(max(int(token.text) - difference, 0)))
        for index in line.names():
            if line.at(index + 1) != "=":
                yield line.put(index, index, f"({line.at(index)} {'+' if difference > 0 else '-'} 1)")


def _operations(line: SourceLine, words: str) -> Rewrites:
    if " → " not in words:
        yield from _without_call(line, _CUTS)
        return
    was, becomes = words.split(" → ")
    for same in (lambda sign: sign, _NEGATED.get, _TURNED.get):
        for index, token in line.tokens("punct"):
            if token.text == same(was):
                yield line.put(index, index, same(becomes) or becomes)
            elif token.text == f"{was}=" and was not in _NEGATED:
                yield line.put(index, index, f"{becomes}=")
    yield from _swapped(line, _EXTREMES)


def _terms(line: SourceLine, words: str) -> Rewrites:
    sign = words.rpartition(" ")[2]
    for index, token in line.tokens("punct"):
        if token.text == sign and line.at(index - 1) not in ("", "(", "=", ",", "return"):
            (left, _), (_, right) = line.operand(index, -1), line.operand(index, 1)
            without_first, without_second = line.put(left, index, ""), line.put(index, right, "")
            yield from (without_first, without_second) if "first" in words else (without_second, without_first)
        elif token.text == f"{sign}=":
            yield line.put(index, index, "=")


def _calls(line: SourceLine, words: str) -> Rewrites:
    yield from _swapped(line, _OTHER_BASE if words.endswith("base") else _EXTREMES | _SHUFFLES)
    if words.startswith("without"):
        yield from _without_call(line, None)


def _values(line: SourceLine, words: str) -> Rewrites:
    if words == "= → +=":
        yield from (line.put(index, index, "+=") for index, token in line.tokens("punct") if token.text == "=")
    elif words.startswith("a variable"):
        yield from _by_sizes(line, words)
    else:
        sign = "+" if " plus " in words else "*"
        factor = next((spelled for name, spelled in _FACTORS.items() if name in words), "")
        for first, last in _assigned(line):
            for name in [factor] if factor else _names_near(line):
                value = line.spelled(first, last) if _is_call(line, first, last) else f"({line.spelled(first, last)})"
                yield line.put(first, last, f"{value} {sign} {name}")
                if last > first and _is_call(line, first, last):  # half(x) → half((x) * y)
                    argument = line.spelled(first + 2, last - 1)
                    yield line.put(first + 2, last - 1, f"({argument}) {sign} {name}")


def _exchanges(line: SourceLine, words: str) -> Rewrites:
    del words
    names = list(line.names())
    for a, b in combinations(dict.fromkeys(line.at(index) for index in names), 2):
        other, text = {a: b, b: a}, line.source.text
        for index in reversed(names):
            token = line.source.tokens[index]
            text = text[: token.start] + other.get(token.text, token.text) + text[token.end :]
        yield text


def _operands(line: SourceLine, words: str) -> Rewrites:
    del words
    for name in dict.fromkeys([*_parameters(line), *_names_near(line)]):
        for index in line.names():
            if line.at(index + 1) != "=" and line.at(index) != name:
                yield line.put(index, index, name)


def _guarded(line: SourceLine, words: str) -> Rewrites:
    otherwise = {"-inf": "-INFINITY", "0": "0.0f"}.get(words.split()[0], "")
    for limit in _comparisons(line):
        if otherwise:
            for first, last in _assigned(line):
                yield line.put(first, last, f"{limit} ? {line.spelled(first, last)} : {otherwise}")
        elif line.indices:
            first = line.indices[0]
            yield line.put(first, first, f"if ({limit}) {line.at(first)}")


_BY_KIND: Mapping[Kind, Callable[[SourceLine, str], Rewrites]] = {
    Kind.CONSTANT: _constants,
    Kind.OPERATION: _operations,
    Kind.TERM: _terms,
    Kind.CALL: _calls,
    Kind.VALUE: _values,
    Kind.EXCHANGE: _exchanges,
    Kind.OPERAND: _operands,
    Kind.GUARDED: _guarded,
}


def _swapped(line: SourceLine, table: Mapping[str, str]) -> Rewrites:
    for index, token in line.tokens("word"):
        if token.text in table and line.at(index + 1) == "(":
            yield line.put(index, index, table[token.text])


def _without_call(line: SourceLine, functions: frozenset[str] | None) -> Rewrites:
    """Yield each call of the line replaced by one of its arguments; None: of any function."""
    for index, token in line.tokens("word"):
        called = line.at(index + 1) == "(" and token.text not in _KEYWORDS
        if called and (functions is None or token.text in functions):
            close = line.source.close(index + 1)
            for first, end in line.source.split(index + 2, close):
                yield line.put(index, close, f"({line.source.spelled(first, end)})")


def _by_sizes(line: SourceLine, words: str) -> Rewrites:
    """Yield variables of the line divided by the heads per KV head, or moved by the difference of the lengths."""
    known = {token.text for token in line.source.tokens if token.kind == "word"}
    for sizes in (("HQ", "HKV", "SKV", "SQ"), ("hq", "hkv", "skv", "sq")):
        heads, kv_heads, keys, queries = sizes
        if words.endswith("HQ / HKV"):
            changed = "({0} / (" + f"{heads} / {kv_heads}))" if {heads, kv_heads} <= known else ""
        else:
            changed = "({0} " + f"{words.split()[2]} ({keys} - {queries}))" if {keys, queries} <= known else ""
        for index in line.names() if changed else ():
            if line.at(index + 1) != "=":
                yield line.put(index, index, changed.format(line.at(index)))


def _assigned(line: SourceLine) -> Iterator[tuple[int, int]]:
    """Yield the tokens of what the line assigns or returns, up to its `;`."""
    for index, token in line.tokens():
        if token.text in ("=", "+=", "-=", "*=", "return"):
            end = index + 1
            while end < len(line.source.tokens) and line.at(end) not in (";", ",", ")"):
                end = line.source.after(end)
            if end > index + 1:
                yield index + 1, end - 1


def _is_call(line: SourceLine, first: int, last: int) -> bool:
    """Return whether the tokens are a name, or a call of a function."""
    return first == last or (line.at(first + 1) == "(" and line.source.after(first + 1) == last + 1)


def _names_near(line: SourceLine) -> list[str]:
    """Return the kernel's parameters of floating point, then variables assigned before the line, the nearest first."""
    found = dict.fromkeys(_parameters(line, "float"))
    for index in range(len(line.source.tokens) - 1, -1, -1):
        token = line.source.tokens[index]
        near = line.number - _NEARBY <= token.line < line.number
        assigned = line.at(index + 1) in ("=", "+=", ";") and line.at(index - 1) not in (*_JOINS, "]")
        if near and token.kind == "word" and assigned and token.text not in _KEYWORDS:
            found[token.text] = None
    return list(found)[:_MOST_NAMES]


def _parameters(line: SourceLine, kind: str = "") -> Iterator[str]:
    """Yield the names in `const float* q,` and `float scale)` after the last `__global__` before the line; only those
    that follow the name of a type if `kind` is one.
    """
    before = [index for index, token in enumerate(line.source.tokens) if token.line < line.number]
    kernel = max((index for index in before if line.at(index) == "__global__"), default=0)
    body = next((index for index in before if index > kernel and line.at(index) == "{"), len(before))
    for index in range(kernel + 1, body):
        is_name = line.source.tokens[index].kind == "word" and line.at(index + 1) in (",", ")")
        if is_name and (line.at(index - 1) == kind or not kind):
            yield line.at(index)


def _comparisons(line: SourceLine) -> list[str]:
    """Return `a < b` of other lines, the nearest first."""
    found: dict[str, int] = {}
    for index, token in enumerate(line.source.tokens):
        if token.kind == "punct" and token.text in ("<", ">=") and abs(token.line - line.number) <= _NEARBY:
            (left, _), (_, right) = line.operand(index, -1), line.operand(index, 1)
            text = f"{line.spelled(left, index - 1)} < {line.spelled(index + 1, right)}"
            if left < index < right + 1 and index not in line.source.angles and "\n" not in text:
                found.setdefault(text, abs(token.line - line.number))
    return sorted(found, key=lambda each: found[each])[:_MOST_NAMES]


def _value(text: str) -> float | None:
    match = _NUMBER.fullmatch(text)
    return float(match["digits"]) if match else None


def _difference(was: str, becomes: str) -> int:
    return int(becomes) - int(was) if was.lstrip("-").isdigit() and becomes.lstrip("-").isdigit() else 0


def _like(token: str, value: str) -> str:
    """Spell a value as a literal of the same type."""
    match = _NUMBER.fullmatch(token)
    suffix = match["suffix"] if match else ""
    if "." in token or "f" in suffix.lower():
        return _float(value)
    return f"{value}{suffix}"


def _float(value: str) -> str:
    if value.endswith("inf"):
        return value.replace("inf", "INFINITY")
    value = value.removesuffix("f")
    return f"{value}f" if "." in value or "e" in value else f"{value}.0f"
