"""Packed sequences, paged caches, soft caps, biases and sinks: their stages are followed as in plain attention."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.in_turn import one_in
from weft.attention.contract import Contract
from weft.attention.emulate import Algorithm
from weft.attention.layouts import arranged, element_numbers
from weft.attention.regimes import make
from weft.attention.shapes import Shape
from weft.core.records import Run
from weft.core.status import Status
from weft.diagnose.compare import Compared, first_wrong
from weft.diagnose.conclusion import place_of, stage_of
from weft.diagnose.diagnose import declared_algorithms, diagnose, nearest, shown_algorithm
from weft.diagnose.locate import Packed, locate
from weft.diagnose.own_units import in_units_of_reference
from weft.diagnose.records import Case
from weft.diagnose.taps import TAPPED, StageTap, Taps
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.judge.select import Choice, find_candidate
from weft.judge.verdict import Verdict
from weft.kernels import RUNGS
from weft.tasks.attention_inputs import draw_attention
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload


@pytest.mark.parametrize("layout", ["dense", "varlen", "paged"])
def test_element_numbers_lead_back_to_the_dense_arrays(layout: str) -> None:
    contract, shape = Contract(layout=layout, page=4), Shape("t", 5, 4, 2, 7, 11, 8)  # type: ignore[arg-type]
    dense = dict(zip("qkv", make("unit_normal", shape, "f32", 0), strict=True))
    held = arranged(contract, shape, dense, 0)
    numbers = element_numbers(contract, shape, held)
    lengths = contract.lengths(shape)
    for name in "qkv":
        own = contract.input_of(name)
        used = numbers[own] >= 0
        np.testing.assert_array_equal(held[own][used], dense[name].reshape(-1)[numbers[own][used]])
        ends = None if lengths is None else lengths[0 if name == "q" else 1]
        rows = shape.b * dense[name].shape[2] if ends is None else int(ends.sum())
        assert np.unique(numbers[own][used]).size == used.sum() == rows * dense[name].shape[1] * shape.d


def first_wrong_stage(candidate: Candidate, problem: AttentionProblem) -> Compared | None:
    """Return the first stage of a right kernel that is called wrong; all stages must be observed."""
    kernel = candidate.load(problem)
    _, arrays = kernel.run(VirtualGPU(kernel.gpu), {name: array.copy() for name, array in problem.arrays.items()})
    declared = declared_algorithms(candidate.declared_at(kernel, problem), problem, kernel, arrays)
    packed = None if problem.is_dense else Packed(problem.workload.shape, problem.element_numbers)
    capped = problem.logits.soft_cap is not None
    taps = locate(kernel, problem.arrays, declared[0], mask=problem.mask, packed=packed, capped=capped)
    assert taps.observed == TAPPED and not taps.facts
    return first_wrong(nearest(taps, problem, shown_algorithm(taps, problem, declared)).compared)


@pytest.mark.parametrize(
    ("rung", "shape", "mask"),
    one_in(
        2,
        [
            ("paged_decode", Shape("t", 3, 4, 4, 1, 20, 48), "none"),
            ("paged_decode", Shape("t", 5, 4, 2, 2, 40, 32), "bottom_right"),
            ("varlen_triton", Shape("t", 5, 4, 2, 20, 40, 32), "bottom_right"),
            ("varlen_triton", Shape("t", 5, 4, 2, 20, 40, 32), "top_left"),
            ("paged_decode_fp8", Shape("t", 5, 4, 2, 2, 40, 32), "none"),
            # A dense kernel of codes that decodes them with their scale.
            ("fp8_scalar", Shape("t", 1, 2, 1, 5, 9, 32), "none"),
            ("softcap_sinks", Shape("t", 1, 2, 1, 5, 9, 32), "top_left"),
        ],
        several=True,
    ),
)
def test_right_kernels_are_right_at_every_stage(rung: str, shape: Shape, mask: str) -> None:
    """Parts of a sequence have their own maxima; the FP8 cache is multiplied as codes, and its scales follow later."""
    candidate, supports = find_candidate(rung, task=None)
    workload = Workload(shape, supports.dtypes[0], mask, "unit_normal", 0, supports.encodings[0])
    problem = supports.task.draw(workload)
    assert isinstance(problem, AttentionProblem)
    assert first_wrong_stage(candidate, problem) is None


SINK_LAST = (
    ("float m = sinks[h], l = 1.0f;", "float m = -1e30f, l = 0.0f;"),
    (
        "    const float inverse = 1.0f / l;",
        "    const float top = fmaxf(m, sinks[h]), shrink = expf(m - top);\n"
        "    l = l * shrink + expf(sinks[h] - top);\n"
        "    for (int i = 0; i < PER_LANE; ++i) u[i] *= shrink;\n"
        "    m = top;\n"
        "    const float inverse = 1.0f / l;",
    ),
)
FAST_TANH = (
    (
        "__device__ __forceinline__ float capped(float s) {",
        "__device__ __forceinline__ float fast_tanh(float x) {\n"
        '    asm("tanh.approx.f32 %0, %0;" : "+f"(x));\n    return x;\n}\n\n'
        "__device__ __forceinline__ float capped(float s) {",
    ),
    ("CAP * tanhf(s / CAP)", "CAP * fast_tanh(s / CAP)"),
)
BASE_2 = (
    ("expf(m - m_new), p = expf(s - m_new)", "exp2f(m - m_new), p = exp2f(s - m_new)"),
    ("sinks[h], l", "1.44269504f * sinks[h], l"),
    ("capped(warp_sum(products) * scale)", "1.44269504f * capped(warp_sum(products) * scale)"),
    ("m + logf(l)", "0.693147181f * m + logf(l)"),
)


@pytest.mark.parametrize("edits", [SINK_LAST, FAST_TANH, BASE_2], ids=["sink last", "tanh.approx", "base 2"])
def test_other_right_forms_of_caps_and_sinks(edits: tuple[tuple[str, str], ...], tmp_path: Path) -> None:
    path = edited("softcap_sinks", tmp_path, *edits)
    candidate, supports = find_candidate(str(path), task="softcap_sinks")
    workload = Workload(Shape("t", 1, 2, 1, 5, 9, 32), "f16", "bottom_right", "unit_normal", 0)
    assert check(candidate, supports.task, workload).passed
    problem = supports.task.draw(workload)
    assert isinstance(problem, AttentionProblem)
    assert first_wrong_stage(candidate, problem) is None


def test_scores_with_a_bias_are_followed(tmp_path: Path) -> None:
    path = edited(
        "scalar",
        tmp_path,
        ("// weft: out     o ", "// weft: in      slopes : f32[HQ] = normal\n// weft: out     o "),
        ("(q, k, v, o, lse, HKV", "(q, k, v, slopes, o, lse, HKV"),
        ("const ELEMENT* __restrict__ v,", "const ELEMENT* __restrict__ v, const float* __restrict__ slopes,"),
        ("warp_sum(products) * scale;", "warp_sum(products) * scale - slopes[h] * abs(query + SKV - SQ - key);"),
    )
    candidate = Candidate(path)
    workload = Workload(Shape("t", 1, 2, 1, 5, 9, 32), "f16", "bottom_right", "unit_normal", 0)
    problem = draw_attention(Contract(bias="alibi"), workload)
    assert first_wrong_stage(candidate, problem) is None
    twice = edited("", tmp_path, ("slopes[h] *", "2 * slopes[h] *"), path=path)
    found = first_wrong_stage(Candidate(twice), problem)
    assert found is not None and found.key == ("scores", 0)


NOTHING_RAN = Run((), (), "", 0, "", "")


def test_a_nan_is_no_code_without_its_scale() -> None:
    problem = TASKS["fp8_sdpa"].draw(Workload(Shape("t", 1, 1, 1, 2, 3, 4), "f16", "none", "unit_normal", 0, "e4m3"))
    assert isinstance(problem, AttentionProblem) and problem.scales is not None
    codes = problem.k / problem.scales[1][:, :, None, None]
    for first, scaled in ((codes[0, 0, 0, 0], True), (np.nan, False)):
        values = codes.copy()
        values[0, 0, 0, 0] = first
        blank = np.zeros(codes.shape, np.int32)
        lanes = blank.astype(np.int8)
        tap = StageTap("k", 0, values, np.ones(codes.shape, bool), blank, lanes, blank, lanes)
        taps = Taps(Algorithm(block_m=1, block_n=3), {("k", 0): tap}, (), (), (), None, NOTHING_RAN, {}, 0, {}, {})
        found = in_units_of_reference(taps, problem, {("k", 0): problem.k})
        assert np.array_equal(found.taps["k", 0].values, problem.k, equal_nan=True) == scaled


def test_an_output_of_a_wrong_shape_stays_as_it_is(tmp_path: Path) -> None:
    candidate, supports = find_candidate("varlen_triton", task=None)
    workload = Workload(Shape("t", 2, 2, 1, 5, 6, 16), "f16", "none", "unit_normal", 0)
    verdict = Verdict(workload, Status.UNSAFE)
    case = Case(candidate, supports.task, supports.task.draw(workload), verdict, verdict)
    packed = supports.task.output("o").shape(workload.shape)
    dense = replace(case, arrays={"o": np.zeros(packed, np.float16)}).o
    assert dense is not None and dense.shape == workload.shape.q
    strange = np.zeros((packed[0] + 1, *packed[1:]), np.float16)
    assert replace(case, arrays={"o": strange}).o is strange


def edited(rung: str, folder: Path, *edits: tuple[str, str], path: Path | None = None) -> Path:
    """Write a rung, or another file, with edits."""
    path = path or RUNGS[rung].path
    text = path.read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    target = folder / f"edited_{len(list(folder.iterdir()))}{path.suffix}"
    target.write_text(text)
    return target


PAGED, VARLEN, CODED, CAPPED = "paged_decode", "varlen_triton", "paged_decode_fp8", "softcap_sinks"


MISTAKES = (
    (PAGED, "l = l * rescale + p", "l = l + p", "l"),
    (PAGED, "u[i] = u[i] * rescale + p", "u[i] = u[i] + p", "u"),
    (PAGED, "p * float(v_cache[row + d])", "p * float(k_cache[row + d])", "v"),
    (PAGED, "l += expf(part_m[part] - m) * part_l", "l += part_l", "l"),
    (PAGED, "m + logf(l)", "m + log2f(l)", "lse"),
    (PAGED, "kv_head = h / (HQ / HKV)", "kv_head = h % HKV", "k"),
    (VARLEN, "l = l * rescale + tl", "l = l + tl", "l"),
    (VARLEN, "v = tl.load(v_head + rows", "v = tl.load(k_head + rows", "v"),
    (VARLEN, "h // (HQ // HKV)", "h % HKV", "k"),
    (CODED, "u / l * value_scale", "u / l", "v"),
    (CAPPED, "CAP * tanhf(s / CAP)", "tanhf(s / CAP)", "scores"),
    (CAPPED, "CAP * tanhf(s / CAP)", "CAP * tanhf(s)", "scores"),
    (CAPPED, "p * float(v[row + d])", "p * float(k[row + d])", "v"),
)


@pytest.mark.parametrize(("rung", "old", "new", "stage"), one_in(2, MISTAKES, several=True))
def test_a_mistake_has_its_stage_and_line(rung: str, old: str, new: str, stage: str, tmp_path: Path) -> None:
    text = RUNGS[rung].path.read_text()
    assert text.count(old) == 1
    path = tmp_path / RUNGS[rung].path.name
    path.write_text(text.replace(old, new))
    candidate, supports = find_candidate(str(path), task=RUNGS[rung].task)
    found = diagnose(replace(candidate, rung=None), supports, Choice(dtypes=("f16",), seeds=(0,)))
    place = place_of(found)
    line = text[: text.index(old)].count("\n") + 1
    assert place is not None and abs(place.line - line) <= 2
    assert stage_of(found) in (stage, *(("scores",) if stage == "k" else ()))
    assert not found.case.not_recorded
