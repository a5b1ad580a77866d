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
from .recipe_statistics import wrong_statistic
from .records import Case
from .signatures.lines import dead_mask, lost_load
from .spelling import own_place
from .taps import Key
from .worked import Worked


@dataclass(frozen=True)
class RecipeCoverage(Coverage):
    """Coverage in which an operand with missing elements does not count as right."""

    missing: Key | None = None

    def proven_right(self) -> tuple[str, ...]:
        proven = super().proven_right()
        return tuple(text for text in proven if self.missing is None or text.split(" ")[0] != self.missing[0])


def with_recipe_stages(case: Case, problem: RecipeProblem) -> tuple[Case, Coverage | None]:
    """Add taps and the first divergence; only that of the output where the kernel cannot be recorded."""
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
    seen = replace(seen, taps=taps, made_right=coverage.right_makers(taps))
    if found is None:
        stopped = taps.at("o") is None
        return replace(seen, lost=faulting_input(case.findings, taps) if stopped else None), coverage
    operand = wrong_statistic(found, recorded.statistics, recorded.nodes, taps.acts, stages)
    divergence = divergence_of(found, taps, kernel, worked, operand)
    seen = replace(seen, divergence=divergence, lost=coverage.lost_at())
    gaps = Gaps(problem, recorded, compared, found)
    missing = gaps.earliest()
    if missing is not None:
        coverage = RecipeCoverage(problem, algorithm, compared, found, missing)
        place = own_place(gaps.place(missing), kernel)
        place = dead_mask(place) if missing[0] == "masked" else place
        seen = replace(seen, lost=missing, lost_place=lost_load(seen, missing) or place)
    return seen, coverage


class RecipeWorked(Worked):
    """Arithmetic in which Q, K, V and P are E4M3 values, and U is a sum of their products."""

    def _operand(self, name: str, index: tuple[int, ...]) -> str:
        mean = " - its mean" if name == "k" else ""
        return f"e4m3(({name}[{', '.join(map(str, index))}]{mean}) / step)"

    def _scores(self, tile: int | None, index: tuple[int, ...]) -> str:
        product = float(self.expected["products", tile][index])
        return f"(Σ_d q·k) · step_q · step_k · scale · log2(e) = {product:.6g} · {self._factor(tile, index):.6g}"

    def _factor(self, tile: int | None, index: tuple[int, ...]) -> float:
        product, score = (float(self.expected[stage, tile][index]) for stage in ("products", "scores"))
        return score / product if product else 0.0

    def _p(self, tile: int | None, index: tuple[int, ...]) -> str:
        score, m = float(self.expected["masked", tile][index]), float(self.expected["m", tile][index[:3]])
        return f"e4m3(2^8 · exp2(score - m)) = e4m3(256 · exp2({score:.6g} - {m:.6g}))"

    def _l(self, tile: int | None, index: tuple[int, ...]) -> str:
        before = self._before("l", tile, index)
        if before is None:
            return "Σ P over the tile's keys, P before its rounding"
        return f"l · exp2(m_old - m_new) + Σ P, with {before:.6g} · {self._rescale(tile, index):.6g}"

    def _o(self, tile: int | None, index: tuple[int, ...]) -> str:
        last = self.last_tile()
        u, l = float(self.expected["u", last][index]), float(self.expected["l", last][index[:3]])
        return f"U / (2^8 · l) · step_v = {u:.6g} / (256 · {l:.6g}) · step_v"

    def _lse(self, tile: int | None, index: tuple[int, ...]) -> str:
        m, l = (float(self.expected[name, self.last_tile()][index]) for name in ("m", "l"))
        return f"(m + log2 l) · ln 2 + q·mean(k) · scale, with m = {m:.6g}, l = {l:.6g}"
