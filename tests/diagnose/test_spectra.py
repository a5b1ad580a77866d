"""Lines that only the failing workload runs are suspected."""

from pathlib import Path

from tests.diagnose.edited import line_of, write
from weft.attention.shapes import Shape
from weft.diagnose.diagnose import diagnose
from weft.diagnose.records import Diagnosis
from weft.diagnose.spectra import lines_of_failure
from weft.diagnose.suspects import FEW, suspects
from weft.judge.select import Choice, find_candidate
from weft.tasks.task import Workload

TINY = Shape("tiny", 1, 1, 1, 5, 9, 32)


def test_lines_of_a_mask_run_only_with_the_mask(tmp_path: Path) -> None:
    file = write(tmp_path, "scalar", "diagonal + 1));", "diagonal + 0));")
    candidate, supports = find_candidate(str(file), task=None)
    plain, masked = (Workload(TINY, "f16", mask, "unit_normal", 0) for mask in ("none", "top_left"))
    wrong = line_of(file, "diagonal + 0));")
    found = lines_of_failure(candidate, supports.task, masked, [plain])
    assert wrong in found and len(found) <= FEW
    assert line_of(file, "const float m_new =") not in found
    assert wrong not in lines_of_failure(candidate, supports.task, plain, [masked])
    assert lines_of_failure(candidate, supports.task, masked, []) == ()


def _diagnosed(file: Path, masks: tuple[str, ...]) -> Diagnosis:
    candidate, supports = find_candidate(str(file), task=None)
    choice = Choice(shapes=("small",), regimes=("unit_normal",), masks=masks, dtypes=("f16",), seeds=(0,))
    return diagnose(candidate, supports, choice)


def test_they_are_inspected(tmp_path: Path) -> None:
    file = write(tmp_path, "scalar", "diagonal + 1));", "diagonal + 0));")
    found = _diagnosed(file, ("none", "top_left"))
    wrong = line_of(file, "diagonal + 0));")
    assert found.judged == 2 and wrong in found.ran_only_here
    told = [each.place.line for each in suspects(found) if "none of those that passed" in each.evidence]
    assert told and set(told) <= set(found.ran_only_here) and min(abs(line - wrong) for line in told) > 3
    assert abs(suspects(found)[0].place.line - wrong) <= 3  # the line of the mask comes first
    alone = _diagnosed(file, ("top_left",))
    assert alone.judged == 1 and alone.ran_only_here == ()
