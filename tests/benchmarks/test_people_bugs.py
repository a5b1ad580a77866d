"""The set of bugs that people write is well-formed: edits apply once, labels are lines of code, variants compile."""

import ast
from functools import cache
from pathlib import Path

import pytest

from benchmarks.people_bugs import PersonBug, designs, people_bugs, read_bugs, report
from weft.engines.kernel_file import load
from weft.mutate.equivalent import canonical

ENOUGH = 48
BUGS = people_bugs()


@cache
def ptx(path: Path, causal: str) -> dict[str, str]:
    binaries = load(path, defines={"CAUSAL": causal}).binaries()
    return {entry: canonical(binary.ptx) for entry, binary in binaries.items()}


def test_the_set_is_large_and_names_are_unique() -> None:
    assert len(BUGS) >= ENOUGH and len({bug.id for bug in BUGS}) == len(BUGS)
    assert {bug.design for bug in BUGS} == set(designs())
    assert all(bug.kind and bug.what.endswith(".") for bug in BUGS)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_bug_changes_code_and_its_lines_are_those(bug: PersonBug) -> None:
    """`bug.text` raises unless every edit's text occurs once."""
    lines = bug.text.splitlines()
    changed = [lines[number - 1] for part in bug.faults for number in part]
    assert changed and not any(line.lstrip().startswith(("//", "#")) for line in changed)
    assert all(bug.is_near(number) for part in bug.faults for number in (part.start - 3, part.stop + 2))
    assert not bug.is_near(0)
    if bug.design.suffix == ".py":
        assert ast.dump(ast.parse(bug.text)) != ast.dump(ast.parse(bug.design.read_text()))


def marks(bug: PersonBug) -> list[pytest.MarkDecorator]:
    """Compile only the last bug of each CUDA design in a plain run: a compilation takes about a second."""
    last = next(each for each in reversed(BUGS) if each.design == bug.design)
    return [] if bug is last and bug.design.suffix == ".cu" else [pytest.mark.sweep]


@pytest.mark.parametrize("bug", [pytest.param(bug, marks=marks(bug), id=bug.id) for bug in BUGS])
def test_a_bug_compiles_to_other_code(bug: PersonBug, tmp_path: Path) -> None:
    path = bug.write(tmp_path)
    assert any(ptx(path, causal) != ptx(bug.design, causal) for causal in ("2", "0"))


def test_tables_are_read_strictly(tmp_path: Path) -> None:
    design = tmp_path / "kernel.cu"
    design.write_text("one;\ntwo;\ntwo;\nthree;\n")
    table = "[[bug]]\nname = 'b'\nkind = 'k'\nwhat = 'W.'\nstages = ['{stage}']\nedits = [['{old}', '']]\n"
    design.with_suffix(".toml").write_text(table.format(stage="softmax", old="one;"))
    with pytest.raises(ValueError, match="stages are q, k, v"):
        read_bugs(design)
    design.with_suffix(".toml").write_text(table.format(stage="l", old="two;"))
    with pytest.raises(ValueError, match="must occur once, not 2 times"):
        _ = read_bugs(design)[0].text
    design.with_suffix(".toml").write_text(
        table.format(stage="l", old="three;\\n").replace("['three;\\n'", '["three;\\n"')
    )
    (bug,) = read_bugs(design)
    assert (bug.text, bug.faults) == ("one;\ntwo;\ntwo;\n", (range(3, 5),))


def test_the_report_counts_bugs() -> None:
    rights = {"stage_right": True, "line_right": False, "line_among_three": True, "named": False, "fix": "-a\n+b\n"}
    killed = {"id": "a", "design": "warp_row", "outcome": "killed", "seconds": 2.0, **rights}
    found = report([killed, {**killed, "id": "b", "outcome": "survived", "seconds": 4.0}])
    counts = {"bugs": 2, "killed": 1, "stage": 1, "line_first": 0, "line_in_three": 1, "cause": 0, "fixed": 1}
    assert {name: found[name] for name in counts} == counts
    assert found["by_design"] == {"warp_row": counts} and found["by_language"]["CUDA"] == counts
    assert (found["seconds_median"], found["survivors"]) == (3.0, ["b"])
