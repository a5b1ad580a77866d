"""Finds maxima and sums over a part of the keys, which a right kernel may hold: they say nothing about a mistake.

Where several warps or lanes share the keys of a query, each has a maximum and sums over its keys, and a merge at the
end combines them. A softmax may subtract any number near the maximum, so the weights of such a part differ from the
reference's, too. Only sums over all keys up to a tile can be compared with it.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from weft.attention.emulate import Algorithm

from .taps import Key, Taps

Mask = npt.NDArray[np.bool_]


def of_some_keys(taps: Taps, algorithm: Algorithm, visible: Mask) -> dict[Key, Mask]:
    """Return stage and tile → elements of m, p, l and U that belong to a part of the keys; `visible` is (…, sq, skv).

    Keys whose scores were never used in that row do not count: they are left out, which is a mistake.
    """
    used = _used(taps, algorithm, visible.shape[-1])
    if used is None:
        return {}
    found: dict[Key, Mask] = {}
    since: dict[int, Mask] = {}
    for tile in range(-(-visible.shape[-1] // algorithm.block_n)):
        since[tile] = since.get(tile - 1, np.zeros(used.shape[:-1], bool))
        m = taps.at("m", tile)
        if m is None or m.keys is None:
            continue
        needed, own = _keys_up_to(tile, algorithm, visible) & used, _keys_of(tile, algorithm, visible)
        has_own = ~(own & ~m.keys).any(axis=-1)
        partial = m.observed & has_own & (needed & ~m.keys).any(axis=-1)
        if partial.any():
            found["m", tile], found["p", tile] = partial, partial[..., None]
            since[tile] = since[tile] | partial
    for stage in ("l", "u"):
        found |= _sums(taps, algorithm, visible & used, stage, since) if found else {}
    return found


def _sums(taps: Taps, algorithm: Algorithm, visible: Mask, stage: str, since: Mapping[int, Mask]) -> dict[Key, Mask]:
    """Return the incomplete sums in rows where a later sum is complete.

    `since`, by tile, are the rows that had a maximum over a part of the keys: what a merge adds up there belongs to the
    maximum of all keys, until it is complete.
    """
    found: dict[Key, Mask] = {}
    completed: Mask | None = None
    for tile in reversed(range(-(-visible.shape[-1] // algorithm.block_n))):
        tap = taps.at(stage, tile)
        if tap is None or tap.keys is None:
            continue
        needed, whole = _keys_up_to(tile, algorithm, visible), _keys_of_split(tile, algorithm, visible)
        incomplete, unfinished = (
            ((keys if stage == "l" else keys[..., None, :]) & ~tap.keys).any(axis=-1) for keys in (needed, whole)
        )
        merged = since[tile] if stage == "l" else since[tile][..., None]
        partial = tap.observed & merged & unfinished
        if completed is not None:
            partial |= tap.observed & incomplete & completed
        if partial.any():
            found[stage, tile] = partial
        sums = tap.observed & ~incomplete
        completed = sums if completed is None else completed | sums
    return found


def _used(taps: Taps, algorithm: Algorithm, keys: int) -> Mask | None:
    """Return (b, hq, sq, skv): the keys whose scores or weights were used; None if nothing was observed."""
    used: Mask | None = None
    for (stage, tile), tap in taps.taps.items():
        if stage in ("masked", "p") and tile is not None:
            if used is None:
                used = np.zeros((*tap.observed.shape[:-1], keys), bool)
            first = tile * algorithm.block_n
            used[..., first : first + tap.observed.shape[-1]] |= tap.observed
    return used


def _keys_of(tile: int, algorithm: Algorithm, visible: Mask) -> Mask:
    keys = np.arange(visible.shape[-1]) // algorithm.block_n
    return np.asarray(visible & (keys == tile))


def _keys_up_to(tile: int, algorithm: Algorithm, visible: Mask) -> Mask:
    """Return the visible keys of a tile and of those before it in the same split."""
    keys = np.arange(visible.shape[-1]) // algorithm.block_n
    return np.asarray(_keys_of_split(tile, algorithm, visible) & (keys <= tile))


def _keys_of_split(tile: int, algorithm: Algorithm, visible: Mask) -> Mask:
    """Return the visible keys of the split that a tile belongs to."""
    tiles = -(-visible.shape[-1] // algorithm.block_n)
    share = -(-tiles // algorithm.splits)
    keys = np.arange(visible.shape[-1]) // algorithm.block_n
    return np.asarray(visible & (keys // share == tile // share))
