"""Split-K: partial results that are weighted twice or not at all, or read where they were not written."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from weft.attention.dtypes import Array
from weft.core.records import Place
from weft.diagnose.records import Case, Signature
from weft.diagnose.tags import Kind

from .evidence import Output, best, has_fact, has_splits, may_be, output_of, rank_of, remaining
from .lines import acts, first_line, index_function, line_of, source_of

DOUBLE = "double_counted_split"
UNWEIGHTED = "unweighted_merge"
PARTS = 3
"""U, m and l."""


@dataclass(frozen=True)
class Parts:
    """Partial results: u (splits, b, h, sq, d), m and l (splits, b, h, sq)."""

    u: Array
    m: Array
    l: Array


def wrong_merge(case: Case) -> Signature | None:
    """The merge weights partial results by something other than exp(m - M)."""
    out = output_of(case)
    if out is None or not has_splits(case) or not may_be(case, "u", "l"):
        return None
    divided = _divided_before(case, out)
    if divided is not None or not out.finite:
        return divided
    candidates = []
    for parts in _partials(case, out):
        candidates += [(out.left_over(o), f"{name}|{words}") for name, words, o in _merges(parts)]
    found = best(candidates)
    if found is None:
        return None
    name, words = found[1].split("|")
    message = f"O matches a merge in which {words}"
    place = first_line(case, "multiply", Kind.L, Kind.U) if name == DOUBLE else None
    rank = rank_of(found[0], seen=name == DOUBLE and has_fact(case, "times_l"))
    return Signature(name, message, _CURE, rank, 1 - found[0], place=place)


_CURE = "weight U and l of each split with exp(m - M) only, and divide once, by the sum of the weighted l"


def _divided_before(case: Case, out: Output) -> Signature | None:
    """Partial outputs are already divided by their l: multiplied by it again they merge to the right O."""
    for (name, _, _), (u, m, l) in _workspaces(case, out):
        whole = np.where(l[..., None] == 0, 0.0, u * l[..., None])
        if not _same(_merged(u, m, l), out.right) and _same(_merged(whole, m, l), out.right):
            empty = int((l == 0).sum())
            message = f"{name} is already divided by l, and the merge divides again"
            message += f"; {empty} of its {l.size} rows have no key, and 0 / 0 there is NaN" if empty else ""
            cure = "do not normalise the partial output: the merge divides once, by the sum of the weighted l"
            place = first_line(case, "multiply", Kind.INVERSE_L, Kind.U)
            return Signature(DOUBLE, message, cure, 0.95, place=place)
    return None


def _partials(case: Case, out: Output) -> Iterator[Parts]:
    """Yield the reference's partial results, for each number of splits that the kernel may have."""
    macros = case.candidate.declared.macros
    named = [int(macros["SPLITS"])] if macros.get("SPLITS", "").isdigit() else []
    known = [case.algorithm.splits] if case.algorithm is not None and case.algorithm.splits > 1 else []
    skv = out.mask.shape[1]
    masked = np.where(out.mask, out.scores(), -np.inf)
    tile = case.algorithm.block_n if case.algorithm is not None else 32
    shares = {-(-skv // n) for n in (*named, *known, 2, 4, 8) if n > 1}
    tiles = -(-skv // tile)
    shares |= {-(-tiles // n) * tile for n in (*known, 2, 4)}
    for share in sorted(share for share in shares if share < skv):
        yield _parts(out, masked, share)


def _parts(out: Output, masked: Array, share: int) -> Parts:
    u, m, l = [], [], []
    for start in range(0, masked.shape[3], share):
        s = masked[..., start : start + share]
        top = s.max(axis=-1)
        p = np.exp(s - np.where(np.isneginf(top), 0.0, top)[..., None])
        u.append(p @ out.v[:, :, start : start + share])
        m.append(top)
        l.append(p.sum(axis=-1))
    return Parts(np.stack(u), np.stack(m), np.stack(l))


def _merges(parts: Parts) -> Iterator[tuple[str, str, Array]]:
    """Yield wrong merges: name, words and O."""
    top = parts.m.max(axis=0)
    weight = np.exp(parts.m - np.where(np.isneginf(top), 0.0, top))
    l, count = parts.l, len(parts.l)
    mean = parts.u / _safe(l)[..., None]
    twice = "U and l of each split are weighted with l · exp(m - M): l counts twice"
    yield DOUBLE, twice, _divided(parts.u, weight * l, l)
    yield (
        DOUBLE,
        "U of each split is weighted with l · exp(m - M), l is not: l counts twice",
        _split(parts.u, weight * l, weight * l),
    )
    yield DOUBLE, "U of each split is divided by its l before the merge divides again", _divided(mean, weight, l)
    yield UNWEIGHTED, f"the {count} splits are summed without exp(m - M)", _divided(parts.u, np.ones_like(l), l)
    yield UNWEIGHTED, f"the {count} splits, each divided by its l, are averaged", mean.mean(axis=0)
    first = np.concatenate([weight, weight[:1]])
    yield (
        DOUBLE,
        "one split is merged twice",
        _divided(np.concatenate([parts.u, parts.u[:1]]), first, np.concatenate([l, l[:1]])),
    )


def _divided(u: Array, weight: Array, l: Array) -> Array:
    return _split(u, weight, weight * l)


def _split(u: Array, weight: Array, l: Array) -> Array:
    return np.asarray((u * weight[..., None]).sum(axis=0) / _safe(l.sum(axis=0))[..., None])


def _safe(l: Array) -> Array:
    return np.where(l == 0, 1.0, l)


def partial_offsets(case: Case) -> Signature | None:
    """Partial buffers are written at one place and read at another: each launch is right alone."""
    out = output_of(case)
    if out is None:
        return None
    cure = (
        "compute the row of the partial buffers with one function, in the kernel that writes and in the one that reads"
    )
    candidates = []
    for names, (u, m, l) in _workspaces(case, out):
        right_there = _same(_merged(u, m, l), out.right)
        for order, words in _orders():
            for moved in ((True, True, True), (True, False, False), (False, True, False), (False, False, True)):
                parts = [_reread(x, order) if move else x for x, move in zip((u, m, l), moved, strict=True)]
                which = ", ".join(name for name, move in zip(names, moved, strict=True) if move)
                merged = _merged(*parts)
                if right_there:  # the reader moves them: what it reads gives the kernel's O
                    left = _held(out.o, merged, out.right)
                    candidates.append((left, f"{which} written as [head, split, query], read as {words}"))
                elif _same(merged, out.right):  # the writer did: put back, they give the right O
                    candidates.append((0.0, f"{which} written as {words}, read as [head, split, query]"))
    found = best(candidates)
    if found is not None:
        left, words = found
        message = f"the partial results are right but misplaced: {words}"
        explained = None if _writer_moves(words) else 1 - left
        if explained is None:
            message += "; read in the order they were written, they merge to the right O"
        rank, place = rank_of(left, seen=True), _misplaced(case, words)
        return Signature("partial_offsets", message, cure, rank, explained, place=place)
    if len(case.launches) > 1 and all(launch.right for launch in case.launches):
        message = (
            f"each of the {len(case.launches)} launches is right alone, but together they are wrong: a launch does not "
            "read what the launch before it wrote"
        )
        return Signature("partial_offsets", message, cure, 0.85)
    return None


def _misplaced(case: Case, words: str) -> Place | None:
    """Return the line that writes, or reads, the partial results in another order than the reference's."""
    writes = _writer_moves(words)
    names = words.split(" written")[0].split(", ")
    for act in acts(case, "store" if writes else "load"):
        place = line_of(case, act) if act.space == "global" and act.kinds[0] in (Kind.U, Kind.L, Kind.M) else None
        text = source_of(place)[place.line - 1 : place.line] if place is not None else []
        if place is not None and any(name in line for name in names for line in text):
            # One array that moves alone is accessed with a wrong index; all of them share a wrong function of it.
            return (index_function(place) if len(names) == PARTS else None) or place
    return None


def _writer_moves(words: str) -> bool:
    return "read as [head, split, query]" in words


def _workspaces(case: Case, out: Output) -> Iterator[tuple[tuple[str, str, str], tuple[Array, Array, Array]]]:
    """Yield arrays shaped like partial results: (names, (u, m, l))."""
    b, h, sq, d = out.o.shape
    given = {*out.problem.arrays, "o", "lse"}
    free = {name: x.astype(np.float64) for name, x in case.arrays.items() if name not in given}
    flat = {n: x for n, x in free.items() if x.ndim == 4 and (x.shape[0], x.shape[1], x.shape[3]) == (b, h, sq)}
    for u_name, u in free.items():
        if u.ndim != 5 or (u.shape[0], u.shape[1], u.shape[3:]) != (b, h, (sq, d)) or u.shape[2] < 2:
            continue
        for m_name, l_name in permutations(flat, 2):
            m, l = flat[m_name], flat[l_name]
            if m.shape == l.shape == u.shape[:4] and (l >= 0).all():
                yield (u_name, m_name, l_name), (u, m, l)


def _orders() -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the other orders of head, split and query."""
    names = {1: "head", 2: "split", 3: "query"}
    for order in permutations((1, 2, 3)):
        if order != (1, 2, 3):
            yield (0, *order), "[" + ", ".join(names[axis] for axis in order) + "]"


def _reread(x: Array, order: tuple[int, ...]) -> Array:
    """Return the same bytes read with the axes in another order, as [b, head, split, query]."""
    tail = x.shape[4:]
    seen = x.reshape(*(x.shape[axis] for axis in order), *tail)
    return np.moveaxis(seen, range(4), order)


def _merged(u: Array, m: Array, l: Array) -> Array:
    top = m.max(axis=2)
    empty = np.isneginf(top)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        weight = np.exp(m - np.where(empty, 0.0, top)[:, :, None])
        total = np.where(empty, 1.0, (weight * l).sum(axis=2))
        return np.asarray((u * weight[..., None]).sum(axis=2) / total[..., None])


def _held(o: Array, merged: Array, right: Array) -> float:
    """Return the share of the error left by a merge, over elements finite in both; infinite if these are few."""
    use = np.isfinite(o) & np.isfinite(merged)
    return remaining(o[use], merged[use], right[use]) if use.mean() > 0.5 else float("inf")


def _same(a: Array, b: Array) -> bool:
    return bool(np.isfinite(a).all() and np.linalg.norm(a - b) <= 0.01 * np.linalg.norm(b))
