"""Edits that only the source shows: exchanged statements, and constants with a name."""

from pathlib import Path

import pytest

from tests.diagnose.edited import line_of, text_of
from weft.attention.shapes import Shape
from weft.core.records import Place
from weft.judge.candidate import Candidate
from weft.judge.select import find_candidate
from weft.repair.repair import Repair
from weft.repair.source_edits import barrier_edits, by_suspicion, edits_of_lines, source_edits
from weft.repair.source_fix import Attempt, Known, find_source_fix
from weft.repair.source_trials import further_edits, likely_edits
from weft.repair.templates import Kind
from weft.tasks.task import Workload

TEXT = """constexpr int WIDE = 33;  // threads of a warp
__global__ void f(float* y) {
    const int lane = threadIdx.x % WIDE;
    float m = 0.0f;
    y[lane] = m;
    m = fmaxf(m, y[0]);
    __syncthreads();
    y[0] = 1.0f;
    if (lane > WIDE) y[1] = 2.0f;
}
"""


def test_neighbours_that_use_each_other_and_named_constants() -> None:
    found = {(edit.line, edit.words): edit for edit in source_edits(TEXT)}
    # Line 4 declares what line 5 uses, line 7 is a barrier, line 9 is a condition.
    assert set(found) == {(5, "exchange lines 5 and 6"), (1, "33 → 32"), (1, "33 → 34")}
    swapped = found[5, "exchange lines 5 and 6"].text.splitlines()
    assert swapped[4:6] == ["    m = fmaxf(m, y[0]);", "    y[lane] = m;"]
    assert found[1, "33 → 32"].text == TEXT.replace("33", "32")


def test_a_constant_is_as_suspicious_as_the_lines_that_use_it() -> None:
    assert [edit.kind for edit in by_suspicion(source_edits(TEXT), [9])] == [Kind.ORDER, Kind.NAMED, Kind.NAMED]
    assert [edit.kind for edit in by_suspicion(source_edits(TEXT), [8])] == [Kind.ORDER]


def test_signs_of_named_constants() -> None:
    text = TEXT.replace("WIDE = 33;", "WIDE = SIZE / 2;")
    found = {edit.words: edit.text for edit in source_edits(text) if edit.line == 1}
    assert set(found) == {"/ → %", "2 → 1", "2 → 3"} and "WIDE = SIZE % 2;" in found["/ → %"]


def test_edits_of_a_line_are_of_what_the_compiler_folds() -> None:
    text = "int f(int x) {\n    if (MASK == 1) return max(0, x + 0);\n    for (int i = 0; i < N; ++i) g<N>(-1);\n}\n"
    words = [edit.words for edit in edits_of_lines(text, "f.cu", [2])]
    assert words == ["== → !=", "1 → 2", "1 → 0", "0 → 1", "0 → 1", "+ → -"]
    last = list(edits_of_lines(text, "f.cu", [3, 3]))
    # `g<N>` is no comparison, and -1 is no difference.
    assert [edit.words for edit in last] == ["0 → 1", "1 → 2", "1 → 0", "< → <="]
    assert all(edit.line == 3 and edit.text != text for edit in last)
    assert list(edits_of_lines("int f( {", "f.cu", [1])) == []


def test_a_barrier_stands_behind_the_statement() -> None:
    text = "{\n    x[lane] =\n        y;  // of this lane\n    z = x[0];\n}\n"
    (edit,) = barrier_edits(text, 2, ["__syncthreads();"])
    assert edit.text == text.replace("this lane\n", "this lane\n    __syncthreads();\n")
    assert (edit.line, edit.kind, edit.words) == (2, Kind.BARRIER, "add __syncthreads(); after line 3")
    (edit,) = barrier_edits("    tl.store(x, y)\n    z = tl.load(x)\n", 1, ["tl.debug_barrier()"])
    assert edit.text.splitlines()[1] == "    tl.debug_barrier()"


@pytest.mark.parametrize(
    ("rung", "old", "new", "line", "words"),
    [
        (
            "scalar",
            "        l = l * rescale + p;\n",
            "        l += p;\n        l *= rescale;\n",
            "l += p;",
            "exchange lines",
        ),
        # No instruction has a condition of constants, nor a sum with 0. With one mask, `!=` is as good as 0.
        ("scalar", "if (CAUSAL == 0) return SKV;", "if (CAUSAL == 2) return SKV;", "CAUSAL == 2)", "== → !="),
        ("scalar", "diagonal + 1));", "diagonal + 0));", "diagonal + 0));", "0 → 1"),
        # The product of Q and a K without its fraction.
        ("scalar", "* float(k[row + d]);", "* int(k[row + d]);", "int(k[row + d])", "int → float"),
    ],
)
def test_what_only_the_source_shows_is_repaired(
    rung: str, old: str, new: str, line: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.cu"
    file.write_text(text_of(rung, old, new))
    candidate, supports = find_candidate(str(file), task=None)
    mask = "top_left" if "diagonal" in line else "none" if "CAUSAL" not in line else "bottom_right"
    workload = Workload(Shape("tiny", 1, 1, 1, 4, 8, 32), "f16", mask, "unit_normal", 0)
    attempt = Attempt(candidate, supports.task, (workload,), lambda changed: (None, 1))
    at = line_of(file, line)
    edits = [*likely_edits(candidate, [at]), *further_edits(candidate, [at])]
    fix = find_source_fix(attempt, edits, Known(), 60.0).fix
    assert fix is not None and fix.repair.place == Place(str(file), at) and fix.repair.words.startswith(words)
    assert fix.text.splitlines()[at - 1] != file.read_text().splitlines()[at - 1]


def test_a_text_that_fails_another_workload_is_no_fix(tmp_path: Path) -> None:
    """The workload that it fails is tested at once with later texts, and does not pass for a repair there."""
    file = tmp_path / "mine.cu"
    file.write_text(text_of("scalar", "diagonal + 1));", "diagonal + 0));"))
    candidate, supports = find_candidate(str(file), task=None)
    small, other = (
        Workload(Shape("tiny", 1, 1, 1, 4, 8, 32), "f16", mask, "unit_normal", 0) for mask in ("none", "top_left")
    )
    known, judged = Known(), []

    def judge_all(changed: Candidate) -> tuple[Workload | None, int]:
        judged.append(changed.path.read_text())
        return other, 2

    harmless = [Repair(Place(str(file), 1), f"comment {i}", text=f"// {i}\n{file.read_text()}") for i in range(3)]
    attempt = Attempt(candidate, supports.task, (small,), judge_all)
    tried = find_source_fix(attempt, harmless, known, 60.0)
    assert tried.fix is None and tried.passing == (harmless[0],) and len(judged) == 1 and known.failed == [other]
    assert find_source_fix(attempt, harmless, known, 60.0).passing == () and len(judged) == 1
