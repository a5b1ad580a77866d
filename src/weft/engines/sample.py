"""Running some CTAs of a grid instead of all: which CTAs run, and when sampling is refused.

A kernel of several launches is sampled by position (blockIdx.x, blockIdx.y): every launch runs all CTAs of its z axis
there. So a split kernel with grid (x, y, z · splits) and its reduction with grid (x, y, z) run on matching CTAs.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from weft.core.errors import LaunchError, UsageError
from weft.core.records import Dim3

FEWEST = 8
"""Fewest positions of a sample, unless the grid has fewer."""


class CannotSample(LaunchError):
    """Some CTAs alone would not give the results of a complete run: run all CTAs. Nothing ran."""


@dataclass(frozen=True)
class CtaSample:
    """The positions (blockIdx.x, blockIdx.y) of a grid whose CTAs run, in any order."""

    positions: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not self.positions:
            raise UsageError("the sample is empty; give at least one position (blockIdx.x, blockIdx.y)")

    def cta_numbers(self, grid: Dim3) -> tuple[int, ...]:
        """Return the CTAs of `grid` that run, numbered x first, then y, then z."""
        width, height, depth = grid
        for x, y in self.positions:
            if not (0 <= x < width and 0 <= y < height):
                raise LaunchError(f"position ({x}, {y}) of the sample is outside the grid {grid}")
        return tuple(sorted({(z * height + y) * width + x for z in range(depth) for x, y in self.positions}))


def choose_sample(grid: Dim3, *, seed: int = 0, count: int = 12) -> CtaSample:
    """Choose at least eight positions of a grid, all if it has no more.

    First and last, their neighbours in the other axis, the middle, both middles of the x axis (a causal mask's
    diagonal), the last x of several y (where a sequence that is not a multiple of the tile ends), and random ones.
    """
    if count < FEWEST:
        raise UsageError(f"a sample has at least {FEWEST} positions, not {count}")
    width, height, _ = grid
    if width * height <= count:
        return CtaSample(tuple((x, y) for y in range(height) for x in range(width)))
    right, bottom, middle_x, middle_y = width - 1, height - 1, width // 2, height // 2
    chosen = dict.fromkeys(
        [
            (0, 0),
            (right, bottom),
            (right, 0),
            (0, bottom),
            (middle_x, middle_y),
            (max(middle_x - 1, 0), middle_y),
            (right, middle_y),
            (middle_x, bottom),
        ]
    )
    others = random.Random(seed)
    while len(chosen) < count:
        chosen[others.randrange(width), others.randrange(height)] = None
    return CtaSample(tuple(chosen))


def require_one_plane(grids: Sequence[Dim3], file: str) -> None:
    """Raise CannotSample for launches whose grids differ in x or y: they cannot share a sample."""
    planes = {grid[:2] for grid in grids}
    if len(planes) > 1:
        raise CannotSample(f"{file}: its launches have the grids {', '.join(map(str, grids))}, which differ in x or y")
