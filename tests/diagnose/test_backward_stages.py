"""The stages of a backward pass in a recorded run: right kernels have no wrong one, edited ones that of the edit."""

from pathlib import Path

import pytest

from tests.in_turn import one_in
from weft.attention.backward import STAGES
from weft.attention.shapes import shape
from weft.diagnose.backward_stages import wrong_stage
from weft.diagnose.conclusion import place_of, stage_of
from weft.diagnose.diagnose import diagnose
from weft.judge.select import Choice, find_candidate
from weft.kernels import RUNGS
from weft.tasks.sdpa_backward import SDPA_BACKWARD
from weft.tasks.task import Workload

SMALL = "b1-hq2-hkv1-sq6-skv9-d32"
RIGHT = (
    ("backward", SMALL, "f32", "bottom_right"),
    ("backward_mma", "b1-hq1-hkv1-sq17-skv18-d32", "bf16", "top_left"),
    ("backward_triton", "b1-hq1-hkv1-sq17-skv18-d32", "f16", "none"),
)
EDITS = (
    ("backward", "q_row, k_row) * scale - log_sum", "q_row, k_row) - log_sum", "scores"),
    ("backward", "expf(dot<D>(q_row, k_row) * scale - log_sum)", "exp2f(dot<D>(q_row, k_row) * scale - log_sum)", "p"),
    ("backward", "ds = p * (dot<D>(do_row, v_row) - delta[row])", "ds = p * dot<D>(do_row, v_row)", "ds"),
    ("backward", "sum.add(ds, k_row)", "sum.add(ds, v_row)", "dq"),
    ("backward_triton", "tl.math.exp2(s * LOG2_E)", "tl.math.exp2(s)", "p"),
    ("backward", "dv_sum.store(dv + kv_row, 1.0f)", "dv_sum.store(dv + kv_row, scale)", "dv"),
    ("backward_mma", "add_rows<D, BLOCK_M>(dk_sum, dp, sQ)", "add_rows<D, BLOCK_M>(dk_sum, dp, sDO)", "dk"),
)


@pytest.mark.parametrize(("rung", "sizes", "dtype", "mask"), RIGHT, ids=[row[0] for row in RIGHT])
def test_a_right_kernel_has_no_wrong_stage(rung: str, sizes: str, dtype: str, mask: str) -> None:
    problem = SDPA_BACKWARD.draw(Workload(shape(sizes), dtype, mask, "unit_normal", 1))
    candidate, _ = find_candidate(rung, task=None)
    found = wrong_stage(candidate.load(problem), problem)
    assert found.first is None
    assert found.seen == STAGES


@pytest.mark.parametrize(
    ("rung", "old", "new", "stage"), one_in(2, EDITS, several=True), ids=[f"{row[0]}-{row[3]}" for row in EDITS]
)
def test_the_edited_stage_and_line_are_named(rung: str, old: str, new: str, stage: str, tmp_path: Path) -> None:
    text = RUNGS[rung].path.read_text()
    assert text.count(old) == 1
    path = tmp_path / f"kernel{RUNGS[rung].path.suffix}"
    path.write_text(text.replace(old, new))
    candidate, supports = find_candidate(str(path), task="sdpa_backward")
    sizes = SMALL if rung == "backward" else "b1-hq1-hkv1-sq17-skv18-d32"
    choice = Choice(shapes=(sizes,), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,))
    diagnosis = diagnose(candidate, supports, choice, shrink=False)
    first, place = diagnosis.first, place_of(diagnosis)
    assert first is not None and first.stage == stage
    assert stage_of(diagnosis) in STAGES
    assert place is not None and place.line == text[: text.index(old)].count("\n") + 1


def test_a_mask_that_is_forgotten_on_full_tiles_is_located(tmp_path: Path) -> None:
    """Tiles of 64 are too large to record; the kernel passes partial tiles without a mask, so the case is shrunk."""
    old, new = "query < SQ && key < visible_keys(query, SQ, SKV);", "query < SQ && key < SKV;"
    text = RUNGS["backward_mma"].path.read_text()
    assert text.count(old) == 1
    path = tmp_path / "kernel.cu"
    path.write_text(text.replace(old, new))
    candidate, supports = find_candidate(str(path), task="sdpa_backward")
    choice = Choice(
        shapes=("split_64", "odd_d"),
        regimes=("unit_normal",),
        masks=("none", "top_left"),
        dtypes=("f16",),
        seeds=(0,),
    )
    diagnosis = diagnose(candidate, supports, choice)
    assert diagnosis.case.problem.workload.shape.sq < 64
    assert diagnosis.first is not None and diagnosis.first.stage == "p"
    place = place_of(diagnosis)
    assert place is not None and place.line == text[: text.index(old)].count("\n") + 2
