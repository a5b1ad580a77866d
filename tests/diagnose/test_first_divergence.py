"""One wrong line in a right kernel: the first stage that differs is the one that line computes."""

from pathlib import Path

import numpy as np
import pytest

from tests.diagnose.edited import TILES_AND_A_BIT, explained, line_of, write
from tests.in_turn import one_in
from weft.attention.reference import attention, default_scale
from weft.attention.shapes import Shape
from weft.diagnose.compare import compare_stages, first_wrong
from weft.diagnose.conclusion import faulty_launch, place_of, sentence, stage_of
from weft.diagnose.diagnose import declared_algorithms, expected, shown_algorithm
from weft.diagnose.launches import judge_launches
from weft.diagnose.locate import locate
from weft.diagnose.ranges import ranges
from weft.engines.virtual import VirtualGPU
from weft.judge.select import find_candidate
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.task import Workload

FEW_KEYS = Shape("few_keys", 1, 1, 1, 3, 14, 8)


def test_missing_rescale(tmp_path: Path) -> None:
    file = write(tmp_path, "fa1", "u[r][i] *= rescale;", ";")
    found = explained(file)
    first = found.first
    assert first is not None and (first.stage, first.tile, first.keys) == ("u", 1, range(32, 48))
    assert stage_of(found) == "u" and found.case.lost is None
    assert {"l (KV tile 0-1)", "p (KV tile 0-1)", "u (KV tile 0)"} <= set(found.proven_right)
    assert first.site is not None and first.site.place is not None
    assert (first.site.place.file, first.site.place.line) == (str(file), line_of(file, "u[r][i] += weight"))
    # Exactly the rows whose maximum rises in the second tile: the others need no rescaling.
    problem = found.case.attention
    assert problem is not None
    scores = problem.q.astype(np.float64) @ problem.k.astype(np.float64).swapaxes(2, 3)
    rises = scores[0, 0, :4, 32:].max(axis=1) > scores[0, 0, :4, :32].max(axis=1)
    assert first.rows == ranges(np.flatnonzero(rises).tolist()) and first.columns == "0-7"
    should, has = first.arithmetic
    assert "U · exp(m_old - m_new) + Σ P·V" in should and has.startswith("the kernel has ")


def test_scale_twice(tmp_path: Path) -> None:
    file = write(tmp_path, "fa1", "p[r][n] * scale :", "p[r][n] * scale * scale :")
    found = explained(file)
    first = found.first
    assert first is not None and (first.stage, first.tile) == ("scores", 0)
    assert first.share > 0.99 and "products (KV tile 0)" in found.proven_right
    ratio = first.actual[first.wrong] / first.expected[first.wrong]
    np.testing.assert_allclose(ratio, default_scale(8), rtol=1e-4)
    assert first.site is not None and first.site.place is not None
    assert line_of(file, "* scale * scale") <= first.site.place.line <= line_of(file, "p[r][n] = expf")


def test_mask_one_too_far(tmp_path: Path) -> None:
    file = write(tmp_path, "fa1", "key < end[r] ?", "key <= end[r] ?")
    found = explained(file, mask="top_left")
    first = found.first
    assert first is not None and (first.stage, first.tile) == ("masked", 0)
    _, _, rows, keys = np.nonzero(first.wrong)
    np.testing.assert_array_equal(keys, rows + 1)
    assert "key 1 is not visible" in first.arithmetic[0]


def test_v_of_the_next_key(tmp_path: Path) -> None:
    file = write(
        tmp_path, "fa1", "d < D ? sKV[(n * 32 + j) * STRIDE + d]", "d < D ? sKV[(n * 32 + (j + 1) % 32) * STRIDE + d]"
    )
    found = explained(file)
    first = found.first
    assert first is not None and (first.stage, first.tile) == ("u", 0)
    assert "p (KV tile 0)" in found.proven_right
    assert found.case.taps is not None and "key_mismatch" in {fact.code for fact in found.case.taps.facts}
    assert first.site is not None and first.site.place is not None
    assert first.site.place.line == line_of(file, "u[r][i] += weight")


def test_reduction_alone(tmp_path: Path) -> None:
    file = write(tmp_path, "split_k", "u += expf(part_m[part] - m) * part_u", "u += part_u")
    found = explained(file, shape=FEW_KEYS)
    assert [launch.right for launch in found.launches] == [True, False]
    faulty = faulty_launch(found)
    assert faulty is not None and faulty.entry == "split_k_reduce"
    assert faulty.place.line == line_of(file, "split_k_reduce<{D}>")
    assert faulty.wrong["o"].any() and not faulty.wrong["lse"].any()
    assert found.first is not None and found.first.stage == "o"


