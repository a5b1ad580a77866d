"""Operators on addresses: index, stride, pointer base."""

import re
from collections.abc import Iterator
from itertools import pairwise

from .edits import (
    TYPES,
    Edits,
    arguments,
    at,
    closing,
    loop_head,
    multiplied,
    put,
    split,
    subscripts,
    text_of,
    touchable,
)
from .records import Line

_SIZE = re.compile(r"[A-Z][A-Z0-9_]*")
_FACTORS = frozenset("LOG2_E LN_2 P_SCALE LARGEST STEP".split())
_OTHER_SIZE = {
    "SKV": "SQ", "SQ": "SKV", "HKV": "HQ", "HQ": "HKV", "BLOCK_M": "BLOCK_N", "BLOCK_N": "BLOCK_M", "PADDED": "D",
    "STRIDE": "COLUMNS", "COLUMNS": "STRIDE", "S_STRIDE": "BLOCK_N", "P_STRIDE": "S_STRIDE", "U_STRIDE": "STRIDE",
    "padded": "SKV",
}  # fmt: skip
_OTHER_BASE = {
    "k": "v", "v": "k", "k_head": "v_head", "v_head": "k_head", "q_head": "kv_head", "kv_head": "q_head", "sK": "sV",
    "sV": "sK", "sP": "sKV", "sM": "sL", "sL": "sM", "part_m": "part_l", "part_l": "part_m", "k_code": "v_code",
    "v_code": "k_code", "k_scale": "v_scale", "v_scale": "k_scale", "q_scale": "k_scale", "k_step": "v_step",
    "sTableK": "sTableV", "sTableV": "sTableK", "sTableQ": "sTableK", "k_tile": "v_tile", "v_tile": "k_tile",
    "k_sum": "v_max", "v_max": "k_sum", "k_mean": "v_step", "v_step": "k_mean", "k_rows": "v_rows",
}  # fmt: skip


def index_plus_one(line: Line) -> Edits:
    """`o[row * D + d]` → `o[row * D + d + 1]`; a plain `x[i]` of registers is not changed."""
    for opened, closed in subscripts(line):
        if any(at(line, index) in ("+", "*", "/", "%") for index in range(opened, closed)):
            yield put(line, line.tokens[closed].start, line.tokens[closed].start, " + 1")
    for index, token in touchable(line):
        if token.text in ("load", "store") and at(line, index - 1) == ".":
            _, end = arguments(line, index + 1)[0]
            yield put(line, line.tokens[end].start, line.tokens[end].start, " + 1")


def index_term_lost(line: Line) -> Edits:
    """`o[row * D + d]` → `o[row * D]`, and likewise in the address of tl.load and tl.store."""
    spans = [(opened + 1, closed) for opened, closed in subscripts(line)]
    for index, token in touchable(line):
        if token.text in ("load", "store") and at(line, index - 1) == ".":
            spans.append(arguments(line, index + 1)[0])
    for start, end in spans:
        terms = split(line, start, end, "+")
        if len(terms) > 1:
            _, kept = terms[-2]
            yield put(line, line.tokens[kept - 1].end, line.tokens[end - 1].end, "")


def index_exchanged(line: Line) -> Edits:
    """`s[row][column]` → `s[column][row]`; `x[:, None]` → `x[None, :]`."""
    found = list(subscripts(line))
    for (opened, closed), (other, end) in pairwise(found):
        first, second = (text_of(line, a + 1, b - 1) for a, b in ((opened, closed), (other, end)))
        if other == closed + 1 and first != second:
            yield put(line, line.tokens[opened].start, line.tokens[end].end, f"[{second}][{first}]")
    for opened, closed in found:
        table = {":, None": "None, :", "None, :": ":, None"}
        if closed > opened + 1 and text_of(line, opened + 1, closed - 1) in table:
            new = table[text_of(line, opened + 1, closed - 1)]
            yield put(line, line.tokens[opened].end, line.tokens[closed].start, new)


