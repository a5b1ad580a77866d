"""The first wrong stage of a kernel that follows the FP8 recipe."""

from dataclasses import dataclass, replace

import numpy as np

from weft.attention.emulate import Algorithm
from weft.core.errors import WeftError
from weft.tasks.recipe_problem import RecipeProblem, recipe_of

from .compare import compare_stages, differs, first_wrong
from .coverage import Coverage
from .divergence import divergence_of, output_divergence
from .owners import owner
from .recipe_expected import RecipeStages
from .recipe_gaps import Gaps, faulting_input
from .recipe_locate import locate_recipe
from .recipe_worked import RecipeWorked
from .records import Case
from .spelling import own_place
from .taps import Key


@dataclass(frozen=True)
class RecipeCoverage(Coverage):
    """An operand of which a part is missing is not right, whatever was seen of it."""

    missing: Key | None = None

    def proven_right(self) -> tuple[str, ...]:
        proven = super().proven_right()
        return tuple(text for text in proven if self.missing is None or text.split(" ")[0] != self.missing[0])


def with_recipe_stages(case: Case, problem: RecipeProblem) -> tuple[Case, Coverage | None]:
    """With taps and the first divergence; of the output alone where the kernel cannot be recorded."""
    kernel, o = case.kernel, case.o
    assert kernel is not None and o is not None
    recipe = recipe_of(case.candidate.declared_at(kernel, problem).macros, problem.workload.dtype)
    stages = RecipeStages(problem, recipe)
    algorithm = Algorithm(block_m=recipe.block_m, block_n=recipe.block_n, out_dtype=recipe.out_dtype, exp_base=2)
    case = replace(case, algorithm=algorithm, expected=stages.values)
    if o.shape != problem.workload.shape.q:
        shape = f"O has the shape {o.shape}, not {problem.workload.shape.q}: it cannot be compared"
        return replace(case, not_recorded=shape), None
    wrong = differs(o.astype(np.float64), stages.followed.o.astype(np.float64), stages.of("o", None))
    worked = RecipeWorked(problem, algorithm, stages.values)
    seen = case
    if wrong.any():
        seen = replace(case, divergence=output_divergence(worked, wrong, o, stages.followed.o, stages.of("o", None)))
    try:
        position = owner(kernel, problem, wrong) if wrong.any() else (0, 0)
        recorded = locate_recipe(kernel, problem.arrays, algorithm, causal=problem.causal, position=position)
    except WeftError as error:  # what cannot be recorded is not observed
        return replace(seen, not_recorded=str(error)), None
    taps = recorded.taps
    compared = compare_stages(problem, taps, algorithm, stages.values, stages)
    found = first_wrong(compared)
    coverage = RecipeCoverage(problem, algorithm, compared, found)
    seen = replace(seen, taps=taps)
    if found is None:
        stopped = taps.at("o") is None
        return replace(seen, lost=faulting_input(case.findings, taps) if stopped else None), coverage
    seen = replace(seen, divergence=divergence_of(found, taps, kernel, worked), lost=coverage.lost_at())
    gaps = Gaps(problem, recorded, compared, found)
    missing = gaps.earliest()
    if missing is not None:
        coverage = RecipeCoverage(problem, algorithm, compared, found, missing)
        seen = replace(seen, lost=missing, lost_place=own_place(gaps.place(missing), kernel))
    return seen, coverage
