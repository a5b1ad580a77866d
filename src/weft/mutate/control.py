"""Operators on control and order: bound, barrier, mask, order of two statements."""

from .edits import (
    Edits,
    arguments,
    assigned,
    at,
    closing,
    introduced,
    is_statement,
    loop_head,
    put,
    split,
    text_of,
    touchable,
)
from .records import Line

_MASKS = frozenset("visible visible_keys warp_sees seen_by_all".split())
_BARRIERS = frozenset("__syncthreads __syncwarp wait_copies commit_copies".split())
_CLOSED = {"<": "<=", ">=": ">", ">": ">=", "<=": "<"}


def bound_closed(line: Line) -> Edits:
    """`i < n` → `i <= n`."""
    for _, token in touchable(line):
        if token.text in _CLOSED:
            yield put(line, token.start, token.end, _CLOSED[token.text])


def loop_from_one(line: Line) -> Edits:
    """`for (int i = 0; …` → `for (int i = 1; …`; `range(begin, …` → `range(begin + 1, …`."""
    start, end = loop_head(line)
    if line.language == "Triton" and start < end:
        _, behind = split(line, start, end, ",")[0]
        yield put(line, line.tokens[behind - 1].end, line.tokens[behind - 1].end, " + 1")
        return
    for index in range(start, end):
        if at(line, index) == "=" and at(line, index + 1) == "0":
            yield put(line, line.tokens[index + 1].start, line.tokens[index + 1].end, "1")


def loop_ends_early(line: Line) -> Edits:
    """`i < n;` → `i < n - 1;`; `range(a, n, …` → `range(a, n - 1, …`."""
    start, end = loop_head(line)
    parts = split(line, start, end, ";" if line.language == "CUDA" else ",") if start < end else []
    if len(parts) > 1:
        _, behind = parts[1]
        yield put(line, line.tokens[behind - 1].end, line.tokens[behind - 1].end, " - 1")


def loop_step_doubled(line: Line) -> Edits:
    """`++i` → `i += 2`, `i += n` → `i += 2 * n`."""
    start, end = loop_head(line)
    for index in range(start, end):
        if at(line, index) == "++":
            name = at(line, index + 1)
            yield put(line, line.tokens[index].start, line.tokens[index + 1].end, f"{name} += 2")
        elif at(line, index) == "+=":
            yield put(line, line.tokens[index].end, line.tokens[index].end, " 2 *")


def guard_lost(line: Line) -> Edits:
    """`if (query >= SQ) return;` → `if (false) return;`; `mask=inside` → `mask=inside | True`."""
    for index, token in touchable(line):
        if token.text == "if" and at(line, index + 1) == "(" and line.language == "CUDA":
            end = closing(line, index + 1)
            inner = {at(line, each) for each in range(index + 2, end)}
            if end < len(line.tokens) and inner & {"<", ">="} and "CAUSAL" not in inner:
                always = "true" if "<" in inner else "false"
                yield put(line, line.tokens[index + 2].start, line.tokens[end].start, always)
        if token.text == "mask" and at(line, index + 1) == "=" and line.language == "Triton":
            _, behind = split(line, index + 2, len(line.tokens), ", )")[0]
            value = text_of(line, index + 2, behind - 1)
            yield put(line, line.tokens[index + 2].start, line.tokens[behind - 1].end, f"({value}) | True")


def barrier_lost(line: Line) -> Edits:
    """`__syncthreads();` → `;`."""
    yield from _call_lost(line, "__syncthreads")


def warp_barrier_lost(line: Line) -> Edits:
    """`__syncwarp();` → `;`."""
    yield from _call_lost(line, "__syncwarp")


def copy_not_committed(line: Line) -> Edits:
    """`commit_copies();` → `;`."""
    yield from _call_lost(line, "commit_copies")


def _call_lost(line: Line, name: str) -> Edits:
    for index, token in touchable(line):
        if token.text == name and at(line, index + 1) == "(" and index == 0:
            yield put(line, token.start, line.tokens[closing(line, index + 1)].end, "")


def wait_for_one_less(line: Line) -> Edits:
    """`wait_copies<1>();` → `wait_copies<1 + 1>();`: one more group may still be in flight."""
    for index, token in enumerate(line.tokens):
        if token.text == "wait_copies" and at(line, index + 1) == "<":
            number = line.tokens[index + 2]
            yield put(line, number.start, number.end, f"{number.text} + 1")