def divide_for_modulo(line: Line) -> Edits:
    """`i / 32` ↔ `i % 32`, between integers."""
    table = {"/": "%", "%": "/"} if line.language == "CUDA" else {"//": "%", "%": "//"}
    for index, token in touchable(line):
        neighbours = (at(line, index - 1), at(line, index + 1))
        floating = any("." in text or text in ("float", "LARGEST", "tl") for text in neighbours)
        if token.text in table and not floating:
            yield put(line, token.start, token.end, table[token.text])


def stride_off_by_one(line: Line) -> Edits:
    """`row * D` → `row * (D + 1)`, outside heads of loops."""
    for star, last in _strides(line):
        yield put(line, line.tokens[star + 1].start, line.tokens[last].end, f"({text_of(line, star + 1, last)} + 1)")


def stride_lost(line: Line) -> Edits:
    """`row * D + d` → `row + d`, outside heads of loops."""
    for star, last in _strides(line):
        yield put(line, line.tokens[star - 1].end, line.tokens[last].end, "")


def stride_exchanged(line: Line) -> Edits:
    """`kv_head * SKV` → `kv_head * SQ`; the leading dimension of a fragment likewise."""
    head = range(*loop_head(line))
    matrix = any(token.text.endswith("matrix_sync") for token in line.tokens)
    for index, token in touchable(line):
        start = index - 2 if at(line, index - 1) == "::" else index
        factor = "*" in (at(line, start - 1), at(line, index + 1))
        leading = matrix and at(line, start - 1) == "," and at(line, index + 1) in (")", ",")
        if token.text in _OTHER_SIZE and (factor or leading) and index not in head:
            yield put(line, token.start, token.end, _OTHER_SIZE[token.text])


def base_exchanged(line: Line) -> Edits:
    """`k + kv_head * SKV * D` → `v + …`; `sK` ↔ `sV`: an array is replaced by another of the same shape."""
    for index, token in touchable(line):
        new = _OTHER_BASE.get(token.text)
        if new is None or at(line, index + 1) == "=" or at(line, index - 1) in {*TYPES, "."} or at(line, 0) == "for":
            continue
        named = line.language == "Triton" and _before_assignment(line, index)
        declared = index + 1 < len(line.tokens) and line.tokens[index + 1].where == "size"
        bare = token.text in ("k", "v") and at(line, index + 1) not in ("+", "[")
        if not (named or bare or declared):
            yield put(line, token.start, token.end, new)


def base_of_first_head(line: Line) -> Edits:
    """`kv_head * SKV` → `0 * SKV`: every head reads the first."""
    for index, token in touchable(line):
        if token.text in ("kv_head", "q_head", "h", "b", "head") and at(line, index + 1) == "*":
            yield put(line, token.start, token.end, "0")
    for index, token in touchable(line):
        if token.text in ("b",) and at(line, index - 1) == "(" and at(line, index + 2) == "*":
            yield put(line, token.start, token.end, "0")


def base_of_query_head(line: Line) -> Edits:
    """`h / (HQ / HKV)` → `h`: grouped heads are not shared."""
    for index, token in touchable(line):
        if token.text == "h" and at(line, index + 1) in ("/", "//") and at(line, index + 2) == "(":
            yield put(line, token.end, line.tokens[closing(line, index + 2)].end, "")


def _strides(line: Line) -> Iterator[tuple[int, int]]:
    head = range(*loop_head(line))
    return ((star, last) for star, last in multiplied(line, _is_size) if star not in head)


def _is_size(name: str) -> bool:
    return bool(_SIZE.fullmatch(name) or name in ("padded", "pitch")) and name not in _FACTORS


def _before_assignment(line: Line, index: int) -> bool:
    equals = next((where for where, token in enumerate(line.tokens) if token.text == "="), -1)
    return index < equals
