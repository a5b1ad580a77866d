"""Attention by the FP8 recipe as a problem: its inputs, and the results of a recipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from weft.attention.dtypes import Array
from weft.attention.fp8_noise import recipe_noise
from weft.attention.fp8_recipe import Followed, Recipe, RecipeRun

from .attention_problem import AttentionProblem


@dataclass(frozen=True)
class RecipeProblem(AttentionProblem):
    """Attention, with the results of a recipe."""

    @property
    def has_stages(self) -> bool:
        """False: a recipe's stages are codes, not the values of float32 attention."""
        return False

    def run(self, recipe: Recipe) -> RecipeRun:
        """Return the recipe in pieces, on these inputs; the inputs are quantised once."""
        if recipe not in self._runs:
            self._runs[recipe] = RecipeRun(recipe, self.q, self.k, self.v, self.mask)
        return self._runs[recipe]

    def followed(self, recipe: Recipe) -> Followed:
        """Return the results that a kernel must give."""
        if recipe not in self._followed:
            self._followed[recipe] = self.run(recipe).follow()
        return self._followed[recipe]

    def size(self, recipe: Recipe, draws: int) -> Array:
        """Return the expected total error, per head and block of rows."""
        if (recipe, draws) not in self._sizes:
            self._sizes[recipe, draws] = recipe_noise(self.run(recipe), self.exact, draws=draws)
        return self._sizes[recipe, draws]

    @cached_property
    def _runs(self) -> dict[Recipe, RecipeRun]:
        return {}

    @cached_property
    def _followed(self) -> dict[Recipe, Followed]:
        return {}

    @cached_property
    def _sizes(self) -> dict[tuple[Recipe, int], Array]:
        return {}


def recipe_of(macros: Mapping[str, str], dtype: str) -> Recipe:
    """Return the recipe that a kernel's macros declare."""
    return Recipe(
        block_m=int(macros.get("BLOCK_M", "64")),
        block_n=int(macros.get("BLOCK_N", "64")),
        flush=macros.get("FLUSH", "64") != "0",
        smooth=macros.get("SMOOTH", "1") != "0",
        products=int(macros.get("FUSED_PRODUCTS", "16")),
        out_dtype=dtype,
    )
