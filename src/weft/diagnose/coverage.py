"""What observed stages prove: up to where the wrong rows were right, and from where they were not observed."""

from dataclasses import dataclass

import numpy as np

from weft.attention.emulate import Algorithm
from weft.tasks.attention_problem import AttentionProblem

from .compare import BY_KEY, Compared, Mask, order
from .ranges import ranges
from .taps import TAPPED, Key, Maker, Taps

CHAIN = ("k", "products", "scores", "masked", "m", "p", "l", "u")
"""Each is computed from those before it, except that U is not computed from l."""
CARRIED = ("m", "l", "u")
"""The stages that are carried from tile to tile."""
COMPUTED = ("products", "l", "u")
"""The stages that are observed where they are computed; the others where they are used."""
ENOUGH = 0.5
"""The share of a stage's visible elements that must be seen for it to count as observed."""


@dataclass(frozen=True)
class Coverage:
    """The stages of the rows that are wrong first; of all recorded rows if the first wrong stage has no rows."""

    problem: AttentionProblem
    algorithm: Algorithm
    compared: tuple[Compared, ...]
    first: Compared | None

    def proven_right(self) -> tuple[str, ...]:
        """Return the stages observed in these rows before the first wrong one that agree, with their tiles."""
        tiles: dict[str, list[int]] = {}
        for key, each in self._by_key().items():
            if self.first is not None and key == self.first.key:
                break
            if not each.wrong.any() and not each.partial and self._is_seen(key):
                tiles.setdefault(key[0], []).extend([] if key[1] is None else [key[1]])
        named = [stage for stage in TAPPED if stage in tiles]
        return tuple(stage if not tiles[stage] else f"{stage} (KV tile {ranges(tiles[stage])})" for stage in named)

    def lost_at(self) -> Key | None:
        """Return the first stage and tile not observed in these rows and not shown to be right by a later stage."""
        if self.first is None or self.first.key[0] == "q":
            return None
        if not self._is_seen(("q", None)):
            return "q", None
        tiles = -(-self.problem.workload.shape.skv // self.algorithm.block_n)
        # V is not used before U: where the weights are lost, V is not observed as a consequence.
        for key in sorted(order(tiles), key=lambda key: (key[1] is None, key[1] or 0, key[0] == "u", key[0] == "v")):
            if key == self.first.key:
                return None
            if key[1] is not None and not self._is_seen(key) and not self._is_cleared(key[0], key[1]):
                return key
        return None

    def right_makers(self, taps: Taps) -> frozenset[Maker]:
        """Return the instructions that made values of right stages, and none of a wrong one.

        A loop may be unrolled: copies of an instruction count as one. Every element of a right stage must be observed:
        a loop that leaves out a column makes the others right.
        """
        made: dict[bool, set[int]] = {True: set(), False: set()}
        for each in self.compared:
            right = not each.wrong.any() and not each.partial and self._is_seen(each.key, share=1.0)
            for makers in (each.tap.made, *((each.tap.event,) if each.key[0] in COMPUTED else ())):
                made[right] |= set(np.unique(makers[each.tap.observed & (makers != 0)]).tolist())
        known = {
            right: {Maker.of(taps.events[at].place, taps.events[at].opcode) for at in found}
            for right, found in made.items()
        }
        return frozenset(known[True] - known[False])

    def _by_key(self) -> dict[Key, Compared]:
        return {each.key: each for each in self.compared}

    def _rows(self) -> Mask:
        """(b, hq, sq)."""
        first = self.first
        if first is not None and first.key[0] not in ("k", "v"):
            wrong = first.wrong & first.tap.observed
            return np.asarray(wrong.any(axis=-1) if wrong.ndim == 4 else wrong)
        q = self._by_key().get(("q", None))
        shape = self.problem.workload.shape
        return np.ones(shape.lse, bool) if q is None else np.asarray(q.tap.observed.any(axis=-1))

    def _is_seen(self, key: Key, share: float = ENOUGH) -> bool:
        """Whether enough of a stage's elements visible to these rows was observed; true if there are none."""
        stage, tile = key
        rows = self._rows()
        keys = (
            slice(None) if tile is None else slice(tile * self.algorithm.block_n, (tile + 1) * self.algorithm.block_n)
        )
        in_sight = rows[..., None] & self.problem.mask[..., keys]
        if stage in ("k", "v"):
            b, _, sq, n = in_sight.shape
            shape = self.problem.workload.shape
            needed = in_sight.reshape(b, shape.hkv, shape.group, sq, n).any(axis=(2, 3))
        elif stage in BY_KEY:
            needed = in_sight
        else:
            needed = in_sight.any(axis=-1)
        if not needed.any():
            return True
        found = self._by_key().get(key)
        if found is None:
            return False
        return bool(found.tap.observed[needed].mean() >= share)

    def _is_cleared(self, stage: str, tile: int) -> bool:
        """Whether a stage computed from this one was observed in these rows and is right.

        K and V were followed if their products were observed at all: a kernel may leave some of them out.
        """
        products = {"k": ("products", "scores"), "v": ("u",)}.get(stage, ())
        if any((name, tile) in self._by_key() and self._is_seen((name, tile)) for name in products):
            return True
        made_here = () if stage == "l" else ("u",) if stage == "v" else CHAIN[CHAIN.index(stage) + 1 :]
        made_later = (*(name for name in made_here if name in CARRIED), *((stage,) if stage in CARRIED else ()))
        for key, each in self._by_key().items():
            name, at = key
            if at is None or not ((at == tile and name in made_here) or (at > tile and name in made_later)):
                continue
            if not each.wrong.any() and each.tap.observed.any() and self._is_seen(key):
                return True
        return False
