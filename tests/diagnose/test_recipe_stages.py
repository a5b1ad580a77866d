"""Kernels of the FP8 recipe: all stages of a right kernel are observed and right; a wrong one's first is named."""

import re
from pathlib import Path

import pytest

from tests.diagnose.edited import line_of, text_of
from tests.in_turn import one_in
from weft.attention.emulate import Algorithm
from weft.attention.shapes import Shape
from weft.core.records import inlining_chain
from weft.diagnose.compare import compare_stages, first_wrong
from weft.diagnose.conclusion import place_of, sentence, stage_of
from weft.diagnose.diagnose import explain
from weft.diagnose.recipe_expected import RecipeStages
from weft.diagnose.recipe_locate import locate_recipe
from weft.diagnose.records import Case, Diagnosis
from weft.diagnose.taps import TAPPED
from weft.judge.judge import check
from weft.judge.select import find_candidate
from weft.kernels.ladder import RUNGS
from weft.tasks.recipe_problem import RecipeProblem, recipe_of
from weft.tasks.task import Workload

ONE_TILE = Shape("one_tile", 1, 1, 1, 8, 24, 8)
TWO_TILES = Shape("two_tiles", 1, 1, 1, 8, 72, 8)
TWO_HEADS = Shape("two_heads", 1, 2, 2, 8, 24, 8)
SMALL = {
    "BLOCK_M = 64": "BLOCK_M = 16",
    "WARPS = 4": "WARPS = 1",
    "BLOCK_M = 128": "BLOCK_M = 64",
    "BLOCK_N = 128": "BLOCK_N = 64",
}
"""One warp of attention to follow instead of four; of `fp8_hopper` one warpgroup of consumers, and tiles of 64 keys."""


def _write(folder: Path, rung: str, text: str) -> Path:
    for usual, small in SMALL.items():
        text = re.sub(rf"((?://|#) weft: define +){usual}$", rf"\g<1>{small}", text, flags=re.MULTILINE)
    file = folder / f"{rung}_edited{RUNGS[rung].path.suffix}"
    file.write_text(text)
    return file


def _explained(file: Path, shape: Shape, mask: str) -> Diagnosis:
    candidate, supports = find_candidate(str(file), task="quantised_sdpa")
    workload = Workload(shape, "f16", mask, "unit_normal", 0)
    verdict = check(candidate, supports.task, workload, tools=())
    return explain(Case(candidate, supports.task, supports.task.draw(workload), verdict, verdict))


@pytest.mark.parametrize("rung", one_in(6, ["fp8_pipelined", "fp8_mma", "fp8_triton", "fp8_hopper"]))
def test_every_stage_of_a_right_kernel_is_observed_and_right(rung: str, tmp_path: Path) -> None:
    file = _write(tmp_path, rung, RUNGS[rung].path.read_text())
    candidate, supports = find_candidate(str(file), task="quantised_sdpa")
    problem = supports.task.draw(Workload(TWO_TILES, "f16", "none", "unit_normal", 0))
    assert isinstance(problem, RecipeProblem)
    kernel = candidate.load(problem)
    recipe = recipe_of(candidate.declared_at(kernel, problem).macros, "f16")
    stages = RecipeStages(problem, recipe)
    algorithm = Algorithm(block_m=recipe.block_m, block_n=recipe.block_n, out_dtype="f16", exp_base=2)
    recorded = locate_recipe(kernel, problem.arrays, algorithm, causal=None, position=(0, 0))
    taps = recorded.taps
    assert (
        taps.observed == TAPPED and not taps.facts and not recorded.unscored.any() and not recorded.weighs_padding.any()
    )
    compared = compare_stages(problem, taps, algorithm, stages.values, stages)
    # l is summed over lanes after the last tile: that of the first tile need not be observed.
    assert {each.key for each in compared} >= set(stages.values) - {("l", 0)}
    assert all(each.tap.observed.all() for each in compared)
    assert first_wrong(compared) is None