def mask_widened(line: Line) -> Edits:
    """`key < visible` → `key <= visible`, where a query's last key is compared."""
    for index, token in touchable(line):
        near = {at(line, each) for each in (index - 1, index + 1, index + 2)}
        if token.text in _CLOSED and near & _MASKS:
            yield put(line, token.start, token.end, _CLOSED[token.text])


def diagonal_shifted(line: Line) -> Edits:
    """`diagonal + 1` → `diagonal + 0`, and → `diagonal + 2`."""
    if not any(token.text == "diagonal" for token in line.tokens):
        return
    for index, token in touchable(line):
        neighbours = (at(line, index - 1), at(line, index + 1))
        if token.text == "1" and ("+" in neighbours or "if" in neighbours) and neighbours[0] != "==":
            yield from (put(line, token.start, token.end, new) for new in ("0", "2"))


def alignment_exchanged(line: Line) -> Edits:
    """`CAUSAL == 1` → `CAUSAL == 2`; `CAUSAL == 0` → `CAUSAL == 1`."""
    for index, token in touchable(line):
        if token.text in ("0", "1") and at(line, index - 1) == "==" and at(line, index - 2) == "CAUSAL":
            yield put(line, token.start, token.end, str(int(token.text) + 1))


def visible_of_next(line: Line) -> Edits:
    """`visible_keys(query, …)` → `visible_keys(1 + query, …)`; `queries + diagonal` → `queries + 1 + diagonal`."""
    for index, token in touchable(line):
        if token.text == "visible_keys" and at(line, index + 1) == "(":
            yield put(line, line.tokens[index + 2].start, line.tokens[index + 2].start, "1 + ")
        if token.text == "diagonal" and at(line, index - 1) == "+" and line.language == "Triton":
            yield put(line, token.start, token.start, "1 + ")


def mask_lost(line: Line) -> Edits:
    """`key < end ? s : -CUDART_INF_F` → `true ? s : …`; `tl.where(c, s, -inf)` → `tl.where((c) | True, s, -inf)`."""
    infinity = "CUDART_INF_F" if line.language == "CUDA" else "float"
    last = max((index for index, token in enumerate(line.tokens) if token.text == infinity), default=-1)
    for index, token in touchable(line):
        infinite = index <= last
        if token.text == "?" and infinite and at(line, index - 1) != "CUDART_INF_F":
            start = max((each for each in range(index) if at(line, each) in ("=", "return")), default=-1) + 1
            if start and "==" not in {at(line, each) for each in range(start, index)}:
                yield put(line, line.tokens[start].start, line.tokens[index - 1].end, "true")
        if token.text == "where" and infinite and at(line, index + 1) == "(":
            start, end = arguments(line, index + 1)[0]
            if "==" not in {at(line, each) for each in range(start, end)} and end > start + 1:
                condition = text_of(line, start, end - 1)
                yield put(line, line.tokens[start].start, line.tokens[end - 1].end, f"({condition}) | True")
        if token.text == "if" and at(line, index + 2) == "partial":
            yield put(line, line.tokens[index + 2].start, line.tokens[index + 2].end, "false")


def order_of_statements(line: Line) -> Edits:
    """`l += p;` and `s = p * f;` are exchanged, where one reads what the other writes."""
    other = line.following
    if other is None or not _exchangeable(line, other) or _is_barrier(line) or _is_barrier(other):
        return
    first, second = assigned(line), assigned(other)
    if first == second:  # the order of a sum
        return
    reads = {token.text for token in line.tokens}
    read_by_other = {token.text for token in other.tokens}
    if introduced(line) & read_by_other:  # a name is used after its declaration
        return
    if (first and first in read_by_other) or (second and second in reads):
        yield f"{other.text}\n{line.text}"


def order_of_barrier(line: Line) -> Edits:
    """A statement and the barrier next to it are exchanged."""
    other = line.following
    if other is not None and _exchangeable(line, other) and _is_barrier(line) != _is_barrier(other):
        yield f"{other.text}\n{line.text}"


def _exchangeable(line: Line, other: Line) -> bool:
    level = len(line.text) - len(line.text.lstrip())
    same = level == len(other.text) - len(other.text.lstrip())
    return same and is_statement(line) and is_statement(other) and line.code != other.code


def _is_barrier(line: Line) -> bool:
    return at(line, 0) in _BARRIERS
