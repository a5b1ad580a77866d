"""docs/tutorials/red_to_green.md: its edits make the zoo's bugs, and its diagnoses are what the commands print."""

import re
import shlex
from pathlib import Path

import pytest

from tests.zoo.zoo import BUGS
from weft.cli.main import main

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
TEXT = (FOLDER / "red_to_green.md").read_text()
BUG_OF = {"attention.cu": "Z12", "barrier.cu": "Z15", "split.cu": "Z05"}
_DIAGNOSIS = re.compile(r"^\$ (weft diagnose (\w+\.cu) .*)\n((?:[^`].*\n)+)", re.MULTILINE)
TRANSCRIPTS = {file: (command, shown) for command, file, shown in _DIAGNOSIS.findall(TEXT)}
KEPT = ("first wrong", "known as", "right", "lost at", "cure")
"""Rows of a diagnosis that neither times nor digits of an error can change."""


def test_every_bug_has_a_transcript_and_a_picture() -> None:
    assert set(TRANSCRIPTS) == set(BUG_OF)
    for file in BUG_OF:
        picture = FOLDER / f"{Path(file).stem}.png"
        assert f"({picture.name})" in TEXT and picture.stat().st_size < 120_000


@pytest.mark.parametrize("file", BUG_OF)
def test_edit(file: str) -> None:
    """The lines that a reader changes are those of the zoo's bug."""
    bug = BUGS[BUG_OF[file]]
    right, wrong = (bug.text(fixed=fixed).splitlines() for fixed in (True, False))
    for line in set(right) ^ set(wrong):
        assert f"{'-' if line in right else '+'} {line.strip()}" in TEXT


@pytest.mark.parametrize("file", BUG_OF)
def test_diagnosis(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bug = BUGS[BUG_OF[file]]
    command, shown = TRANSCRIPTS[file]
    monkeypatch.chdir(tmp_path)
    Path(file).write_text(bug.text())
    assert main(shlex.split(command)[1:]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == shown.splitlines()[0]
    assert printed[0].startswith(f"{file}:{bug.faulty_line()}: ")
    rows, meant = _rows(printed), _rows(shown.splitlines())
    assert rows["known as"].partition(",")[0] == bug.cause
    for name in set(KEPT) & set(meant):
        assert rows[name] == meant[name]


def _rows(lines: list[str]) -> dict[str, str]:
    """The first line of each row."""
    rows: dict[str, str] = {}
    for line in lines:
        if line.startswith("  ") and line[2:3].strip():
            rows.setdefault(line[2:15].strip(), line[15:])
    return rows
