"""The labels cover every line of the ladder that can be mutated, and the sample is balanced."""

from collections import Counter
from pathlib import Path

import pytest

from weft.attention.stages import STAGES
from weft.core.errors import UsageError
from weft.kernels.ladder import RUNGS
from weft.mutate.ladder_sample import (
    HELD_OUT_RUNGS,
    LEFT_OUT,
    PER_RUNG,
    Label,
    Labelled,
    all_of,
    ladder_sample,
    read_labels,
    stages_of_lines,
    touched_lines,
)
from weft.mutate.operators import CLASSES, OPERATORS

LABELS = Path(__file__).parents[2] / "benchmarks" / "mutant_stages"
LABELLED = tuple(rung for rung in RUNGS if rung not in LEFT_OUT)


@pytest.fixture(scope="module")
def drawn() -> tuple[Labelled, ...]:
    return ladder_sample(LABELS)


@pytest.mark.parametrize("rung", LABELLED)
def test_every_line_that_can_be_mutated_has_its_label(rung: str) -> None:
    row, labels = RUNGS[rung], read_labels(LABELS / f"{rung}.txt")
    lines = stages_of_lines(row.path.read_text(), row.language, row.file, labels)
    assert sum(1 for stages in lines.values() if not stages) < len(lines) / 4, "too many lines without a stage"
    for line, stages in lines.items():
        assert len(stages) <= 3, f"line {line} names {stages}"
        assert list(stages) == sorted(stages, key=STAGES.index), f"line {line}: {stages} is not in a kernel's order"


def test_labels_are_those_of_the_ladder() -> None:
    assert {file.stem for file in LABELS.glob("*.txt")} == set(LABELLED)


def test_a_line_without_label_and_a_label_without_line_are_named() -> None:
    row, labels = RUNGS["scalar"], read_labels(LABELS / "scalar.txt")
    lines = touched_lines(row.path.read_text(), row.language, row.file)
    with pytest.raises(UsageError, match=f"line {lines[3][0]} has no label"):
        stages_of_lines(row.path.read_text(), row.language, row.file, (*labels[:3], *labels[4:]))
    with pytest.raises(UsageError, match=r"label without a line: y = x;"):
        stages_of_lines(row.path.read_text(), row.language, row.file, (*labels, Label(("o",), "y = x;")))


def test_a_label_of_no_stage_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "labels.txt"
    table.write_text("# a remark\nk v | x = y;\nsoftmax | p = q;\n")
    with pytest.raises(UsageError, match=r"labels\.txt:3"):
        read_labels(table)


def test_two_exchanged_lines_may_break_the_stages_of_either() -> None:
    pairs = [each for each in all_of("fp8_mma", LABELS) if each.mutant.before.lstrip().startswith("rescale[r] = exp2")]
    exchanged = next(each for each in pairs if each.mutant.klass == "order")
    assert exchanged.stages == ("m", "l", "u")  # the factor of l and u, and m itself


def test_the_sample_is_balanced(drawn: tuple[Labelled, ...]) -> None:
    assert len(drawn) == len({each.mutant.id for each in drawn}) == PER_RUNG * len(LABELLED) >= 480
    assert set(Counter(each.rung for each in drawn).values()) == {PER_RUNG}
    for rung in LABELLED:  # a class has fewer than the others only where a rung has no more of it
        taken = Counter(each.mutant.klass for each in drawn if each.rung == rung)
        there = Counter(each.mutant.klass for each in all_of(rung, LABELS))
        for klass in CLASSES:
            assert taken[klass] >= max(taken.values()) - 1 or taken[klass] == there[klass], f"{klass} of {rung}"
    assert {each.mutant.operator for each in drawn} == {operator.name for operator in OPERATORS}


def test_what_is_held_out(drawn: tuple[Labelled, ...]) -> None:
    marked = {operator.name for operator in OPERATORS if operator.held_out}
    for each in drawn:
        assert each.held_out == (each.mutant.operator in marked or each.rung in HELD_OUT_RUNGS)
        assert each.stages
    assert 0.25 <= sum(each.mutant.operator in marked for each in drawn) / len(drawn) <= 0.4


def test_the_sample_is_the_same_every_time_and_another_with_another_seed(drawn: tuple[Labelled, ...]) -> None:
    assert ladder_sample(LABELS) == drawn
    other = {each.mutant.id for each in ladder_sample(LABELS, seed=10)}
    assert len(other & {each.mutant.id for each in drawn}) < 0.8 * len(drawn)
