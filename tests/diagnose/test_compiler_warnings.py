"""What the compiler warned of is shown, and its line is inspected."""

from pathlib import Path

from tests.diagnose.edited import explained, line_of, write
from weft.cli.diagnose_output import record, text
from weft.diagnose.conclusion import place_of
from weft.diagnose.suspects import suspects


def test_a_sum_that_is_used_before_it_is_set_is_the_cause(tmp_path: Path) -> None:
    file = write(tmp_path, "scalar", "l > 0.0f ? 1.0f / l : 0.0f;", "1.0f / sum; float total = sum;")
    file.write_text(file.read_text().replace("float m = -CUDART_INF_F,", "float sum; float m = -CUDART_INF_F,"))
    found = explained(file)
    named = next(each for each in found.signatures if each.name == "compiler_warning")
    assert named.message.endswith(f'{line_of(file, "1.0f / sum")}: variable "sum" is used before its value is set')
    place = place_of(found)
    assert place is not None and place.line == line_of(file, "float sum;")  # the declaration lacks a value


def test_a_mask_that_nothing_reads_is_inspected(tmp_path: Path) -> None:
    file = write(tmp_path, "scalar", "end = visible_keys(query, SQ, SKV);", "end = SKV;")
    file.write_text(file.read_text().replace("const int end = SKV;", "const int seen = query + 1, end = SKV;"))
    found = explained(file, mask="top_left")
    wrong = line_of(file, "const int seen")
    assert [each.message for each in found.case.compiler_says] == ['variable "seen" was declared but never referenced']
    assert all(each.name != "compiler_warning" for each in found.signatures)  # a right kernel may have unused variables
    assert any(line.startswith("  compiler") and f":{wrong}: warning:" in line for line in text(found))
    assert record(found)["compiler_says"] == [str(each) for each in found.case.compiler_says]
    inspected = {each.place.line: each.evidence for each in suspects(found)}
    assert any(abs(line - wrong) <= 3 for line in inspected)


def test_a_right_kernel_with_a_warning_is_healthy(tmp_path: Path) -> None:
    file = write(tmp_path, "scalar", "const float inverse =", "if (D < 0) u[0] = float(D % 0); const float inverse =")
    found = explained(file)
    assert found.verdict.passed
    assert [each.message for each in found.case.compiler_says] == ['right operand of "%" is zero']
    assert found.healthy and found.signatures == ()


def test_a_kernel_without_warnings_has_no_row(tmp_path: Path) -> None:
    file = write(tmp_path, "scalar", "l = l * rescale + p;", "l = l * rescale + p * 2.0f;")
    found = explained(file)
    assert found.case.compiler_says == ()
    assert all("compiler" not in line for line in text(found))
