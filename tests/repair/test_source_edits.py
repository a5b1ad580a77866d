"""Edits that only the source shows: exchanged statements, and constants with a name."""

from pathlib import Path

from tests.diagnose.edited import text_of
from weft.attention.shapes import Shape
from weft.judge.select import find_candidate
from weft.repair.source_edits import by_suspicion, source_edits
from weft.repair.source_trials import find_in_source
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


def test_exchanged_statements_are_repaired(tmp_path: Path) -> None:
    file = tmp_path / "mine.cu"
    file.write_text(text_of("scalar", "        l = l * rescale + p;\n", "        l += p;\n        l *= rescale;\n"))
    text = file.read_text()
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "l += p;" in each)
    candidate, supports = find_candidate(str(file), task=None)
    workload = Workload(Shape("tiny", 1, 1, 1, 4, 8, 32), "f16", "none", "unit_normal", 0)
    (found,) = find_in_source(candidate, supports.task, [workload], [line], lambda told: None)
    assert (found.place.line, found.words) == (line, f"exchange lines {line} and {line + 1}")
    assert "        l *= rescale;\n        l += p;\n" in found.text
    # The repaired text passes as it is, so there is nothing to repair.
    file.write_text(found.text)
    candidate, supports = find_candidate(str(file), task=None)
    assert find_in_source(candidate, supports.task, [workload], [line], lambda told: None) == ()
