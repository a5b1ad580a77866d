"""Right kernels pass, and each kind of failure gets its own status."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.in_turn import one_in
from weft.attention.shapes import SHAPES
from weft.core.records import Run
from weft.core.status import Status
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.judge.judging import judge_all
from weft.judge.local_runs import LocalRuns
from weft.judge.runs import Call, Refused
from weft.judge.select import Choice, find_candidate, workloads
from weft.judge.verdict import conclude
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

WORKLOAD = Workload(SHAPES["split_65"], "f16", "none", "unit_normal", 0)
SCALAR = RUNGS["scalar"].path.read_text()


def _broken(tmp_path: Path, old: str, new: str) -> Candidate:
    assert old in SCALAR
    path = tmp_path / "broken.cu"
    path.write_text(SCALAR.replace(old, new))
    return Candidate(path)


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("u[i] * rescale + p", "u[i] + p", Status.INCORRECT_NUMERICAL),
        ("if (d < D) o[q_row * D + d]", "if (d <= D) o[q_row * D + d]", Status.PASSED),
        ("o[q_row * D + d]", "o[(q_row + 1) * D + d]", Status.UNSAFE),
        ("m = m_new;", "m = m_newest;", Status.COMPILE_ERROR),
        ("m + logf(l)", "m + log2f(l)", Status.INCORRECT_NUMERICAL),
        ("block(32 * WARPS)", "block(512 * WARPS)", Status.RESOURCE_ERROR),
        ("m = m_new;", 'm = m_new; asm volatile("discard.global.L2 [%0], 128;" ::"l"(k));', Status.UNSUPPORTED),
    ],
)
def test_each_kind_of_failure_has_its_status(tmp_path: Path, old: str, new: str, status: Status) -> None:
    verdict = check(_broken(tmp_path, old, new), TASKS["sdpa"], WORKLOAD)
    assert verdict.status is status, verdict.message
    if status is Status.INCORRECT_NUMERICAL:
        assert verdict.error is not None and verdict.samples


@pytest.mark.parametrize(
    ("rung", "old", "new", "by"),
    [
        ("fa1", "m[r] = -CUDART_INF_F;", "m[r] = 0.0f;", "small f16 none offsets"),
        ("scalar", "q_lane[i] = d < D ?", "q_lane[i] = d <= D ?", "d48 f16 top_left unit_normal"),
    ],
)
def test_the_quick_selection_finds_errors_that_a_single_size_and_plain_values_hide(
    tmp_path: Path, rung: str, old: str, new: str, by: str
) -> None:
    """A maximum that starts at 0 is right if a logit is above it; a bound off by one is right if D fills the lanes."""
    text = RUNGS[rung].path.read_text()
    assert old in text
    path = tmp_path / f"{rung}.cu"
    path.write_text(text.replace(old, new))
    candidate, supports = find_candidate(str(path), task=None)
    quick = {str(each): each for each in workloads(supports, Choice(seeds=(0,)))}
    assert check(candidate, supports.task, quick["small f16 none unit_normal seed 0"]).passed
    assert not check(candidate, supports.task, quick[f"{by} seed 0"]).passed


def test_an_infinite_loop_of_a_small_workload_ends_soon(tmp_path: Path) -> None:
    candidate = _broken(tmp_path, "key < end; ++key", "key < end;")
    small = Workload(SHAPES["split_4"], "f16", "none", "unit_normal", 0)
    start = time.monotonic()
    verdict = check(candidate, TASKS["sdpa"], small)
    assert verdict.status is Status.TIMEOUT and "S302" in {finding.code for finding in verdict.findings}
    assert time.monotonic() - start < 60
    assert check(replace(candidate, max_steps=1000), TASKS["sdpa"], small).status is Status.TIMEOUT


def test_a_finding_under_the_other_schedule_counts(tmp_path: Path) -> None:
    """There are no findings while CTA 0 starts first; the second run of a verdict starts with another CTA."""
    text = SCALAR
    for old, new in (
        ("// weft: scalar  scale", "// weft: inout  first : i32[1] = zeros\n// weft: scalar  scale"),
        ("(q, k, v, o, lse, HKV", "(q, k, v, o, lse, first, HKV"),
        ("lse, int HKV", "lse, int* first, int HKV"),
        (
            "    const size_t q_row",
            "    assert(atomicCAS(first, 0, 1) != 0 || blockIdx.x == 0);\n    const size_t q_row",
        ),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "first.cu"
    path.write_text(text)
    verdict = check(Candidate(path), TASKS["sdpa"], WORKLOAD)
    assert verdict.status is Status.UNSAFE
    assert [finding.code for finding in verdict.findings] == ["X402"]


def test_a_file_with_an_element_macro_is_judged_in_any_type(tmp_path: Path) -> None:
    path = tmp_path / "own.cu"
    path.write_text(SCALAR)
    _, supports = find_candidate(str(path), task=None)
    for dtypes, expected in (((), {"f16"}), (("bf16",), {"bf16"}), (("f32", "f16"), {"f32", "f16"})):
        chosen = workloads(supports, Choice(shapes=("small",), dtypes=dtypes, seeds=(0,)))
        assert {workload.dtype for workload in chosen} == expected


QUICK = Choice(shapes=("ragged", "gqa_8"), regimes=("unit_normal", "logits_32"), seeds=(0,))
MORE = Choice(shapes=("split_4", "few_keys"), regimes=("unit_normal", "logits_32"), seeds=(0,))


@pytest.mark.parametrize("rung", one_in(6, RUNGS))
@pytest.mark.parametrize("choice", [QUICK, pytest.param(MORE, marks=pytest.mark.sweep)], ids=["quick", "more"])
def test_every_rung_is_green(rung: str, choice: Choice) -> None:
    candidate, supports = find_candidate(rung, task=None)
    for workload in workloads(supports, choice):
        verdict = check(candidate, supports.task, workload)
        assert verdict.passed, f"{verdict.workload}: {verdict.status} {verdict.message}"


@pytest.mark.parametrize(("gpu", "arch"), [("h100", "sm_90a"), ("rtx5090", "sm_120a")])
def test_the_triton_rung_is_green_on_other_gpus(gpu: str, arch: str) -> None:
    """Triton writes wgmma for sm_90a, and mma.sync for sm_120a; the rest of the selection is in `weft check --gpu`."""
    candidate, supports = find_candidate("fa_triton", task=None, gpu=gpu)
    few = Choice(shapes=("ragged",), regimes=("unit_normal",), masks=("none", "bottom_right"), seeds=(0,))
    chosen = list(workloads(supports, few))
    for workload in chosen:
        verdict = check(candidate, supports.task, workload)
        assert verdict.passed, f"{verdict.workload}: {verdict.status} {verdict.message}"
    ptx = candidate.load(supports.task.draw(chosen[0])).compile(sizes={"SQ": 77, "SKV": 77, "D": 64}).ptx
    assert f".target {arch}" in ptx and ("wgmma.mma_async" in ptx) == (gpu == "h100")


def test_a_kernel_gets_only_workloads_that_it_supports() -> None:
    _, supports = find_candidate("wmma", task=None)
    chosen = list(workloads(supports, Choice(shapes=("ragged",), dtypes=("f32", "bf16"), masks=("none",), seeds=(0,))))
    assert {workload.dtype for workload in chosen} == {"bf16"}
    assert {workload.mask for workload in chosen} == {"none"}


class DebugEnds(LocalRuns):
    """Its -G build ends with a status."""

    ends = Status.OUT_OF_MEMORY

    def run_debug(self, call: Call) -> Run:
        raise Refused(self.ends, "the -G build ended")


def test_only_an_unsupported_debug_build_is_a_note_next_to_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = DebugEnds(Candidate(RUNGS["scalar"].path))
    with pytest.raises(Refused, match="the -G build ended") as caught:
        list(judge_all(runs, TASKS["sdpa"], [WORKLOAD]))
    assert caught.value.status is Status.OUT_OF_MEMORY
    monkeypatch.setattr(DebugEnds, "ends", Status.UNSUPPORTED)
    verdicts = [judged.verdict for judged in judge_all(runs, TASKS["sdpa"], [WORKLOAD])]
    assert [verdict.aside for verdict in verdicts] == [False, True] and conclude(verdicts, 1).passed