def test_partials_alone(tmp_path: Path) -> None:
    file = write(tmp_path, "split_k", "l = l * rescale + p;", "l = l + p;")
    found = explained(file, shape=FEW_KEYS)
    assert [launch.right for launch in found.launches] == [False, True]
    partial = found.launches[0]
    assert partial.wrong["part_l"].any() and not partial.wrong["part_u"].any() and not partial.wrong["part_m"].any()
    assert found.first is not None and found.first.stage == "l"


def test_a_race_upstream_is_the_cause(tmp_path: Path) -> None:
    text = "load_tile<D, STRIDE>(sKV, k_head, first_key, BLOCK_N, SKV);\n        __syncthreads();\n"
    file = write(tmp_path, "fa1", text, text.replace("        __syncthreads();\n", ""))
    found = explained(file)
    assert found.causes and {finding.code for finding in found.causes} >= {"R102"}
    assert found.causes[0].code in ("R102", "R103")
    # Warps that read the tile too early never read K: values are lost at their scores, and no stage is claimed.
    assert stage_of(found) == "scores"
    assert not any(stage.startswith("scores") for stage in found.proven_right)
    place = place_of(found)
    assert place is not None and place.file == str(file)
    assert "race" in sentence(found)


def test_the_cta_of_the_first_wrong_row(tmp_path: Path) -> None:
    """Only rows of the second CTA are wrong: that CTA is followed."""
    file = write(
        tmp_path, "fa1", "ELEMENT(u[r][i] * inverse);", "ELEMENT(u[r][i] * inverse * (query > 3 ? 2.0f : 1.0f));"
    )
    first = explained(file).first
    assert first is not None and (first.stage, first.rows) == ("o", "4-5")
    assert first.site is not None and first.site.cta == (1, 0, 0)


RIGHT = [
    ("scalar", "none", Shape("keys", 1, 1, 1, 5, 20, 40)),
    ("fa1", "bottom_right", Shape("few_keys", 1, 2, 1, 20, 9, 8)),  # rows without a visible key
    ("split_k", "top_left", Shape("splits", 1, 1, 1, 9, 13, 8)),
    ("wmma_qk", "none", Shape("one_tile", 1, 1, 1, 16, 20, 16)),
    ("wmma", "top_left", Shape("two_tiles", 1, 1, 1, 32, 40, 16)),
    ("fp8_scalar", "none", Shape("keys", 1, 1, 1, 4, 12, 16)),
    ("fp8_wmma", "none", Shape("two_tiles", 1, 1, 1, 32, 40, 16)),
]


@pytest.mark.parametrize(
    ("rung", "mask", "shape"), one_in(6, RIGHT, several=True), ids=lambda value: value if isinstance(value, str) else ""
)
def test_right_kernels_differ_nowhere(rung: str, mask: str, shape: Shape) -> None:
    candidate, supports = find_candidate(rung, task=None)
    problem = supports.task.draw(Workload(shape, supports.dtypes[0], mask, "unit_normal", 0, supports.encodings[0]))
    assert isinstance(problem, AttentionProblem)
    kernel = candidate.load(problem)
    left = kernel.run(VirtualGPU(), {name: array.copy() for name, array in problem.arrays.items()}).arrays
    allowed = declared_algorithms(candidate.declared, problem, kernel, left)
    taps = locate(kernel, problem.arrays, allowed[0], causal=problem.causal)
    algorithm = shown_algorithm(taps, problem, allowed)
    compared = compare_stages(
        problem, taps, algorithm, expected(algorithm, problem.q, problem.k, problem.v, causal=problem.causal)
    )
    assert [each.key for each in compared if each.wrong.any()] == []
    assert {each.key[0] for each in compared} >= {"q", "k", "v", "scores", "p", "l", "u", "o"}
    assert first_wrong(compared) is None
    judged = judge_launches(kernel, problem, algorithm, taps.arrays)
    assert [launch.right for launch in judged] == ([True, True] if rung == "split_k" else [])


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([0, 1, 2, 3, 7], "0-3, 7"),
        ([5], "5"),
        ([1, 3, 5, 7], "1, 3 … 7 (every 2nd)"),
        ([0, 11, 22, 33], "0, 11 … 33 (every 11th)"),
        ([1, 3], "1, 3"),
        ([0, 2, 5, 6, 9, 13, 15, 20], "0, 2, 5-6, 9, 13, 15 and 1 more up to 20"),
    ],
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_reference_agrees_with_itself() -> None:
    """The expected stages end in the right attention output."""
    candidate, supports = find_candidate("fa1", task=None)
    problem = supports.task.draw(Workload(TILES_AND_A_BIT, "f32", "none", "unit_normal", 0))
    assert isinstance(problem, AttentionProblem)
    kernel = candidate.load(problem)
    (algorithm,) = declared_algorithms(candidate.declared, problem, kernel, {})
    stages = expected(algorithm, problem.q, problem.k, problem.v)
    last = stages["u", 1] / stages["l", 1][..., None]
    np.testing.assert_allclose(last, attention(problem.q, problem.k, problem.v).o, atol=1e-5)
