"""Lines that the line to inspect depends on."""

from pathlib import Path

import pytest

from weft.attention.shapes import Shape
from weft.core.records import Place
from weft.diagnose.conclusion import place_of
from weft.diagnose.origins import MOST, NEARBY, origins, slice_lines
from weft.diagnose.records import Diagnosis

from .edited import explained, line_of, write

TWO_HEADS = Shape("two_heads", 1, 2, 2, 5, 9, 32)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("origins")
    return write(folder, "scalar", "(kv_head * SKV + key) * D", "(kv_head * SQ + key) * D")


@pytest.fixture(scope="module")
def found(kernel: Path) -> Diagnosis:
    return explained(kernel, shape=TWO_HEADS)


def test_a_wrong_index_is_named_with_the_lines_it_depends_on(kernel: Path, found: Diagnosis) -> None:
    place = place_of(found)
    assert place is not None and place.line == line_of(kernel, "(kv_head * SQ + key) * D")
    lines = [at.line for at in found.origins]
    assert 0 < len(lines) <= MOST and all(abs(line - place.line) > NEARBY for line in lines)


def test_lines_are_apart_and_above(kernel: Path, found: Diagnosis) -> None:
    load = Place(str(kernel), line_of(kernel, "float(k[row + d])"))
    lines = [at.line for at in origins(found.case, load)]
    assert lines and all(load.line - line > NEARBY for line in lines)
    assert len(lines) == 1 or abs(lines[0] - lines[1]) > NEARBY


def test_a_line_without_instructions_has_no_origins(kernel: Path, found: Diagnosis) -> None:
    assert origins(found.case, Place(str(kernel), 1)) == () == origins(found.case, None)


def test_earlier_launches_are_suspected_behind_the_own(tmp_path: Path) -> None:
    kernel = write(tmp_path, "split_k", "warp_sum(products) * scale", "warp_sum(products)")
    case = explained(kernel).case
    score, head = line_of(kernel, "warp_sum(products);"), line_of(kernel, "split_k_reduce(const")
    of_reduce = slice_lines(case, Place(str(kernel), line_of(kernel, "ELEMENT(u * inverse)")))
    last_of_own = max(at for at, line in enumerate(of_reduce) if line > head)
    assert score in of_reduce[last_of_own + 1 :]
    of_partial = slice_lines(case, Place(str(kernel), score))
    assert of_partial and max(of_partial) < head
    of_nothing = slice_lines(case, Place(str(kernel), line_of(kernel, "weft: launch    split_k_reduce")))
    assert slice_lines(case, None) == of_nothing
    assert {score, line_of(kernel, "ELEMENT(u * inverse)")} <= set(of_nothing)


def test_the_way_back_ends_at_values_that_are_right(tmp_path: Path) -> None:
    """U and l are right, so the mistake is in what O is computed of and no stage: 1 / l, not the sum over V."""
    kernel = write(tmp_path, "scalar", "1.0f / l : 0.0f", "1.25f / l : 0.0f")
    found = explained(kernel)
    first = found.first
    assert first is not None and first.stage == "o"
    inverse, sums = line_of(kernel, "1.25f / l"), line_of(kernel, "u[i] = u[i] * rescale")
    stored = Place(str(kernel), line_of(kernel, "u[i] * inverse"))
    lines = [at.line for at in origins(found.case, stored)]
    assert lines[0] == inverse and sums not in lines
    assert next(line for line in slice_lines(found.case, stored) if line in (inverse, sums)) == inverse


def test_what_made_a_wrong_value_is_not_right(tmp_path: Path) -> None:
    """The first tile of l is right by luck of the starting value; its later tiles, by the same instruction, are not."""
    kernel = write(tmp_path, "scalar", "l = l * rescale + p;", "l = l + p;")
    found = explained(kernel)
    wrong = line_of(kernel, "l = l + p;")
    assert found.case.made_right, "scores, m and p are right"
    assert all(wrong not in maker.lines for maker in found.case.made_right)


def test_a_stage_that_lacks_columns_is_not_right(tmp_path: Path) -> None:
    """U is right in the columns that are summed, and the first 32 are left out: its line may be the mistake."""
    kernel = write(
        tmp_path, "scalar", "if (d < D) u[i] = u[i] * rescale", "if (d >= 32 && d < D) u[i] = u[i] * rescale"
    )
    found = explained(kernel, shape=Shape("two_columns_a_lane", 1, 1, 1, 5, 9, 64))
    sums = line_of(kernel, "u[i] = u[i] * rescale")
    assert all(sums not in maker.lines for maker in found.case.made_right)
