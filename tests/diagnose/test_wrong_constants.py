"""Constants whose value is not what their name says are found in the text, and named as the cause."""

from pathlib import Path

import pytest

from tests.diagnose.edited import explained, line_of, write
from weft.diagnose.conclusion import place_of, sentence
from weft.diagnose.signatures.constants import wrong_constants
from weft.kernels.ladder import RUNGS


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("constexpr float LOG2_E = 1.4426950408889634f * 0.5f, LN_2 = 0.693147181f;", ["LOG2_E"]),
        ("constexpr float LOG2_E = 1.44269504f, LN_2 = 0.963147181f;", ["LN_2"]),
        ("#define LOG2E 1.4462f", ["LOG2E"]),
        ("LOG2_E: tl.constexpr = tl.constexpr(0.6931471805599453)", ["LOG2_E"]),
        ("constexpr float kLog2e = 1.4427f;", []),  # five digits; a name of another style is not looked at
        ("const float LN2 = logf(2.0f);", []),
        ("constexpr int LN2 = D == 64 ? 6 : 7;", []),
        ("static_assert(LN2 == 0.5f);", []),
        ("constexpr float SCALE_LOG2_E = 0.18f;", []),
    ],
)
def test_constants(line: str, names: list[str], tmp_path: Path) -> None:
    file = tmp_path / ("k.py" if "tl." in line else "k.cu")
    file.write_text(f"{line}\n")
    assert [found.name for found in wrong_constants(str(file))] == names


def test_no_rung_has_one() -> None:
    assert [found for rung in RUNGS.values() for found in wrong_constants(str(rung.path))] == []


def test_the_definition_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, "fa_triton", "constexpr(1.4426950408889634)", "constexpr(1.4462950408889634)")
    found = explained(file)
    place = place_of(found)
    assert sentence(found) == "`LOG2_E` is 1.446295; log2(e) is 1.442695"
    assert place is not None and place.line == line_of(file, "LOG2_E = ")
