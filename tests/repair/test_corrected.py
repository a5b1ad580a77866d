"""How much of an error an edit corrects, and that such lines are named where no edit repairs everything."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from weft.attention.shapes import Shape
from weft.core.records import Place
from weft.diagnose.diagnose import diagnose
from weft.diagnose.suspects import CORRECTED, suspects
from weft.judge.select import Choice, find_candidate
from weft.repair.corrected import Errors, errors_of
from weft.repair.repair import Repair
from weft.repair.triton_repair import find_triton_repairs
from weft.tasks.task import Workload

ROW = Path(__file__).with_name("row_attention.py")


def corrected(before: list[float], after: list[float]) -> float:
    return Errors({"o": np.array(after)}).corrected(Errors({"o": np.array(before)}))


def test_the_share_is_of_wrong_elements() -> None:
    # The largest error is 8, so an element is wrong from 2 on; the error of 0.1 is rounding.
    assert corrected([8.0, 4.0, 4.0, 0.1], [0.0, 0.5, 4.0, 0.1]) == 2 / 3
    assert corrected([8.0, 4.0], [8.0, 4.0]) == 0.0
    assert corrected([8.0, 4.0], [2.0, 1.0]) == 0.0  # a quarter is left
    assert corrected([8.0, 4.0], [1.9, 0.9]) == 1.0
    assert corrected([0.0, 0.0], [0.0, 0.0]) == 0.0


def test_an_edit_that_makes_another_element_wrong_corrects_nothing() -> None:
    assert corrected([8.0, 0.0], [0.0, 3.0]) == 0.0
    assert corrected([8.0, 0.0], [0.0, 1.0]) == 1.0  # not larger than what counts as wrong


def test_what_is_not_a_number_is_wrong_and_any_number_near_the_reference_corrects_it() -> None:
    right = {"o": np.array([1.0, 2.0, -np.inf])}
    before = errors_of({"o": np.array([np.nan, 2.0, -np.inf])}, right)
    assert before.of["o"].tolist() == [np.inf, 0.0, 0.0]
    assert errors_of({"o": np.array([1.0, 2.0, -np.inf])}, right).corrected(before) == 1.0
    assert errors_of({"o": np.array([np.inf, 2.0, -np.inf])}, right).corrected(before) == 0.0


def test_of_two_mistakes_each_edit_corrects_a_part(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = ROW.read_text().replace("u / l)", "2.0 * u / l)").replace("m + tl.log(l))", "m - tl.log(l))")
    file.write_text(text)
    stored = next(number for number, line in enumerate(text.splitlines(), 1) if "2.0 * u / l" in line)
    candidate, supports = find_candidate(str(file), task="sdpa")
    problem = supports.task.draw(Workload(Shape("tiny", 1, 2, 1, 3, 9, 32), "f16", "none", "unit_normal", 0))
    *_, found = find_triton_repairs(candidate, supports.task, [problem], [stored], lambda told: None)
    assert found.whole == ()
    # The errors are |O| and 2·|ln l|; what is at least a quarter of the largest is wrong, and all of O is corrected.
    right = supports.task.reference(problem)
    q, k = (problem.arrays[name].astype(np.float64) for name in "qk")
    log_l = right["lse"] - (q @ k.swapaxes(2, 3) / np.sqrt(32)).max(axis=3)
    wrong = [np.count_nonzero(abs(x) >= abs(x).max() / 4) for x in (right["o"], log_l)]
    assert found.partly[0].place.line == stored
    assert found.partly[0].corrected == wrong[0] / sum(wrong)


def test_lines_that_correct_much_are_inspected_after_the_first(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(ROW.read_text().replace("u / l)", "2.0 * u / l)"))
    candidate, supports = find_candidate(str(file), task="sdpa")
    choice = Choice(
        shapes=("b1-hq1-hkv1-sq3-skv9-d32",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,)
    )
    found = diagnose(candidate, supports, choice, shrink=False)
    much, little = (
        Repair(Place(str(file), line), "2 → 1", corrected=share) for line, share in ((21, CORRECTED), (27, 0.4))
    )
    with_edits = suspects(replace(found, partly=(much, little)))
    assert [each.place for each in with_edits[:2]] == [suspects(found)[0].place, much.place]
    assert "with the edit `2 → 1` here 50 % of the wrong elements are right" in with_edits[1].evidence
    assert little.place not in [each.place for each in with_edits]
