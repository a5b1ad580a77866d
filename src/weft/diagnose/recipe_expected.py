"""The expected values of each stage of the FP8 recipe, keyed and shaped like taps, and their tolerances.

Q, K, V and P are E4M3 values as the tensor core multiplies them, without their steps; so is U. Scores and m are
exponents of 2, of keys without their mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from weft.attention.dtypes import Array, epsilon, rounded, ulp
from weft.attention.e4m3 import E4M3PerBlock, e4m3_values
from weft.attention.fp8_recipe import P_SCALE, Followed, Recipe, RecipeRun, RecipeTile
from weft.attention.gates import ORDER_SHARE
from weft.tasks.recipe_problem import RecipeProblem

from .taps import Key

EPS = epsilon("f32")
CODE_WINDOW = 2.0**-20
"""Relative to x / step: where earlier roundings decide which of two codes is nearest, both are right."""


@dataclass(frozen=True, eq=False)
class RecipeStages:
    """A recipe on a problem, stage by stage."""

    problem: RecipeProblem
    recipe: Recipe

    @cached_property
    def run(self) -> RecipeRun:
        return self.problem.run(self.recipe)

    @cached_property
    def followed(self) -> Followed:
        return self.problem.followed(self.recipe)

    @cached_property
    def tiles(self) -> tuple[RecipeTile, ...]:
        return tuple(self.run.passes())

    @cached_property
    def values(self) -> Mapping[Key, Array]:
        """Return every stage."""
        run = self.run
        q, k, v = (e4m3_values(coded.codes) for coded in (run.q_coded, run.k_coded, run.v_coded))
        stages: dict[Key, Array] = {("q", None): q}
        for number, tile in enumerate(self.tiles):
            stages["k", number], stages["v", number] = k[:, :, tile.keys], v[:, :, tile.keys]
            stages["products", number] = run.matmul(q, run.per_query_head(k[:, :, tile.keys]).swapaxes(2, 3))
            for name in ("scores", "masked", "m", "p", "l", "u"):
                stages[name, number] = getattr(tile, name)
        stages["o", None], stages["lse", None] = self.followed.o, self.followed.lse
        return stages

    def of(self, stage: str, tile: int | None) -> Array:
        """Return the tolerance of one stage."""
        wanted = self.values[stage, tile].astype(np.float64)
        magnitude = np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
        if stage in ("q", "k", "v"):
            return self._open_codes(stage, tile)
        if stage in ("products", "scores", "masked", "m"):  # exact, except for the order of the factors
            return magnitude * 4 * EPS
        if stage == "lse":
            return np.asarray(ORDER_SHARE * (1 + magnitude))
        if stage == "o":
            share = ORDER_SHARE + self.followed.allowance
            return np.asarray(ulp(wanted, self.recipe.out_dtype) + share[..., None] * self._v_max)
        assert tile is not None
        held = self.tiles[tile]
        if stage == "p":
            return held.open_steps.astype(np.float64)
        if stage == "l":
            return magnitude * self._share(held) + 1e-30
        total = held.l.astype(np.float64) * float(P_SCALE) * self._share(held) + held.loose
        if not self.recipe.flush:  # a rescaled U with other last bits is truncated differently
            lost = self.recipe.lost_per_step * (self.recipe.block_n // self.recipe.products)
            total += held.l.astype(np.float64) * float(P_SCALE) * lost
        return np.asarray(total[..., None] * self._code_max)

    def _share(self, tile: RecipeTile) -> Array:
        """Return how far l may be off, as a share of itself: the exponential's last bits, and a rounding per key."""
        size = max((float(np.abs(m[np.isfinite(m)]).max(initial=0)) for m in (tile.masked, tile.m)), default=0.0)
        return np.asarray(2.0**-20 + size * 2.0**-21 + (tile.keys.start + self.recipe.block_n) * EPS)

    def _open_codes(self, stage: str, tile: int | None) -> Array:
        """Return the distance of two codes where either may be the nearest."""
        run, recipe = self.run, self.recipe
        if stage == "q":
            exact = run.q.astype(np.float32) / E4M3PerBlock(recipe.block_m).spread(run.q_coded.scale, run.q.shape)
        elif stage == "k":
            centred = run.k.astype(np.float32) - run.k_coded.mean[:, :, None]
            exact = centred / E4M3PerBlock(recipe.block_n).spread(run.k_coded.scale, run.k.shape)
        else:
            exact = run.v.astype(np.float32) / run.v_coded.scale[:, :, None]
        high, low = (
            rounded(np.clip(exact * np.float32(1 + sign * CODE_WINDOW), -448, 448), "e4m3") for sign in (1, -1)
        )
        steps = np.abs(high.astype(np.float64) - low.astype(np.float64))
        return steps if tile is None else steps[:, :, self.tiles[tile].keys]

    @cached_property
    def _v_max(self) -> Array:
        """(b, hq, 1, d)."""
        return self.run.per_query_head(np.abs(self.run.v.astype(np.float64)).max(axis=2))[:, :, None]

    @cached_property
    def _code_max(self) -> Array:
        codes = np.abs(e4m3_values(self.run.v_coded.codes).astype(np.float64))
        return self.run.per_query_head(codes.max(axis=2))[:, :, None]
