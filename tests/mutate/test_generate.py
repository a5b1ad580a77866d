"""Mutants of the ladder: one line each, the same every time, only in code."""

import pytest

from weft.core.errors import UsageError
from weft.kernels.ladder import RUNGS
from weft.mutate.generate import apply, generate, language_of
from weft.mutate.records import Mutant


def mutants_of(rung: str) -> tuple[Mutant, ...]:
    row = RUNGS[rung]
    return generate(row.path.read_text(), row.language, row.file)


@pytest.mark.parametrize("rung", RUNGS)
def test_one_line_differs_or_two_adjacent_lines_are_exchanged(rung: str) -> None:
    source = RUNGS[rung].path.read_text()
    before = source.split("\n")
    found = mutants_of(rung)
    assert len(found) > 80
    assert len({mutant.id for mutant in found}) == len(found)
    for mutant in found:
        after = apply(mutant, source).split("\n")
        assert len(after) == len(before)
        different = [number for number, (old, new) in enumerate(zip(before, after, strict=True), 1) if old != new]
        if mutant.klass == "order":
            assert different == [mutant.line, mutant.line + 1]
            assert [before[at - 1] for at in different] == [after[at - 1] for at in reversed(different)]
        else:
            assert different == [mutant.line]


@pytest.mark.parametrize("rung", RUNGS)
def test_comments_directives_and_assembly_stay(rung: str) -> None:
    comment = "#" if RUNGS[rung].language == "Triton" else "//"
    for mutant in mutants_of(rung):
        for old, new in zip(sorted(mutant.before.split("\n")), sorted(mutant.after.split("\n")), strict=True):
            assert not old.lstrip().startswith((comment, "#")), mutant.id
            assert "asm" not in old and "static_assert" not in old, mutant.id
            said = old.partition(f"  {comment}")[2]
            assert new.endswith(said), mutant.id


def test_the_same_every_time_and_ids_survive_changes_elsewhere() -> None:
    row = RUNGS["scalar"]
    source = row.path.read_text()
    found = generate(source, row.language, row.file)
    assert generate(source, row.language, row.file) == found
    moved = generate("// one more line\n" + source, row.language, row.file)
    assert [(mutant.id, mutant.line - 1) for mutant in moved] == [(mutant.id, mutant.line) for mutant in found]


def test_equal_lines_have_separate_mutants() -> None:
    text = "__global__ void f() {\nx += y;\nx += y;\n}\n"
    marks = [mutant.id for mutant in generate(text, "CUDA", "f.cu") if mutant.operator == "sum_overwritten"]
    assert len(set(marks)) == 2


def test_a_mutant_of_another_text_is_refused() -> None:
    mutant = mutants_of("scalar")[0]
    with pytest.raises(UsageError, match=f"line {mutant.line} of scalar.cu"):
        apply(mutant, "nothing\n" * 200)


def test_the_language_is_that_of_the_suffix() -> None:
    assert (language_of("a/b.cu"), language_of("b.py")) == ("CUDA", "Triton")
    with pytest.raises(UsageError, match=r"\.cu, \.cuh and \.py"):
        language_of("b.ptx")
