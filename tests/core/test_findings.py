"""The table of codes, and a finding as one line."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import weft
from weft.core.finding_codes import FINDING_CODES, Severity
from weft.core.records import Finding, Place, Run, lane_list

RACE = Finding(
    "R101", "write-write race, 4 bytes at sS+0x40", place=Place("k.cu", 118), warp=0, lanes=1 << 3,
    other=Place("k.cu", 112), other_warp=1, other_lanes=1 << 3, cure="a barrier after line 112",
)  # fmt: skip


def test_rows() -> None:
    assert list(FINDING_CODES) == [row.code for row in FINDING_CODES.values()]
    for row in FINDING_CODES.values():
        assert re.fullmatch(r"[MIRSXKP]\d{3}", row.code) and row.name and row.cure
        assert not row.cure.endswith(".") and not row.cure[0].isupper(), "a clause after `cure:`"
    tools = {"M": "memcheck", "I": "initcheck", "R": "racecheck", "S": "synccheck", **dict.fromkeys("XKP", "kernel")}
    others = {"M106": "indexcheck", "K503": "check", "S313": "racecheck", "S316": "racecheck"}
    assert all(row.tool == others.get(row.code, tools[row.code[0]]) for row in FINDING_CODES.values())


def test_every_code_that_the_source_names_has_a_row() -> None:
    package = Path(weft.__file__).parent
    named = {code for file in package.rglob("*.py") for code in re.findall(r'"([MIRSXKP]\d{3})"', file.read_text())}
    assert named <= set(FINDING_CODES) and len(named) > 15


@pytest.mark.parametrize(
    ("lanes", "text"),
    [(1 << 5, "lane 5"), (0b1101, "lanes 0,2-3"), (0xFFFFFFFF, "lanes 0-31"), (0x80000001, "lanes 0,31")],
)
def test_lanes_as_text(lanes: int, text: str) -> None:
    assert lane_list(lanes) == text


def test_a_race_names_both_accesses_and_the_cure() -> None:
    assert str(RACE) == (
        "R101 write-write race, 4 bytes at sS+0x40 · k.cu:118 · CTA (0, 0, 0) warp 0 lane 3 / warp 1 lane 3 at k.cu:112"
        " · cure: a barrier after line 112"
    )


def test_severity_count_and_the_cure_of_the_table() -> None:
    text = str(replace(RACE, severity="warning", count=7, cure="", other=None))
    assert text.startswith("R101 warning: write-write race")
    assert text.endswith(f" lane 3 · 7 times · cure: {FINDING_CODES['R101'].cure}")


def test_a_finding_without_lanes_has_no_actor() -> None:
    assert "warp" not in str(Finding("K501", "changed", place=Place("k.cu", 1)))


def test_a_chain_of_inlined_calls_is_shown() -> None:
    place = Place("tile.h", 3, inlined_at=Place("k.cu", 20))
    assert "tile.h:3 (inlined at k.cu:20)" in str(Finding("M101", "out of bounds", place=place, lanes=1))


@pytest.mark.parametrize(("severity", "clean"), [("error", False), ("warning", True), ("info", True), ("", False)])
def test_errors_fail_a_run_and_warnings_only_a_strict_one(severity: str, clean: bool) -> None:
    run = Run(("k",), (replace(RACE, severity=severity),), "", 1, "", "")
    assert run.clean is run.passes(strict=False) is clean
    assert run.passes(strict=True) is (severity == "info")


def test_a_code_without_a_row_has_no_severity() -> None:
    with pytest.raises(KeyError):
        _ = Finding("Z999", "?").level
    assert Finding("K502", "?").level is Severity.INFO
