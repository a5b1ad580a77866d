"""docs/open_cases.md: every number in its tables is measured again, and its conclusions follow from them."""

import re
from pathlib import Path

import pytest

from tests.zoo.open_cases import SPLIT_K, SPLIT_SHAPES, TABLES, Setting, read_tables, split_errors

PAGE = (Path(__file__).parents[2] / "docs" / "open_cases.md").read_text()
BY_KEY = {candidate.key: candidate for candidate in (*SPLIT_K, *TABLES)}
RIGHT = 1e-3
"""The laboratory's gate for fp16."""


def rows(mark: str) -> list[list[str]]:
    """The cells of the page's table between two comments, without its head."""
    table = PAGE.partition(f"<!-- {mark} -->\n")[2].partition(f"<!-- /{mark} -->")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return lines[2:]


def close(measured: float, cell: str) -> bool:
    """Whether they agree to two digits, with one unit in the second for another order of sums."""
    return measured == pytest.approx(float(cell), rel=0.11)


@pytest.mark.parametrize("row", rows("candidates"), ids=lambda row: row[0].strip("`"))
def test_candidates(row: list[str], tmp_path: Path) -> None:
    candidate = BY_KEY[row[0].strip("`")]
    shapes = ("split_4", "split_64", "split_256")
    errors = split_errors(candidate, Setting(), tmp_path, shapes=shapes)
    assert row[1] == candidate.title
    assert all(close(*pair) for pair in zip(errors, row[2:], strict=True)), errors
    assert errors[0] < RIGHT, "right at S = 4"
    assert not all(0.19 <= error <= 0.23 for error in errors[1:]), "none is near 0.2 in this setting"


def test_every_candidate_is_on_the_page() -> None:
    assert [row[0].strip("`") for row in rows("candidates")] == [candidate.key for candidate in SPLIT_K]
    assert [row[0].strip("`") for row in rows("tables")] == [candidate.key for candidate in TABLES]


@pytest.mark.parametrize("row", rows("settings"), ids=lambda row: "-".join(row[:3]).replace("`", ""))
def test_settings(row: list[str], tmp_path: Path) -> None:
    setting = Setting(row[1], row[2], int(row[3]))
    errors = split_errors(BY_KEY[row[0].strip("`")], setting, tmp_path)
    assert len(errors) == len(SPLIT_SHAPES)
    assert all(close(*pair) for pair in zip(errors, row[4:], strict=True)), errors
    limits = {"second_key_twice": (0.185, 0.205), "offsets": (0.16, 0.25)}
    low, high = limits[row[0].strip("`")]
    assert errors[0] < RIGHT and all(low <= error <= high for error in errors[1:]), errors


def test_one_split_distinguishes_the_two(tmp_path: Path) -> None:
    one_split = Setting("uniform", "top_left", keys_per_split=4096)
    errors = {
        key: split_errors(BY_KEY[key], one_split, tmp_path, shapes=("split_128",))
        for key in ("offsets", "second_key_twice")
    }
    assert errors["offsets"][0] < RIGHT and errors["second_key_twice"][0] > 100 * RIGHT


@pytest.mark.parametrize("row", rows("tables"), ids=lambda row: row[0].strip("`"))
def test_tables(row: list[str], tmp_path: Path) -> None:
    candidate = BY_KEY[row[0].strip("`")]
    reading = read_tables(candidate, tmp_path)
    assert (row[1], row[5]) == (candidate.title, ", ".join(reading.codes))
    if reading.codes:
        return  # a run that stopped has no table to read
    ones = tuple(int(number) for number in re.findall(r"\d+", row[2]))
    assert ones == reading.ones
    assert reading.positive == pytest.approx(float(row[3].rstrip(" %")) / 100, abs=0.01)
    assert close(reading.error, row[4])
    symptom = any(reading.ones) and reading.positive > 0.8
    assert symptom == (candidate.key in ("not_compiled", "one_table"))
