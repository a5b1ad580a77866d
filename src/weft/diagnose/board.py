"""What was observed of each stage: values, and the event and lane of every element."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from weft.attention.dtypes import Array

from .nodes import Numbers, Where
from .tags import NONE, PASSING, Flag, Kind, Sizes, Tags, among, size_of

MOST_DISAGREEMENTS = 1000
MOST_EXAMPLES = 4
PLACED = (Flag.ROWS,)
"""Flags whose first line is kept: no stage shows where rows are mixed, as the value belongs to no row from then on."""


class Oddity(IntEnum):
    """What is wrong with a stored result; the numbers differ from those of all flags."""

    UNEXPLAINED = -1
    CONSTANT = -6
    MISSING_KEYS = -2
    OTHER_ROW = -3
    OTHER_COLUMN = -4
    FEW_KEYS_IN_L = -5


@dataclass
class Sheet:
    """One stage over all rows; `event` 0 = not observed."""

    values: Numbers
    event: npt.NDArray[np.int32]
    lane: npt.NDArray[np.int8]
    node: npt.NDArray[np.int32]
    """The node of the value, made by an earlier event or (0) by this one."""

    @classmethod
    def blank(cls, *shape: int) -> "Sheet":
        marks = [np.zeros(shape, dtype) for dtype in (np.int32, np.int8, np.int32)]
        return cls(np.full(shape, np.nan), *marks)

    def put(self, at: tuple[Array, ...], values: Numbers, where: Where, nodes: Array | int = 0) -> None:
        self.values[at], self.event[at], self.lane[at], self.node[at] = values, where.event, where.lanes, nodes


@dataclass(frozen=True)
class Disagreement:
    """A later observation of an element, with another value than the first."""

    stage: str
    row: int
    col: int
    value: float
    event: int
    lane: int


class _Waiting(NamedTuple):
    """A score and the maximum subtracted from it, until a row of V shows its key."""

    score: float
    maximum: float
    s: Tags
    m: Tags
    event: int
    lane: int
    plain: bool


@dataclass
class Board:
    """The sheets of a recorded run. Rows and keys are counted over all heads, as in tags."""

    sizes: Sizes
    visible: npt.NDArray[np.uint64]
    """(query rows, words): the keys each row may see."""
    block_n: int
    splits: int = 1
    disagreements: list[Disagreement] = field(default_factory=list)
    examples: dict[Flag, list[tuple[Tags, Tags]]] = field(default_factory=dict)
    raised: dict["Oddity | Flag", int] = field(default_factory=dict)
    """The event that made the first value with a flag, of the flags in `PLACED`."""
    units: set[float] = field(default_factory=set)
    """The factors of score differences before a natural exponential."""
    odd: dict["Oddity | Flag", tuple[int, int, Tags]] = field(default_factory=dict)
    """What the tags of stored results show: how often, and the first row and tag."""

    def __post_init__(self) -> None:
        shape, rows = self.sizes.shape, self.sizes.q_rows
        self.tiles = -(-shape.skv // self.block_n)
        by_element, by_key = (rows, shape.d), (rows, shape.skv)
        self.sheets = {
            "q": Sheet.blank(*by_element),
            "k": Sheet.blank(self.sizes.kv_rows, shape.d),
            "v": Sheet.blank(self.sizes.kv_rows, shape.d),
            **{stage: Sheet.blank(*by_key) for stage in ("products", "unmasked", "scores", "masked", "p")},
            "m": Sheet.blank(rows, self.tiles),
            "l": Sheet.blank(rows, self.tiles),
            "u": Sheet.blank(rows, self.tiles, shape.d),
            "o": Sheet.blank(*by_element),
            "lse": Sheet.blank(rows),
        }
        # What l and U are multiplied with before a tile is added, and U to get O.
        self.factors = {"l": Sheet.blank(rows, self.tiles), "u": Sheet.blank(rows, self.tiles), "o": Sheet.blank(rows)}
        words = self.visible.shape[1]
        self.covered = {
            "m": np.zeros((rows, self.tiles, words), np.uint64),
            "l": np.zeros((rows, self.tiles, words), np.uint64),
            "u": np.zeros((rows, self.tiles, shape.d, words), np.uint64),
        }
        keys = np.arange(shape.skv)
        bits = self.sizes.bit(keys)
        self.tile_keys = np.stack(
            [np.bitwise_or.reduce(bits[keys // self.block_n == tile], axis=0) for tile in range(self.tiles)]
        )
        share = -(-self.tiles // self.splits)
        parts = [self.tile_keys[first : first + share] for first in range(0, self.tiles, share)]
        self.split_keys = np.repeat([np.bitwise_or.reduce(part, axis=0) for part in parts], share, axis=0)
        self.reach = np.full(by_key, -1)
        """The last key included in the maximum that was subtracted from each score."""
        self._unplaced: dict[int, _Waiting] = {}

    # -- single elements -----------------------------------------------------------------------------------------

    def note(
        self, stage: str, at: tuple[Array, Array], values: Numbers, where: Where, nodes: Array, *, once: bool = False
    ) -> None:
        """Record elements where they are used. The first value counts; others that differ are kept unless `once`."""
        known = (at[0] >= 0) & (at[1] >= 0)
        rows, cols, values, nodes = at[0][known], at[1][known], values[known], nodes[known]
        where = where.only(known)
        sheet = self.sheets[stage]
        fresh = sheet.event[rows, cols] == 0
        if fresh.any():
            new = np.flatnonzero(fresh)
            new = new[::-1] if where.in_steps else new  # of equal indices NumPy keeps the last
            sheet.put((rows[new], cols[new]), values[new], where._replace(lanes=where.lanes[new]), nodes[new])
        if once or len(self.disagreements) >= MOST_DISAGREEMENTS:
            return
        held = sheet.values[rows, cols]
        for i in np.flatnonzero((held != values) & ~(np.isnan(held) & np.isnan(values))):
            place = int(rows[i]), int(cols[i])
            self.disagreements.append(Disagreement(stage, *place, float(values[i]), where.event, int(where.lanes[i])))

    def example(self, flag: Flag, a: Tags, b: Tags, flags: npt.NDArray[np.int64]) -> None:
        """Keep a few pairs that raised a flag which neither had."""
        new = (flags & ~(a["flags"] | b["flags"]) & flag) != 0
        kept = self.examples.setdefault(flag, [])
        for i in np.flatnonzero(new)[:MOST_EXAMPLES]:
            if len(kept) < MOST_EXAMPLES:
                kept.append((a[i].copy(), b[i].copy()))

    # -- scores and maxima, in the exponent ------------------------------------------------------------------

    def exponent(self, s: Tags, s_values: Numbers, m: Tags, m_values: Numbers, where: Where) -> None:
        """Record S - m. A score whose key is unknown waits for the row of V that its weight is multiplied with."""
        rows, keys = s["row"], self.key(s["col"])
        plain = (s["flags"] & Flag.MASKED) == 0
        self.note("scores", (rows[plain], keys[plain]), s_values[plain], where.only(plain), s["node"][plain])
        self.note("masked", (rows, keys), s_values, where, s["node"])
        known = (rows >= 0) & (keys >= 0)
        self._maximum((rows[known], keys[known]), m_values[known], m[known], where.only(known))
        whole = known & (m["kind"] == Kind.M)
        self.reach[rows[whole], keys[whole]] = _last(m["terms"][whole])
        for i in np.flatnonzero(~known & (rows >= 0)):
            values = float(s_values[i]), float(m_values[i])
            self._unplaced[int(s["source"][i])] = _Waiting(
                *values, s[i].copy(), m[i].copy(), where.event, int(where.lanes[i]), bool(plain[i])
            )

    def before_mask(self, scores: Tags, values: Numbers, where: Where) -> None:
        """Record scores before a mask. The exponent's use of the other scores shows whether they are scaled yet."""
        at = scores["row"], self.key(scores["col"])
        self.note("unmasked", at, values, where, scores["node"], once=True)

    def settle(self) -> None:
        """At the end, accept masked scores if the mask had the same values of all other scores as the exponent."""
        used, hidden = self.sheets["scores"], self.sheets["unmasked"]
        both = (used.event != 0) & (hidden.event != 0)
        if both.any() and np.array_equal(used.values[both], hidden.values[both], equal_nan=True):
            at = np.nonzero((used.event == 0) & (hidden.event != 0))
            for name in ("values", "event", "lane", "node"):
                getattr(used, name)[at] = getattr(hidden, name)[at]

    def _maximum(self, at: tuple[Array, Array], values: Numbers, m: Tags, where: Where) -> None:
        """Record the last maximum that is subtracted from a tile's scores."""
        rows, keys = at
        tiles = rows, keys // self.block_n
        self.sheets["m"].put(tiles, values, where, m["node"])
        self.covered["m"][tiles] = m["terms"]

    def place(self, weights: Tags, keys: Array) -> None:
        """Record waiting scores, whose weights are multiplied with these rows of V."""
        if not self._unplaced:
            return
        for source, row, key in zip(weights["source"], weights["row"], self.key(keys), strict=True):
            waiting = self._unplaced.get(int(source))
            if waiting is None or row < 0 or key < 0:
                continue
            at, where = (np.array([row]), np.array([key])), Where(waiting.event, np.array([waiting.lane]))
            for stage in ("scores", "masked") if waiting.plain else ("masked",):
                score, node = np.array([waiting.score]), np.array([waiting.s["node"]])
                self.note(stage, at, score, where, node, once=True)
            self._maximum(at, np.array([waiting.maximum]), waiting.m.reshape(1), where)

    def key(self, col: Array) -> Array:
        """Return the key within its head."""
        return np.where(col >= 0, col % self.sizes.shape.skv, col)

    # -- sums over keys ------------------------------------------------------------------------------------------

    def covers(self, stage: str, tags: Tags, values: Numbers, where: Where) -> None:
        """Record l or U after a tile: among sums with all its visible keys and none beyond it or of another split, the
        first one with the most keys.
        """
        known = tags["row"] >= 0
        if stage == "u":
            known &= tags["col"] >= 0
        if not known.any():
            return
        rows, cols = tags["row"][known], tags["col"][known]
        visible = self.visible[rows]
        terms = tags["terms"][known] & visible
        tile = np.full(len(rows), -1)
        for number in range(self.tiles):
            wanted = self.tile_keys[number] & visible
            reaches, whole = (terms & wanted).any(axis=-1), ((terms & wanted) == wanted).all(axis=-1)
            tile = np.where(reaches, np.where(whole, number, -1), tile)
        found = np.flatnonzero(tile >= 0)
        found = found[~(terms[found] & ~self.split_keys[tile[found]]).any(axis=-1)]
        if not found.size:
            return
        at = (rows[found], tile[found]) if stage == "l" else (rows[found], tile[found], cols[found])
        more = size_of(terms[found]) > size_of(self.covered[stage][at])
        at = tuple(index[more] for index in at)
        found = found[more]
        self.sheets[stage].put(at, values[known][found], Where(where.event, where.lanes[known][found]))
        self.covered[stage][at] = terms[found]

    def rescaled(self, stage: str, old: Tags, factor: Tags, values: Numbers, where: Where) -> None:
        """Record what l or U is multiplied with: the rescale for the tile after the last one it has keys of."""
        known = (old["row"] >= 0) & (old["row"] == factor["row"])
        rows, terms = old["row"][known], old["terms"][known] & self.visible[old["row"][known]]
        tile = np.zeros(len(rows), np.int64)
        for number in range(self.tiles):
            tile[(terms & self.tile_keys[number]).any(axis=-1)] = number + 1
        found = (tile > 0) & (tile < self.tiles)
        at, nodes = (rows[found], tile[found]), factor["node"][known][found]
        self.factors[stage].put(at, values[known][found], where.only(known).only(found), nodes)

    def own_block(self) -> int | None:
        """Return the keys per tile of the kernel, from the keys in each maximum; None without a regular pattern."""
        rows, keys = np.nonzero(self.reach >= 0)
        if not rows.size:
            return None
        ends = self.reach[rows, keys] + 1
        guess = int(ends[keys == keys.min()].max()) - int(keys.min())
        for block in (self.block_n, guess):
            regular = np.minimum((keys // block + 1) * block, self.sizes.shape.skv)
            in_sight = np.minimum(regular, _last(self.visible[rows]) + 1)  # a branch kept the others out
            if ((ends == regular) | (ends == in_sight)).all():
                return block
        return None

    # -- results -------------------------------------------------------------------------------------------------

    def stored(self, name: str, index: Array, values: Numbers, tags: Tags, where: Where) -> None:
        """Record elements of O or LSE as they are written, and count what is wrong by their tags."""
        shape = self.sizes.shape
        rows, cols = np.divmod(index, shape.d) if name == "o" else (index, np.full(len(index), NONE))
        self.sheets[name].put((rows, cols) if name == "o" else (rows,), values, where, tags["node"])
        if name != "o":
            return
        sees_keys = self.visible[rows].any(axis=-1)
        missing = (self.visible[rows] & ~tags["terms"]).any(axis=-1)
        result = among(tags["kind"], Kind.O, Kind.U)
        constant = tags["kind"] == Kind.CONST
        self._odd(Oddity.UNEXPLAINED, sees_keys & ~result & ~constant, rows, tags)
        self._odd(Oddity.CONSTANT, sees_keys & constant, rows, tags)
        self._odd(Oddity.MISSING_KEYS, result & sees_keys & missing, rows, tags)
        self._odd(Oddity.OTHER_ROW, result & (tags["row"] >= 0) & (tags["row"] != rows), rows, tags)
        self._odd(Oddity.OTHER_COLUMN, result & (tags["col"] >= 0) & (tags["col"] != cols), rows, tags)
        for flag in Flag:
            if not flag & PASSING:
                self._odd(flag, result & ((tags["flags"] & flag) != 0), rows, tags)

    def divided(self, u: Tags, inverse: Tags, values: Numbers, where: Where) -> None:
        """Record what U is divided by; count results over all keys where that l has only some of them."""
        known = inverse["row"] >= 0
        u, inverse = u[known], inverse[known]
        self.factors["o"].put((inverse["row"],), values[known], where.only(known), inverse["node"])
        visible = self.visible[inverse["row"]]
        whole = ~(visible & ~u["terms"]).any(axis=-1)
        lacks = (visible & ~inverse["terms"]).any(axis=-1) & inverse["terms"].any(axis=-1)
        self._odd(Oddity.FEW_KEYS_IN_L, whole & lacks, inverse["row"], inverse)

    def _odd(self, what: "Oddity | Flag", which: npt.NDArray[np.bool_], rows: Array, tags: Tags) -> None:
        found = np.flatnonzero(which)
        if found.size:
            count, row, tag = self.odd.get(what, (0, int(rows[found[0]]), tags[found[0]].copy()))
            self.odd[what] = count + found.size, row, tag


def _last(terms: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the highest element of sets (n, words), -1 for an empty one."""
    bits = np.unpackbits(np.ascontiguousarray(terms).view(np.uint8), axis=-1, bitorder="little")
    last = bits.shape[-1] - 1 - np.argmax(bits[:, ::-1], axis=-1)
    return np.where(bits.any(axis=-1), last, -1)
