"""Findings as JSON, GitHub annotations, SARIF and a line of source."""

import json
from pathlib import Path

from weft.core.finding_json import finding_record
from weft.core.finding_text import excerpt, github_lines, sarif, summary
from weft.core.records import Finding, Place, Suppressed

ERROR = Finding("M101", "out of bounds, 100% of x", place=Place("a,b.cu", 8, 17), cta=(3, 0, 0), warp=7, lanes=1 << 8)
INFO = Finding("R101", "race", place=Place("k.cu", 2), lanes=1, severity="info", other=Place("k.cu", 9), other_warp=2)
WARNING = Finding("R102", "race", place=Place("k.cu", 3), lanes=1, severity="warning")


def test_summary() -> None:
    assert summary([]) == "ERROR SUMMARY: 0 errors, 0 warnings"
    assert summary([ERROR, INFO, WARNING]) == "ERROR SUMMARY: 1 error, 1 warning"
    suppressed = Suppressed(WARNING, "known")
    assert summary([ERROR, ERROR], [suppressed]) == "ERROR SUMMARY: 2 errors, 0 warnings, 1 suppressed"


def test_github_escapes_and_levels() -> None:
    error, warning, info = github_lines([ERROR, WARNING, INFO], limit=3)
    place = "file=a%2Cb.cu,line=8,col=17,title=M101 out of bounds"
    assert error.startswith(
        f"::error {place}::M101 out of bounds, 100%25 of x · a,b.cu:8 · CTA (3, 0, 0) warp 7 lane 8"
    )
    assert warning.startswith("::warning file=k.cu,line=3,title=R102 ") and info.startswith(
        "::notice file=k.cu,line=2,"
    )
    assert list(github_lines([ERROR, WARNING], limit=0)) == ["::notice::2 more findings"]


def test_json_has_the_other_access() -> None:
    record = finding_record(INFO)
    assert record["severity"] == "info" and record["tool"] == "racecheck"
    place = {"file": "k.cu", "line": 9, "column": 0, "inlined_at": []}
    assert record["other"] == {**place, "cta": None, "warp": 2, "lanes": 0}
    assert finding_record(ERROR)["other"] is None
    json.dumps(record)


def test_sarif_has_rules_results_and_suppressions() -> None:
    log = json.loads(json.dumps(sarif([ERROR], [Suppressed(WARNING, "known")])))
    (run,) = log["runs"]
    assert log["version"] == "2.1.0" and [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["M101", "R102"]
    failed, excused = run["results"]
    place = failed["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "a,b.cu"}, "region": {"startLine": 8, "startColumn": 17}}
    assert failed["level"] == "error" and "suppressions" not in failed
    assert excused["suppressions"] == [{"kind": "inSource", "justification": "known"}]


def test_the_line_of_source_with_a_caret(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("one\n\ty[i] = x[i];\n")
    assert list(excerpt(Place(str(file), 2, 9))) == ["     2 | \ty[i] = x[i];", "       | \t       ^"]
    assert list(excerpt(Place(str(file), 2))) == ["     2 | \ty[i] = x[i];"]
    assert list(excerpt(Place(str(file), 3, 1))) == [] == list(excerpt(Place("gone.cu", 1))) == list(excerpt(None))
