"""Allow lines: what they excuse, what they must not excuse, and unused ones."""

from pathlib import Path

import pytest

from weft.core.errors import UsageError
from weft.core.records import Finding, Place, Run
from weft.engines.kernel_file import load
from weft.engines.suppress import parse_allows, sift, unused
from weft.engines.virtual import VirtualGPU
from weft.probes.tools import watch_for

TEXT = """\
a;  // weft: allow R102 lanes in step
// weft: allow I201 padding
// weft: allow R103 one writer
b;
c;
"""


def at(code: str, line: int, file: str = "k.cu") -> Finding:
    return Finding(code, "", place=Place(file, line))


def test_an_allow_line_covers_its_own_line_or_the_next() -> None:
    allows = parse_allows(TEXT, "k.cu")
    assert [(a.code, a.line, a.covers, a.reason) for a in allows] == [
        ("R102", 1, 1, "lanes in step"),
        ("I201", 2, 4, "padding"),
        ("R103", 3, 4, "one writer"),
    ]


@pytest.mark.parametrize(
    ("finding", "excused"),
    [
        (at("R102", 1), True),
        (at("R101", 1), False),
        (at("R102", 2), False),
        (at("R102", 1, "other.cu"), False),
        (at("I201", 4), True),
        (at("R103", 4), True),
        (at("R103", 5), False),
        (Finding("R102", "", place=Place("lib.h", 9, inlined_at=Place("k.cu", 1))), True),
        (Finding("R102", "", place=Place("k.cu", 5), other=Place("k.cu", 1)), True),
        (Finding("R102", "", ptx_line=1), False),
    ],
)
def test_only_its_code_on_its_line_is_excused(finding: Finding, excused: bool) -> None:
    sifted = sift([finding], parse_allows(TEXT, "k.cu"))
    assert (sifted.kept, len(sifted.suppressed)) == ((() if excused else (finding,)), int(excused))


def test_a_header_has_allow_lines_too(tmp_path: Path) -> None:
    header = tmp_path / "tile.h"
    header.write_text(TEXT)
    (suppressed,) = sift([at("R102", 1, str(header))], ()).suppressed
    assert suppressed.reason == "lanes in step"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("// weft: allow R102", "k.cu:1: allow R102 needs a reason"),
        ("x; // weft: allow", "k.cu:1: allow needs a code"),
        ("// weft: allow R999 because", "not 'R999'; there are M101"),
        ("// weft: allow all of it", "not 'all'"),
        ("// weft: allow S301 it hangs", "S301 ends the launch and cannot be allowed"),
    ],
)
def test_an_invalid_allow_line_raises(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_allows(line, "k.cu")


def test_unused_lines_are_reported_only_for_codes_whose_checker_ran() -> None:
    allows = parse_allows("a; // weft: allow M101 known\nb; // weft: allow R102 known\n", "k.cu")
    assert [(f.code, f.place) for f in unused(allows, (), ())] == [("K502", Place("k.cu", 1))]
    assert len(unused(allows, (), {"racecheck"})) == 2
    assert unused(allows, allows, {"racecheck"}) == ()


SOURCE = """\
// weft: out     y : i32[64]
// weft: workspace  w : i32[64]
// weft: launch  turn(w) grid(1) block(64)
// weft: launch  copy(w, y) grid(1) block(64)
__global__ void turn(int* w) {
    __shared__ int tile[64];
    tile[threadIdx.x] = threadIdx.x;
    // weft: allow CODE known
    w[threadIdx.x] = tile[threadIdx.x % 32];
}
__global__ void copy(const int* w, int* y) { y[threadIdx.x] = w[threadIdx.x]; }
"""


def run(tmp_path: Path, code: str, tools: str = "racecheck") -> Run:
    file = tmp_path / "k.cu"
    file.write_text(SOURCE.replace("CODE", code))
    return load(file).run(VirtualGPU(threads=1), watch=watch_for([tools])).run


def test_an_allowed_finding_neither_fails_nor_ends_the_sequence(tmp_path: Path) -> None:
    outcome = run(tmp_path, "R102")
    assert outcome.clean and outcome.findings == () and outcome.entries == ("turn", "copy")
    (suppressed,) = outcome.suppressed
    assert (suppressed.finding.code, suppressed.reason) == ("R102", "known")


def test_another_code_on_the_line_still_fails(tmp_path: Path) -> None:
    outcome = run(tmp_path, "R103")
    assert not outcome.clean and outcome.suppressed == () and outcome.entries == ("turn",)
    assert {finding.code for finding in outcome.findings} == {"R102"}, "an incomplete run says nothing of unused lines"


def test_an_unused_allow_line_is_reported_and_does_not_fail(tmp_path: Path) -> None:
    outcome = run(tmp_path, "M101", "memcheck")
    (finding,) = outcome.findings
    assert outcome.clean and (finding.code, finding.place) == ("K502", Place(str(tmp_path / "k.cu"), 8))
    assert run(tmp_path, "R102", "memcheck").findings == (), "racecheck did not run"
