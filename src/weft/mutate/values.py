"""Operators on values: constant, operator, cast, initialisation, scale."""

import re
from collections.abc import Callable

from .edits import (
    FLOAT,
    INTEGER,
    TYPES,
    Edits,
    arguments,
    at,
    closing,
    exchange,
    is_binary,
    loop_head,
    multiplied,
    put,
    split,
    text_of,
    touchable,
)
from .records import Line

_SCALES = re.compile(r"\w*scale\w*|\w*_?step|inverse\w*|rescale|factor|\w*_factor|P_SCALE|LOG2_E|LN_2|STEP")
_ZEROS = ("0.0f", "0.0")


def integer_plus_one(line: Line) -> Edits:
    """`lane % 32` → `lane % 33`."""
    yield from _integers(line, lambda value: value + 1 if value > 1 else None)


def integer_halved(line: Line) -> Edits:
    """`lane / 16 * 8` → `lane / 16 * 4`."""
    yield from _integers(line, lambda value: value // 2 if value > 1 and value % 2 == 0 else None)


def _integers(line: Line, new: Callable[[int], int | None]) -> Edits:
    head = range(*loop_head(line))
    for index, token in touchable(line):
        if token.kind == "number" and INTEGER.fullmatch(token.text) and index not in head:
            changed = new(int(token.text))
            if changed is not None:
                yield put(line, token.start, token.end, str(changed))


def float_changed(line: Line) -> Edits:
    """`448.0f` → `(448.0f * 0.5f)`, `1.0f / l` → `2.0f / l`; zeros are starting values, not constants."""
    suffix = "f" if line.language == "CUDA" else ""
    for _, token in touchable(line):
        if token.kind == "number" and FLOAT.fullmatch(token.text) and token.text not in _ZEROS:
            one = token.text in ("1.0f", "1.0")
            new = f"2.0{suffix}" if one else f"({token.text} * 0.5{suffix})"
            yield put(line, token.start, token.end, new)


def plus_for_minus(line: Line) -> Edits:
    """`m + logf(l)` → `m - logf(l)`, outside subscripts and heads of loops."""
    head = range(*loop_head(line))
    for index, token in touchable(line):
        if token.text in "+-" and token.where == "code" and is_binary(line, index) and index not in head:
            yield put(line, token.start, token.end, "-" if token.text == "+" else "+")


def times_for_divide(line: Line) -> Edits:
    """`u * inverse` → `u / inverse`; between integers too."""
    head = range(*loop_head(line))
    for index, token in touchable(line):
        if token.text == "*" and token.where == "code" and is_binary(line, index) and index not in head:
            yield put(line, token.start, token.end, "/")


def branches_exchanged(line: Line) -> Edits:
    """`c ? a : b` → `c ? b : a`; `tl.where(c, a, b)` → `tl.where(c, b, a)`."""
    for index, token in touchable(line):
        if token.text == "where" and at(line, index + 1) == "(":
            parts = arguments(line, index + 1)
            if len(parts) == 3:
                (a, b), (c, d) = parts[1:]
                new = f"{text_of(line, c, d - 1)}, {text_of(line, a, b - 1)}"
                yield put(line, line.tokens[a].start, line.tokens[d - 1].end, new)
        if token.text == "?" and line.language == "CUDA":
            colon = split(line, index + 1, len(line.tokens), ":")[0][1]
            end = _expression_end(line, colon + 1)
            if colon + 1 < end:
                yes, no = text_of(line, index + 1, colon - 1), text_of(line, colon + 1, end - 1)
                yield put(line, line.tokens[index + 1].start, line.tokens[end - 1].end, f"{no} : {yes}")


def _expression_end(line: Line, start: int) -> int:
    depth = 0
    for index in range(start, len(line.tokens)):
        text = at(line, index)
        if depth == 0 and text in (";", ")", "]", ",", "}"):
            return index
        depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
    return start  # it continues in the next line


def read_as_integer(line: Line) -> Edits:
    """`float(k[at])` → `int(k[at])`."""
    if line.language == "CUDA":
        yield from exchange({"float": "int", "__half2float": "__half2int_rz"}, call=True)(line)


def cast_truncates(line: Line) -> Edits:
    """`ELEMENT(x)` → `ELEMENT(truncf(x))`; `x.to(tl.float32)` → `x.to(tl.int32).to(tl.float32)`."""
    names = ("ELEMENT", "T", "half", "__float2half_rn", "__float2bfloat16_rn")
    for index, token in touchable(line):
        if token.text in names and line.language == "CUDA" and at(line, index + 1) == "(":
            end = closing(line, index + 1)
            if end < len(line.tokens) and end > index + 2:
                inner = text_of(line, index + 2, end - 1)
                yield put(line, line.tokens[index + 2].start, line.tokens[end].start, f"truncf({inner})")
        whole = "int" in text_of(line, index, min(index + 4, len(line.tokens) - 1))
        if token.text == "to" and line.language == "Triton" and at(line, index - 1) == "." and not whole:
            yield put(line, token.start, token.start, "to(tl.int32).")


def declared_as_integer(line: Line) -> Edits:
    """`const float s = …` → `const int s = …`."""
    if at(line, 0) == "const" and at(line, 1) == "float" and at(line, 3) == "=":
        yield put(line, line.tokens[1].start, line.tokens[1].end, "int")


def starts_at_one(line: Line) -> Edits:
    """`float l = 0.0f;` → `float l = 1.0f;`; `tl.zeros(…)` → `1.0 + tl.zeros(…)`."""
    for index, token in touchable(line):
        starts = at(line, index - 1) in ("=", "{") and at(line, index + 1) in (";", ",", "}")
        if token.text in _ZEROS and starts and line.language == "CUDA":
            yield put(line, token.start, token.end, "1.0f")
        if token.text == "zeros" and at(line, index - 1) == ".":
            yield put(line, line.tokens[index - 2].start, line.tokens[index - 2].start, "1.0 + ")


def starts_at_zero(line: Line) -> Edits:
    """`m = -CUDART_INF_F` → `m = 0.0f`, where it is a starting value and not the score of a masked key."""
    if not _chooses(line):
        yield from infinity_lost(line)


def infinity_lost(line: Line) -> Edits:
    """Replaces every `-inf` by 0."""
    for index, token in touchable(line):
        if token.text != "-" or at(line, index - 1) in ("==", "!="):
            continue
        if at(line, index + 1) == "CUDART_INF_F":
            yield put(line, token.start, line.tokens[index + 1].end, "0.0f")
        elif at(line, index + 1) == "float" and at(line, index + 2) == "(":
            yield put(line, token.start, line.tokens[closing(line, index + 2)].end, "0.0")


def masked_score_zero(line: Line) -> Edits:
    """`key < end ? s : -CUDART_INF_F` → `key < end ? s : 0.0f`."""
    if _chooses(line):
        yield from infinity_lost(line)


def _chooses(line: Line) -> bool:
    return any(token.text in ("?", "where", "if") for token in line.tokens)


def not_initialised(line: Line) -> Edits:
    """`float sum = 0.0f;` → `float sum;`, `u[i] = 0.0f;` → `;`."""
    for index, token in touchable(line):
        value = at(line, index + 1)
        braces = value == "{" and at(line, index + 2) == "}"
        if token.text != "=" or line.language != "CUDA" or not (value in _ZEROS or braces):
            continue
        last = index + 2 if braces else index + 1
        if at(line, 0) in TYPES and at(line, last + 1) in (";", ",") and at(line, 1) != "constexpr":
            yield put(line, line.tokens[index - 1].end, line.tokens[last].end, "")
        elif index == len(line.tokens) - 3 and at(line, 0) not in ("for", "if"):
            yield put(line, line.tokens[0].start, line.tokens[last].end, "")


def scale_lost(line: Line) -> Edits:
    """`dot * scale` → `dot`."""
    for star, last in multiplied(line, _is_scale):
        yield put(line, line.tokens[star - 1].end, line.tokens[last].end, "")


def scale_twice(line: Line) -> Edits:
    """`dot * scale` → `dot * scale * scale`."""
    for star, last in multiplied(line, _is_scale):
        name = text_of(line, star + 1, last)
        yield put(line, line.tokens[last].end, line.tokens[last].end, f" * {name}")


def scale_two_percent(line: Line) -> Edits:
    """`dot * scale` → `dot * (scale * 0.98f)`."""
    suffix = "f" if line.language == "CUDA" else ""
    for star, last in multiplied(line, _is_scale):
        name = text_of(line, star + 1, last)
        yield put(line, line.tokens[star + 1].start, line.tokens[last].end, f"({name} * 0.98{suffix})")


def _is_scale(name: str) -> bool:
    return bool(_SCALES.fullmatch(name))
