"""Compares observed stages with expected ones, in the order a kernel computes them: the first that differs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.tasks.attention_problem import AttentionProblem

from .shared_keys import of_some_keys
from .taps import TAPPED, WITHOUT_TILES, Key, StageTap, Taps
from .tolerance import StageTolerance, Tolerance

Mask = npt.NDArray[np.bool_]

CONSUMER = {"q": "scores", "k": "scores", "products": "scores", "v": "u", "scores": "masked", "masked": "p"}
"""A stage that differs while the stage computed from it is right is only stored in another form: no error."""
BY_KEY = ("products", "scores", "masked", "p", "dp", "ds")
"""Stages whose last axis is the keys of the tile."""
NO_WEIGHT = 80.0
"""exp of a score this far below the row's maximum is 0: a kernel may mask with any such number."""


@dataclass(frozen=True)
class Compared:
    """One stage and tile, as observed and as expected."""

    key: Key
    tap: StageTap
    expected: Array
    tolerance: Array
    wrong: Mask
    partial: bool = False
    """Whether elements were left out of the comparison: they belong to a part of the keys."""


def order(tiles: int) -> Iterator[Key]:
    """Yield every stage and tile in the order of time: tile by tile."""
    inner = [stage for stage in TAPPED if stage not in WITHOUT_TILES]
    yield "q", None
    for tile in range(tiles):
        for stage in inner:
            yield stage, tile
    yield "o", None
    yield "lse", None


def compare_stages(
    problem: AttentionProblem,
    taps: Taps,
    algorithm: Algorithm,
    expected: Mapping[Key, Array],
    tolerance: StageTolerance | None = None,
) -> tuple[Compared, ...]:
    """Compare every observed stage and tile, in order; with the float algorithm's tolerance unless another is given."""
    tolerance = tolerance or Tolerance(problem, algorithm, expected)
    compared = []
    parts = of_some_keys(taps, algorithm, problem.mask)
    for key in order(-(-problem.workload.shape.skv // algorithm.block_n)):
        tap, wanted = taps.at(*key), expected.get(key)
        if tap is None or wanted is None:
            continue
        allowed = np.broadcast_to(tolerance.of(*key), wanted.shape)
        wrong = _wrong(problem, key, tap, wanted, allowed)
        if key in parts:
            wrong &= ~parts[key]
        compared.append(Compared(key, tap, wanted, allowed, wrong, key in parts))
    return tuple(compared)


def first_wrong(compared: tuple[Compared, ...]) -> Compared | None:
    """Return the earliest that differs and is not only stored in another form."""
    by_key = {each.key: each for each in compared}
    for each in compared:
        stage, tile = each.key
        if not each.wrong.any():
            continue
        if stage not in CONSUMER:
            return each
        # Q serves every tile; a single tile's result shows whether it is right.
        tiles = [key[1] for key in by_key if key[0] == CONSUMER[stage]] if tile is None else [tile]
        users = [by_key[CONSUMER[stage], at] for at in tiles if (CONSUMER[stage], at) in by_key]
        if not users or any(user.wrong.any() for user in users):
            return each
    return None


def output_wrong(problem: AttentionProblem, algorithm: Algorithm, o: Array) -> Mask:
    """Return the elements of O beyond the tight gate's tolerance."""
    expected = problem.emulated(algorithm).o
    allowed = Tolerance(problem, algorithm, {("o", None): expected}).of("o", None)
    return differs(o.astype(np.float64), expected.astype(np.float64), allowed)


def _wrong(problem: AttentionProblem, key: Key, tap: StageTap, wanted: Array, allowed: Array) -> Mask:
    actual, expected = tap.values, wanted.astype(np.float64)
    wrong = differs(actual, expected, allowed) & tap.observed
    stage = key[0]
    if stage in ("masked", "m"):
        hidden = np.isneginf(expected)
        peak = np.abs(problem.gold.lse)
        least = -np.where(np.isfinite(peak), peak, 0.0) - NO_WEIGHT
        low = actual <= (least[..., None] if stage == "masked" else least)
        # A row without a visible key so far: subtracting 0 instead of -inf avoids NaN.
        wrong &= ~(hidden & (low | (actual == 0) if stage == "m" else low))
    return wrong


def differs(actual: Array, expected: Array, allowed: Array) -> Mask:
    """Return where they differ by more than `allowed`; NaN equals only NaN, infinity only itself."""
    with np.errstate(invalid="ignore"):
        near = np.abs(actual - expected) <= allowed
    same: Mask = near | (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return ~same
