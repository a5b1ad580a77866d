"""Where the tiles of CTAs and the rows and columns of warps begin in a stage: the outlines in a picture."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .records import Case
from .taps import StageTap, Taps


@dataclass(frozen=True)
class Outlines:
    """The outlines of one head: rows and columns at which a tile or a warp begins; empty where unknown."""

    tiles: tuple[int, ...] = ()
    """Rows."""
    warps: tuple[int | None, ...] = ()
    """The warp that computed each row; None: not observed."""
    warp_columns: tuple[int, ...] = ()
    """Columns, counted from the stage's first."""

    @property
    def warp_rows(self) -> tuple[int, ...]:
        """The rows whose warp differs from that of the row above."""
        found = enumerate(pairwise(self.warps), 1)
        return tuple(row for row, (above, here) in found if above != here and None not in (above, here))


def outlines(case: Case, tap: StageTap | None, head: tuple[int, ...]) -> Outlines:
    """Return the CTAs' tiles of queries by the algorithm, and the warps of a recorded run."""
    assert case.attention is not None
    rows = case.attention.workload.shape.sq
    tiles: tuple[int, ...] = ()
    if case.algorithm is not None:
        tiles = tuple(range(case.algorithm.block_m, rows, case.algorithm.block_m))
    if tap is None or case.taps is None:
        return Outlines(tiles)
    warps = tuple(_warp(case.taps, tap, (*head, row)) for row in range(rows))
    seen = next((row for row, warp in enumerate(warps) if warp is not None), None)
    if seen is None or tap.observed.ndim == 3:
        return Outlines(tiles, warps)
    sites = [case.taps.site(tap, (*head, seen, column)) for column in range(tap.observed.shape[3])]
    columns = tuple(
        column
        for column, (before, after) in enumerate(pairwise(sites), 1)
        if before is not None and after is not None and before.warp != after.warp
    )
    return Outlines(tiles, warps, columns)


def _warp(taps: Taps, tap: StageTap, row: tuple[int, ...]) -> int | None:
    """Return the warp that computed the first observed element of a row."""
    seen = np.atleast_1d(tap.observed[row])
    if not seen.any():
        return None
    index = row if tap.observed.ndim == 3 else (*row, int(seen.argmax()))
    site = taps.site(tap, index)
    return site.warp if site is not None else None
