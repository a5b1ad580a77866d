"""The online softmax with one step missing: rescaling, the running maximum, l, the division."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from weft.attention.dtypes import Array
from weft.diagnose.ranges import ranges
from weft.diagnose.records import Case, Signature
from weft.diagnose.tags import Kind

from .evidence import EXPLAINED, Output, best, has_splits, may_be, output_of, rank_of, remaining
from .lines import first_line, use_of

TILES = (1, 16, 32, 64, 128)
RESCALE = "multiply every column of U, and l, by exp(m_old - m_new) before the tile's P·V is added"


@dataclass(frozen=True)
class _Slip:
    """One missing step."""

    name: str
    words: str
    cure: str
    stage: str
    rescale_u: bool = True
    rescale_l: bool = True
    running_max: bool = True
    newest_in_l: bool = True
    only_first_l: bool = False
    divide: bool = True
    twice: int = -1
    """A tile that is processed twice."""


SLIPS = (
    _Slip("missing_rescale", "neither U nor l is rescaled", RESCALE, "l", rescale_u=False, rescale_l=False),
    _Slip("l_not_rescaled", "l is not rescaled", RESCALE, "l", rescale_l=False),
    _Slip(
        "stale_m", "the maximum is taken over one tile only, and nothing is rescaled",
        "keep the running maximum: m_new = max(m_old, max of the tile)", "m",
        rescale_u=False, rescale_l=False, running_max=False,
    ),
    _Slip(
        "stale_l", "O is divided by l without the newest tile", "divide by l after the last tile has been added", "l",
        newest_in_l=False,
    ),
    _Slip(
        "stale_l", "l contains only the first tile", "add every tile's sum of P to l", "l", only_first_l=True,
    ),
    _Slip("not_normalised", "O is not divided by l", "store U / l", "o", divide=False),
    _Slip("tile_twice", "the first KV tile counts twice", "start the loop at the tile after the first", "l", twice=0),
)  # fmt: skip


def slipped(case: Case) -> Signature | None:
    """O matches an online softmax with one step missing. For the rescale of U see `rescale_of_u`."""
    out = output_of(case)
    if out is None or not out.finite:
        return None
    s, found = out.scores(), []
    for slip in SLIPS:
        if not may_be(case, slip.stage, "m", "l", "u"):
            continue
        for tile in _tiles(case, out):
            if tile == 1 and not slip.running_max:
                continue  # every weight is 1 then: `uniform_weights` describes it better
            left = out.left_over(_walk(out, s, tile, slip))
            found.append((left, f"{SLIPS.index(slip)} {tile}"))
    explained = best(found)
    if explained is None:
        return None
    number, tile = map(int, explained[1].split())
    slip, count = SLIPS[number], -(-out.mask.shape[1] // tile)
    message = f"O matches an online softmax in which {slip.words}, with {count} KV tiles of {tile} keys"
    # Where splits are merged, the same numbers are a wrong merge.
    rank = round(rank_of(explained[0]) - 0.02 * has_splits(case), 3)
    stored = case.taps.at("o") if case.taps is not None and not slip.divide else None
    place = use_of(case, stored) if stored is not None else None
    return Signature(slip.name, message, slip.cure, rank, 1 - explained[0], place=place)


def _tiles(case: Case, out: Output) -> Iterator[int]:
    known = (case.algorithm.block_n,) if case.algorithm is not None else ()
    skv = out.mask.shape[1]
    for tile in dict.fromkeys((*known, *TILES)):
        if tile < skv and (tile > 1 or skv <= 256):
            yield tile


def _walk(out: Output, s: Array, tile: int, slip: _Slip) -> Array:
    """Return U / l after all tiles, with the slip."""
    masked = np.where(out.mask, s, -np.inf)
    shape = masked.shape[:3]
    u, m, l, stale = np.zeros(out.q.shape), np.full(shape, -np.inf), np.zeros(shape), np.zeros(shape)
    starts = list(range(0, masked.shape[3], tile))
    if slip.twice >= 0:
        starts.insert(0, starts[slip.twice])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for start in starts:
            part = masked[..., start : start + tile]
            top = part.max(axis=-1)
            m_new = np.maximum(m, top) if slip.running_max else top
            shift = np.where(np.isneginf(m_new), 0.0, m_new)
            p, rescale = np.exp(part - shift[..., None]), np.exp(m - shift)
            stale = l * rescale
            u = u * (rescale[..., None] if slip.rescale_u else 1.0) + p @ out.v[:, :, start : start + tile]
            more = np.where(l > 0, 0.0, p.sum(axis=-1)) if slip.only_first_l else p.sum(axis=-1)
            l = l * (rescale if slip.rescale_l else 1.0) + more
            m = m_new
        divisor = l if slip.newest_in_l else stale
        return u / np.where(divisor == 0, 1.0, divisor)[..., None] if slip.divide else u


def rescale_of_u(case: Case) -> Signature | None:
    """U is not rescaled to the new maximum, in all columns or in some."""
    seen = _by_u(case)
    if seen is not None:
        return seen
    out = output_of(case)
    if out is None or not out.finite or not may_be(case, "u"):
        return None
    s, slip = out.scores(), _Slip("missing_rescale", "", RESCALE, "u", rescale_u=False)
    found = []
    for tile in _tiles(case, out):
        stale = _walk(out, s, tile, slip)
        columns = _stale_columns(out.o, stale, out.right)
        mixed = np.where(columns, stale, out.right)
        if columns.any():
            found.append((out.left_over(mixed), tile, columns))
    if not found:
        return None
    left, tile, columns = min(found, key=lambda each: each[0])
    if left > EXPLAINED:
        return None
    where = _where(columns)
    message = f"U is not rescaled by exp(m_old - m_new) {where}, with KV tiles of {tile} keys: O matches that"
    return _unscaled(case, columns, message, left, seen=False)


def _by_u(case: Case) -> Signature | None:
    """The same by U, where it is observed: its excess is (1 - exp(m_old - m_new)) times U of the tile before."""
    first = case.divergence
    if first is None or first.stage != "u" or not first.tile or case.algorithm is None:
        return None
    before, m_old, m_new = (case.expected.get((x, first.tile + at)) for x, at in (("u", -1), ("m", -1), ("m", 0)))
    if before is None or m_old is None or m_new is None:
        return None
    shift = np.where(np.isfinite(m_new), m_new, 0.0).astype(np.float64)
    rescale = case.algorithm.exp_base ** (m_old.astype(np.float64) - shift)
    expected = first.expected.astype(np.float64)
    stale = expected + before.astype(np.float64) * (1 - rescale)[..., None]
    use = first.observed & np.isfinite(first.actual)
    actual = np.where(use, first.actual, expected)
    columns = _stale_columns(actual, np.where(use, stale, expected), expected)
    left = remaining(actual, np.where(use & columns, stale, expected), expected)
    if not columns.any() or left > EXPLAINED:
        return None
    least = float(rescale[np.isfinite(m_old) & use.any(axis=3)].min(initial=1.0))
    message = (
        f"U is not rescaled {_where(columns)} from KV tile {first.tile} on: the factor exp(m_old - m_new), here as "
        f"small as {least:.3g}, is missing"
    )
    return _unscaled(case, columns, message, left, seen=True)


def _unscaled(case: Case, columns: Array, message: str, left: float, *, seen: bool) -> Signature:
    """Return the signature. Where some columns are rescaled, the line that does so misses the others."""
    name = "missing_rescale" if columns.all() else "partial_rescale"
    cure = RESCALE if columns.all() else "let every lane rescale all its columns: for (c = lane; c < D; c += 32)"
    place = None if columns.all() else first_line(case, "multiply", Kind.R, Kind.U)
    return Signature(name, message, cure, rank_of(left, seen=seen), 1 - left, place=place)


def _stale_columns(actual: Array, stale: Array, right: Array) -> Array:
    """Return which columns are closer to U without the rescale than to the right U."""
    axes = (0, 1, 2)
    return np.asarray(((actual - stale) ** 2).sum(axis=axes) < ((actual - right) ** 2).sum(axis=axes))


def _where(columns: Array) -> str:
    return "in any column" if columns.all() else f"in columns {ranges(map(int, np.flatnonzero(columns)))}"
