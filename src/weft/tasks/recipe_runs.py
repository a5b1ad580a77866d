"""Right implementations of the FP8 recipe, which make other choices where the recipe allows several."""

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from weft.attention.dtypes import Array, rounded
from weft.attention.e4m3 import E4M3PerBlock, SmoothedKeys
from weft.attention.fp8_recipe import RecipeRun
from weft.attention.reference import Attended

from .recipe_problem import RecipeProblem, recipe_of
from .task import Outputs


def follow(problem: RecipeProblem, kind: type[RecipeRun] = RecipeRun, **changed: Array) -> Attended:
    """Return the results with a single piece changed: another kind of run, or other inputs of it."""
    given = {"q": problem.q, "k": problem.k, "v": problem.v, "mask": problem.mask, **changed}
    followed = kind(recipe_of({}, problem.workload.dtype), **given).follow()
    return Attended(followed.o, followed.lse)


class ExactExponential(RecipeRun):
    """An exponential without ex2.approx's rounding of tiny results, and other last bits."""

    def exp2(self, x: Array) -> Array:
        return np.asarray(np.exp(x.astype(np.float64) * np.log(2)).astype(np.float32) * np.float32(1 + 2.0**-23))


class MeanInDouble(RecipeRun):
    """K's mean summed in another order: it is rounded to bf16 anyway."""

    @cached_property
    def k_coded(self) -> SmoothedKeys:
        mean = rounded(self.k.astype(np.float64).mean(axis=2).astype(np.float32), "bf16")
        return SmoothedKeys(
            *E4M3PerBlock(self.recipe.block_n).encode(self.k.astype(np.float32) - mean[:, :, None]), mean
        )


class SumsInDouble(RecipeRun):
    """l and the last division wider than float32."""

    def normalised(self, u: Array, l: Array) -> Array:
        return super().normalised(u.astype(np.float64), l.astype(np.float64))


RIGHT_RECIPES: Mapping[str, Callable[[RecipeProblem], Outputs]] = {
    "recipe": lambda problem: follow(problem)._asdict(),
    "exact_exponential": lambda problem: follow(problem, ExactExponential)._asdict(),
    "mean_in_double": lambda problem: follow(problem, MeanInDouble)._asdict(),
    "sums_in_double": lambda problem: follow(problem, SumsInDouble)._asdict(),
}
"""Right implementations: a gate that rejects one of them is wrong."""
