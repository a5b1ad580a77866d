"""What a value is, by its origin: an element of an input, a score, a weight, a sum.

A tag holds kind, row and column. Rows and keys are counted over all heads of a buffer: row (b·HQ + h)·SQ + i of Q,
key (b·HKV + h)·SKV + j of K and V. `terms` has a bit for everything that was summed or compared: the columns d of
a score, the keys j of m, l and U.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.attention.shapes import Shape

Tags = npt.NDArray[Any]
"""A structured array of the dtype that `Sizes.dtype` returns."""
Ids = npt.NDArray[np.int32]

MIXED, NONE = -1, -2
"""Values of row and column: several rows or columns at once; the kind has none."""


class Kind(IntEnum):
    """Kinds of values. Products and sums are looked up by pairs in this order."""

    CONST = 0
    """Independent of the inputs Q, K, V."""
    Q = 1
    K = 2
    V = 3
    S = 4
    """Σ_d Q[row, d] · K[col, d], in any unit; `terms` are the d so far."""
    M = 5
    """The largest of the scores of a row."""
    X = 6
    """S[row, col] - m[row], the exponent; without a column m_old - m_new."""
    P = 7
    R = 8
    """exp of a difference of maxima: a rescale; also a weight whose score was a constant."""
    L = 9
    INVERSE_L = 10
    LOG_L = 11
    U = 12
    O = 13
    LSE = 14
    MIX = 15
    """Unknown: no rule applies."""
    DO = 16
    """The gradient of O, an input of the backward pass, whose other inputs include O and LSE."""
    DP = 17
    """Σ_d dO[row, d] · V[col, d]; `terms` are the d so far."""
    DELTA = 18
    """Σ_d dO[row, d] · O[row, d]."""
    E = 19
    """dP[row, col] - delta[row]."""
    DS = 20
    DQ = 21
    DK = 22
    DV = 23
    """Sums over keys or queries: the row is that of the gradient."""


INPUTS = {"q": Kind.Q, "k": Kind.K, "v": Kind.V}


class Flag(IntEnum):
    """Irregularities in a value's computation; every flag but the last stays with the value up to the output."""

    INNER = 1
    KEYS = 2
    KEY = 4
    HEAD = 8
    REPEATED = 16
    ROWS = 32
    COLUMNS = 64
    TIMES_L = 128
    UNWEIGHTED = 256
    MASKED = 512
    """A score that was replaced by a constant."""


def among(kinds: npt.NDArray[np.int8], *wanted: Kind) -> npt.NDArray[np.bool_]:
    """Return which of `kinds` are one of `wanted`; np.isin takes ten times as long for a warp's lanes."""
    table = np.zeros(len(Kind), bool)
    table[list(wanted)] = True
    found: npt.NDArray[np.bool_] = table[kinds]
    return found


PASSING = int(Flag.MASKED)
"""Flags that concern a score only."""


@dataclass(frozen=True)
class Sizes:
    """The sizes that turn flat rows into heads, and how many words a set of terms takes."""

    shape: Shape

    @property
    def words(self) -> int:
        return -(-max(self.shape.skv, self.shape.d) // 64)

    @property
    def q_rows(self) -> int:
        return self.shape.b * self.shape.hq * self.shape.sq

    @property
    def kv_rows(self) -> int:
        return self.shape.b * self.shape.hkv * self.shape.skv

    def dtype(self) -> np.dtype[Any]:
        """The record of a tag.

        `node` is the value itself, `source` the node of the score that an exponent or weight was computed from,
        `factor` what an exponent was multiplied with since.
        """
        fields = [("kind", "i1"), ("flags", "i8"), ("row", "i4"), ("col", "i4")]
        fields += [("node", "i4"), ("source", "i4"), ("factor", "f8")]
        return np.dtype([*fields, ("terms", "u8", (self.words,))])

    def bit(self, at: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        """Return one-element sets, (n, words); a negative number gives the empty set."""
        words = np.zeros((len(at), self.words), np.uint64)
        some = np.flatnonzero(at >= 0)
        place = at[some].astype(np.int64)
        words[some, place // 64] = np.uint64(1) << (place % 64).astype(np.uint64)
        return words

    def key_bit(self, key: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        """Return the one-element set of the key within its head."""
        return self.bit(np.where(key >= 0, key % self.shape.skv, key))

    def other_head(self, row: npt.NDArray[Any], key: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Whether a query row is combined with a key of another head."""
        wanted = row // self.shape.sq // self.shape.group
        found: npt.NDArray[np.bool_] = (row >= 0) & (key >= 0) & (wanted != key // self.shape.skv)
        return found


def full(terms: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.bool_]:
    """Whether sets have `count` elements."""
    sizes: npt.NDArray[np.bool_] = size_of(terms) == count
    return sizes


def size_of(terms: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the number of elements of sets (…, words)."""
    counts = np.unpackbits(np.ascontiguousarray(terms).view(np.uint8), axis=-1)
    sizes: npt.NDArray[np.int64] = counts.sum(axis=-1, dtype=np.int64)
    return sizes
