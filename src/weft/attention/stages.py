"""The intermediate values of an attention kernel, named in the order it computes them."""

from dataclasses import dataclass

import numpy as np

from .dtypes import Array
from .errors import ContractError

BEFORE_TILES = ("q",)
PER_TILE = ("k", "v", "scores", "masked", "m", "p", "l", "u")
AFTER_TILES = ("o", "lse")

STAGES = (*BEFORE_TILES, *PER_TILE, *AFTER_TILES)
"""Dequantised Q; per KV tile K, V, S = Q·Kᵀ·scale, masked S, m_new, P, l, U; then O and LSE."""


@dataclass(frozen=True)
class Tile:
    """One KV tile of the online softmax, for all heads and rows: the state after it."""

    index: int
    split: int
    first_key: int
    k: Array
    """(b, hkv, n, d), dequantised and rounded to the operands' type; n is short in a ragged last tile."""
    v: Array
    scores: Array
    """(b, hq, sq, n): scaled, in the kernel's units (exponents of 2 where its exponential has base 2)."""
    masked: Array
    """The same with -inf where the query may not see the key."""
    m: Array
    """(b, hq, sq): running maximum of this split, this tile included."""
    p: Array
    """(b, hq, sq, n): as multiplied in P·V, so rounded to the type of P."""
    l: Array
    """(b, hq, sq): running sum of this split."""
    u: Array
    """(b, hq, sq, d): rescaled by exp(m_old - m_new), plus P·V."""
    visited: Array
    """(sq,): whether a kernel that skips fully masked tiles computes this one for the row's block."""

    @property
    def keys(self) -> range:
        """The keys of this tile."""
        return range(self.first_key, self.first_key + self.k.shape[2])

    def stage(self, name: str) -> Array:
        """Return the values of a stage, by name."""
        if name not in PER_TILE:
            raise ContractError(f"no stage {name!r} in a tile; use one of {', '.join(PER_TILE)}")
        return np.asarray(getattr(self, name))
