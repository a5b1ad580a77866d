"""K503 next to a pass: the kernel is right on every workload and could still recognise its test."""

from pathlib import Path

import pytest

from tests.judge.candidates import LSE, edited
from weft.attention.shapes import SHAPES
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.judge.recognise import recognition_notes
from weft.kernels.ladder import MASKS, RUNGS
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

WORKLOAD = Workload(SHAPES["small"], "f16", "none", "unit_normal", 0)
KNOWS = "if (lane == 0) lse[q_row] = m + logf(l) + (float(q[1]) == 0.3333f ? 1.0f : 0.0f);"


def test_a_note_is_shown_next_to_a_pass_and_can_be_allowed(tmp_path: Path) -> None:
    path = tmp_path / "knows.cu"
    path.write_text(edited((LSE, KNOWS)))
    verdict = check(Candidate(path), TASKS["sdpa"], WORKLOAD)
    (note,) = verdict.findings
    assert verdict.passed and note.code == "K503"
    assert note.message == "the kernel compares an element of q with 0.3333"
    line = 1 + next(n for n, text in enumerate(path.read_text().splitlines()) if KNOWS in text)
    assert note.place is not None and (note.place.file, note.place.line) == (str(path), line)
    path.write_text(edited((LSE, f"{KNOWS}  // weft: allow K503 a test of the note")))
    assert check(Candidate(path), TASKS["sdpa"], WORKLOAD).findings == ()


@pytest.mark.parametrize("rung", ["scalar", "fa1", "split_k", "wmma", "fp8_scalar"])
def test_a_rung_has_no_note(rung: str) -> None:
    assert recognition_notes(VirtualGPU(), load(RUNGS[rung].path), {}) == ()


@pytest.mark.sweep
@pytest.mark.parametrize(("rung", "mask"), [(rung.name, mask) for rung in RUNGS.values() for mask in rung.masks])
def test_no_rung_has_a_note(rung: str, mask: str) -> None:
    kernel = load(RUNGS[rung].path).with_macros({"CAUSAL": str(MASKS.index(mask))})
    assert recognition_notes(VirtualGPU(kernel.gpu), kernel, {}) == ()
