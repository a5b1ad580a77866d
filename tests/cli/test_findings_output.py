"""Findings as the verbs print them."""

import json
from pathlib import Path

import pytest

from weft.cli.findings_output import text_lines
from weft.cli.main import main
from weft.core.records import Finding, Place

ERROR = Finding("M101", "out of bounds, 100% of x", place=Place("a,b.cu", 8, 17), cta=(3, 0, 0), warp=7, lanes=1 << 8)
INFO = Finding("R101", "race", place=Place("k.cu", 2), lanes=1, severity="info", other=Place("k.cu", 9), other_warp=2)
WARNING = Finding("R102", "race", place=Place("k.cu", 3), lanes=1, severity="warning")


def test_errors_come_first_and_the_rest_is_counted() -> None:
    lines = list(text_lines([INFO, WARNING, ERROR], limit=2))
    assert lines == [str(ERROR), str(WARNING), "1 more finding: --max-findings 3 shows all"]


KERNEL = """\
// weft: out     y : i32[32]
// weft: launch  fill(y) grid(1) block(32)
__global__ void fill(int* y) {
    const int t = threadIdx.x;
    y[t + 1] = t;ALLOW
    y[t + 2] = t;
}
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = Path("k.cu")
    file.write_text(KERNEL.replace("ALLOW", ""))
    return file


def test_run_annotates_for_github(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "k.cu", "--format", "github"]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("::error file=k.cu,line=5,") and second.startswith("::error file=k.cu,line=6,")
    assert last == "ERROR SUMMARY: 2 errors, 0 warnings"


def test_run_as_sarif(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "k.cu", "--format", "sarif"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["M101", "M101"]


def test_run_limits_what_it_prints_not_what_it_counts(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "k.cu", "--max-findings", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("M101") for line in lines) == 1
    assert "1 more finding: --max-findings 2 shows all" in lines
    assert lines[-1] == "ERROR SUMMARY: 2 errors, 0 warnings"


def test_run_lists_what_the_source_allows(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel.write_text(KERNEL.replace("ALLOW", "  // weft: allow M101 the last one is dropped on purpose"))
    assert main(["run", "k.cu", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert [finding["line"] for finding in record["findings"]] == [6]
    (suppressed,) = record["suppressed"]
    assert (suppressed["line"], suppressed["reason"]) == (5, "the last one is dropped on purpose")
