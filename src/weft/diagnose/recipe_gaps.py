"""Where an operand of a tensor core does not come from its input: zeros, unwritten bytes, another array.

Every code of Q, K and V that the recorded rows need is observed where it is multiplied. A code that is not observed,
while others of its array are, is the first mistake if its results are wrong or not observed either.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from weft.core.records import Finding, Place
from weft.tasks.recipe_problem import RecipeProblem

from .compare import Compared, Mask
from .recipe_locate import RecipeTaps
from .tags import INPUTS
from .taps import TAPPED, Key, Taps

MADE_OF = {"k": "scores", "v": "u"}


@dataclass(frozen=True)
class Gaps:
    """The missing operands of the rows that are wrong first."""

    problem: RecipeProblem
    recorded: RecipeTaps
    compared: tuple[Compared, ...]
    first: Compared

    @property
    def taps(self) -> Taps:
        return self.recorded.taps

    def earliest(self) -> Key | None:
        """Return the first operand missing before the first wrong stage; None if all were observed."""
        if self.first.key[0] in ("q", "k", "v"):
            return None
        rows, q = self._rows(), self.taps.at("q")
        if q is not None and (rows[..., None] & ~q.observed).any():
            return "q", None
        missing = next(self._of_tiles(rows), None)
        if missing is None and self.recorded.weighs_padding[rows].any():
            return "masked", self._tiles()[-1]
        return missing

    def place(self, key: Key) -> Place | None:
        """Return the line that computes the observed elements of an operand."""
        tap = self.taps.at(*key) or next((tap for (name, _), tap in self.taps.taps.items() if name == key[0]), None)
        if tap is None:
            return None
        made = self.taps.maker(tap, tuple(int(i) for i in np.argwhere(tap.observed)[0]))
        return made.place if made is not None else None

    def _of_tiles(self, rows: Mask) -> Iterator[Key]:
        stage, last = self.first.key
        tiles = self._tiles()
        for tile in tiles if last is None else tiles[: last + 1]:
            for name, made in MADE_OF.items():
                before = last is None or tile < last or TAPPED.index(stage) >= TAPPED.index(made)
                before |= name == "k" and stage == "products"
                if before and self._is_missing(name, tile, rows) and not self._is_right(made, tile, rows):
                    yield name, tile
            if (self._in_sight(tile, rows) & self.recorded.unscored[..., self._keys(tile)]).any():
                yield "k", tile  # all codes may be observed, but not this key's in its place

    def _rows(self) -> Mask:
        wrong = self.first.wrong & self.first.tap.observed
        return np.asarray(wrong.any(axis=-1) if wrong.ndim == 4 else wrong)

    def _is_missing(self, name: str, tile: int, rows: Mask) -> bool:
        if not any(stage == name for stage, _ in self.taps.taps):
            return False
        shape = self.problem.workload.shape
        in_sight = self._in_sight(tile, rows)
        needed = np.asarray(in_sight.reshape(shape.b, shape.hkv, shape.group, shape.sq, -1).any(axis=(2, 3)))
        tap = self.taps.at(name, tile)
        return bool(needed.any() and (tap is None or (needed[..., None] & ~tap.observed).any()))

    def _is_right(self, stage: str, tile: int, rows: Mask) -> bool:
        """Whether all of it was observed in these rows and is right."""
        each = next((each for each in self.compared if each.key == (stage, tile)), None)
        if each is None:
            return False
        in_sight = self._in_sight(tile, rows)
        needed = in_sight if stage == "scores" else in_sight.any(axis=-1)
        return bool(each.tap.observed[needed].all() and not each.wrong[needed].any())

    def _in_sight(self, tile: int, rows: Mask) -> Mask:
        return np.asarray(rows[..., None] & self.problem.mask[:, self._keys(tile)])

    def _tiles(self) -> range:
        return range(-(-self.problem.workload.shape.skv // self.taps.algorithm.block_n))

    def _keys(self, tile: int) -> slice:
        return slice(tile * self.taps.algorithm.block_n, (tile + 1) * self.taps.algorithm.block_n)


def faulting_input(findings: tuple[Finding, ...], taps: Taps) -> Key | None:
    """Return the one input that a line handles where an out-of-bounds access stopped a launch."""
    for finding in findings:
        kinds = {
            kind
            for act in taps.acts
            if act.event.ptx_line == finding.ptx_line and act.what in ("load", "store")
            for kind in act.kinds
        }
        stages = [stage for stage, kind in INPUTS.items() if {kind} == kinds]
        if finding.code.startswith("M") and stages:
            return stages[0], None
    return None