@pytest.mark.parametrize(
    ("stage", "old", "new", "shape", "mask"),
    one_in(4, [
        ("o", " * v_step[kv_head * D + d]);", ");", ONE_TILE, "none"),
        ("scores", "k_step[kv_head * blocks + first_key", "k_step[first_key", TWO_HEADS, "none"),
        ("p", "s[j][c] = p * P_SCALE;", "s[j][c] = p * 128.0f;", ONE_TILE, "none"),
        ("k", "x[round].y - mean.y", "x[round].y", ONE_TILE, "none"),
        ("k", "* H::COLUMNS, H::COLUMNS);", "* H::COLUMNS, H::COLUMNS / 2);", ONE_TILE, "none"),
        ("v", "sInverse[d] = 1.0f / step;", "sInverse[d] = 0.5f / step;", ONE_TILE, "none"),
        ("masked", "key < visible[c / 2]", "key <= visible[c / 2]", ONE_TILE, "top_left"),
        ("masked", "key < visible[c / 2]", "true", ONE_TILE, "none"),
        ("l", "l[r] *= rescale[r];", ";", TWO_TILES, "none"),
        ("u", "u[j][c] = __fadd_rn(u[j][c], sum[c]);", "u[j][c] = sum[c];", TWO_TILES, "none"),
    ], several=True),
    ids=["v_step_forgotten", "other_heads_step", "p_scale", "mean_kept", "stride_of_k_codes", "v_codes",
         "mask_off_by_one", "end_not_masked", "l_not_rescaled", "u_overwritten"],
)  # fmt: skip
def test_first_wrong_stage(stage: str, old: str, new: str, shape: Shape, mask: str, tmp_path: Path) -> None:
    diagnosis = _explained(_write(tmp_path, "fp8_mma", text_of("fp8_mma", old, new)), shape, mask)
    assert not diagnosis.verdict.passed
    assert stage_of(diagnosis) == stage


@pytest.mark.parametrize(
    ("stage", "old", "new"),
    one_in(4, [
        ("v", "k8 = word_at(v, key + 8, channel)", "k8 = word_at(v, key + 2, channel)"),
        ("scores", "const float factor = q_unit * k_step", "const float factor = k_step"),
        ("p", "s[e] = weight * P_SCALE;", "s[e] = weight * 128.0f;"),
        ("l", "l[r] *= rescale;", ";"),
    ], several=True),
    ids=["keys_of_v_in_another_order", "step_of_q_forgotten", "p_scale", "l_not_rescaled"],
)  # fmt: skip
def test_first_wrong_stage_behind_tma_and_wgmma(stage: str, old: str, new: str, tmp_path: Path) -> None:
    """The same in `fp8_hopper`: codes are followed through TMA, the transposition of V, and shared memory."""
    diagnosis = _explained(_write(tmp_path, "fp8_hopper", text_of("fp8_hopper", old, new)), TWO_TILES, "none")
    assert not diagnosis.verdict.passed
    assert stage_of(diagnosis) == stage


@pytest.mark.parametrize(
    ("stage", "old", "new", "words"),
    one_in(
        2,
        [
            (
                "k",
                "__float2bfloat16_rn(sum / float(SKV))",
                "__float2bfloat16_rn(truncf(sum / float(SKV)))",
                "the mean is 0, ",
            ),
            ("v", "fabsf(float(v[at]))", "fabsf(float(k[at]))", "the step is "),
            ("q", "fmaxf(fabsf(x.z), fabsf(x.w))", "fminf(fabsf(x.z), fabsf(x.w))", "the step is "),
            ("v", "float(from[key * D]) * inverse_v", "float(from[key * D])", "it is not divided by a step"),
        ],
        several=True,
    ),
    ids=["mean", "largest_of_another", "largest_lost", "no_step"],
)
def test_the_line_of_a_wrong_statistic(stage: str, old: str, new: str, words: str, tmp_path: Path) -> None:
    """The codes are wrong where they are stored; what makes them wrong is a mean, a step, or its absence."""
    file = _write(tmp_path, "fp8_mma", text_of("fp8_mma", old, new))
    found = _explained(file, ONE_TILE, "none")
    assert stage_of(found) == stage and words in sentence(found)
    assert line_of(file, new) in [at.line for at in inlining_chain(place_of(found))]


def test_the_line_where_a_largest_starts(tmp_path: Path) -> None:
    """A largest that starts at 100 stays 100, and no element has this magnitude."""
    start = "    float largest = 0.0f;\n"
    text = RUNGS["fp8_mma"].path.read_text()
    file = _write(tmp_path, "fp8_mma", text.replace(start, start.replace("0.0f", "100.0f"), 1))
    found = _explained(file, ONE_TILE, "none")
    place = place_of(found)
    assert place is not None and place.line == line_of(file, "float largest = 100.0f;")


def test_a_wrong_mask_by_the_observed_scores(tmp_path: Path) -> None:
    file = _write(tmp_path, "fp8_mma", text_of("fp8_mma", "min(SKV, diagonal + 1)", "min(SKV, diagonal + 2)"))
    found = _explained(file, ONE_TILE, "top_left")
    assert found.signatures[0].name == "causal_shift" and "shifted by +1" in found.signatures[0].message
    assert stage_of(found) == "masked"
