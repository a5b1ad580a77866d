"""Bytes that very many threads access: counters, locks, results that every CTA stores. Pairs are quadratic in them.

The vector clocks of a launch have a column for each thread and a row for each synchronisation. Where both are many (a
lock that thousands of CTAs take) the first part of the log is judged: what it shows is a race whatever comes after it.

Of the accesses of one instruction to such a byte some are compared: those that are not ordered after their neighbour,
one for each of the values stored, and others at equal distances. What these show is a race. A crowd that shows none,
though not all of its accesses were compared, is reported as a possible race.
"""

import numpy as np
import numpy.typing as npt

from weft.vm.ir import LANES

from .order import touches
from .race_rows import Rows
from .semantics import Semantics

MOST_OF_A_BYTE = 1024
"""A byte with more accesses is a crowd; of others every pair is compared."""
MOST_OF_A_SITE = 256
"""Accesses of one instruction to a byte of a crowd that are compared."""

MOST_CLOCKS = 1 << 27
"""Entries of the vector clocks of a log, 4 bytes each."""


def first_part(log: npt.NDArray[np.void], semantics: Semantics) -> npt.NDArray[np.void]:
    """Return the part of a log whose vector clocks have at most MOST_CLOCKS entries."""
    touching = touches(log)
    index, lane = np.nonzero((log["lanes"][touching][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1)
    warp = log["cta"][touching][index].astype(np.int64) * LANES + log["warp"][touching][index]
    first = np.unique(warp * LANES + lane, return_index=True)[1]
    columns = np.cumsum(np.bincount(touching[index[first]], minlength=len(log)))
    sites, site = np.unique(log["site"], return_inverse=True)
    synchronises = np.array([semantics.kind(each) > 0 for each in sites.tolist()], bool)[site]
    synchronises |= ~np.isin(np.arange(len(log)), touching)
    return log[: int(np.searchsorted(columns * np.cumsum(synchronises), MOST_CLOCKS, side="right"))]


def thinned(rows: Rows) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Return the rows with crowds thinned, and the keys of the crowds."""
    if not len(rows["key"]):
        return rows, rows["key"]
    by_site = np.lexsort([rows["record"], rows["site"], rows["key"]])
    key, site = rows["key"][by_site], rows["site"][by_site]
    starts = np.flatnonzero(np.append(True, (key[1:] != key[:-1]) | (site[1:] != site[:-1])))
    sizes = np.diff(np.append(starts, len(key)))
    _, of_key, count = np.unique(key, return_inverse=True, return_counts=True)
    large = np.flatnonzero((sizes > MOST_OF_A_SITE) & (count[of_key[starts]] > MOST_OF_A_BYTE))
    if not len(large):
        return rows, rows["key"][:0]
    keep = np.ones(len(key), bool)
    for start, size in zip(starts[large].tolist(), sizes[large].tolist(), strict=True):
        here = by_site[start : start + size]
        keep[here] = False
        keep[here[_chosen({name: column[here] for name, column in rows.items()})]] = True
    return {name: column[keep] for name, column in rows.items()}, np.unique(key[starts[large]])


def _chosen(rows: Rows) -> npt.NDArray[np.intp]:
    """Return the positions of the accesses of one instruction to compare."""
    share = MOST_OF_A_SITE // 3
    loose = np.flatnonzero(rows["loose"])[:share] if "loose" in rows else np.zeros(0, np.intp)
    values = np.sort(np.unique(rows["value"], return_index=True)[1])[:share]
    spread = np.linspace(0, len(rows["key"]) - 1, share).astype(np.intp)
    return np.unique(np.concatenate([loose, values, spread]))


def unsettled(
    rows: Rows, crowds: npt.NDArray[np.int64], raced: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return a pair of rows of each crowd in which no race was found; `raced` are rows of races."""
    first, second = [], []
    for key in np.setdiff1d(crowds, rows["key"][raced]).tolist():
        here = np.flatnonzero(rows["key"] == key)
        writer = here[np.argmax(rows["write"][here])]
        other = here[rows["thread"][here] != rows["thread"][writer]]
        if len(other):
            pair = sorted((int(writer), int(other[0])), key=lambda at: int(rows["record"][at]))
            first.append(pair[0])
            second.append(pair[1])
    return np.array(first, np.intp), np.array(second, np.intp)
