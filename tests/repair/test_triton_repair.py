"""One-line mistakes in a Triton kernel: the edit that repairs them names their line, and is written into the file."""

import ast
from pathlib import Path

import pytest

from weft.diagnose.conclusion import place_of
from weft.diagnose.diagnose import diagnose
from weft.judge.select import Choice, find_candidate
from weft.repair.triton_edits import TritonText

KERNEL = Path(__file__).parent / "row_attention.py"
CHOICE = Choice(shapes=("ragged", "gqa_4"), masks=("none",), seeds=(0,))
BUGS = {
    "mask": ("s = tl.where(keys < SKV", "s = tl.where(keys <= SKV"),
    "pointer": ("tl.load(v + at", "tl.load(k + at"),
    "stride": ("(b * HQ + h) * SQ", "(b * HQ + h) * (SQ + 1)"),
}
ADD = """# weft: launch  add<num_warps=1>(x, y, n) grid(1) block(32)
import triton
import triton.language as tl


@triton.jit
def twice(a):
    return a * 2.0


@triton.jit
def other(a):
    return a


@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.maximum(twice(tl.load(x + at, mask=at <= n)), 0.0)
    tl.store(y + at, value, mask=at < n)
"""


@pytest.mark.parametrize(
    "bug", ["mask", *(pytest.param(name, marks=pytest.mark.sweep) for name in ("pointer", "stride"))]
)
def test_the_line_of_a_mistake_is_named_and_the_file_repaired(bug: str, tmp_path: Path) -> None:
    right, wrong = BUGS[bug]
    file = tmp_path / "mine.py"
    file.write_text(KERNEL.read_text().replace(right, wrong))
    both = zip(KERNEL.read_text().splitlines(), file.read_text().splitlines(), strict=True)
    line = next(number for number, (was, becomes) in enumerate(both, 1) if was != becomes)
    candidate, supports = find_candidate(str(file), task=None)
    found = diagnose(candidate, supports, CHOICE, repair=True)
    place = place_of(found)
    assert place is not None and (place.file, place.line) == (str(file), line)
    assert found.fix is not None and found.fix.text == KERNEL.read_text()


def test_each_edit_changes_one_place_of_the_text() -> None:
    edits = {(edit.line, edit.words): edit for edit in TritonText(ADD, {"add": ["*f32", "*f32", "size"]}).edits()}
    lines = ADD.splitlines()
    assert edits[19, "<= → <"].text.splitlines()[18] == lines[18].replace("<=", "<")
    assert edits[20, "y → x"].text.splitlines()[19] == lines[19].replace("y +", "x +")
    assert edits[19, "maximum → minimum"].text.splitlines()[18] == lines[18].replace("maximum", "minimum")
    assert edits[18, "axis 0 → 1"].text.splitlines()[17] == lines[17].replace("program_id(0)", "program_id(1)")
    # Shapes and the size of a block are part of the program, and a pointer cannot be left out of an address.
    assert not any("arange" in words and "BLOCK →" in words for _, words in edits)
    assert (20, "y + at → at") not in edits
    assert all(ast.parse(edit.text) for edit in edits.values())


def test_a_variable_is_replaced_only_by_an_index_that_is_known_there() -> None:
    inserted = "    first = at.to(tl.int64)\n    y += first\n    second = at.to(tl.int64)\n"
    text = ADD.replace("    value =", f"{inserted}    value =").replace("y + at", "y + second")
    words = {edit.words for edit in TritonText(text).edits()}
    assert "second → first" in words and "first → second" not in words
    # Floats may be tiles of different shapes.
    assert "k_tile → q_row" not in {edit.words for edit in TritonText(KERNEL.read_text()).edits()}


def test_a_term_is_left_out_with_its_brackets() -> None:
    text = KERNEL.read_text()
    wrong = text.replace(*BUGS["stride"])
    assert text in [edit.text for edit in TritonText(wrong).edits()]


def test_one_text_has_all_edits_and_only_what_they_change_takes_the_choice() -> None:
    text = TritonText(ADD, {"add": ["*f32", "*f32", "size"]})
    edits = [edit for edit in text.edits() if edit.function == "twice"]
    assert text.changed(edits) == {"twice", "add"}
    switched = text.switched(edits)
    assert "add<num_warps=1>(weft_edit, x, y, n)" in switched and "# weft: scalar weft_edit : i32" in switched
    functions = {each.name: each for each in ast.parse(switched).body if isinstance(each, ast.FunctionDef)}
    assert {name for name, each in functions.items() if each.args.args[0].arg == "weft_edit"} == {"twice", "add"}
    assert all(f"weft_edit == {number}" in switched for number in range(1, len(edits) + 1))


def test_a_cut_to_an_integer_is_left_out() -> None:
    file = TritonText(ADD.replace("tl.load(x + at, mask=at <= n)", "tl.load(x + at).to(tl.int32).to(tl.float32)"))
    (edit,) = [edit for edit in file.edits() if edit.words == "without cutting to an integer"]
    assert "twice(tl.load(x + at).to(tl.float32))" in edit.text
    assert "tl.where(weft_edit == 1, weft_1, weft_1.to(tl.int32)).to(tl.float32)" in file.switched([edit])
