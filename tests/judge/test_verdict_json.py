"""The JSON form of a verdict: round trip, every field, and no number that JSON does not have."""

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest

from weft.attention.error_report import Block, ErrorReport
from weft.attention.gates import GateResult
from weft.attention.shapes import Shape
from weft.core.finding_json import finding_of, finding_record
from weft.core.records import Finding, Place, Suppressed
from weft.core.status import Status
from weft.coverage.records import Coverage
from weft.judge.scope import Scope
from weft.judge.verdict import Sample, Verdict, conclude
from weft.judge.verdict_json import check_record, verdict_of, verdict_record
from weft.tasks.task import Workload

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "verdict_json.md"
INLINED = Place("k.cu", 7, 3, Place("k.cu", 20, 9))
RACE = Finding(
    "R102", "read after write", 31, INLINED, (1, 2, 3), 4, 0b101, 64, 9, "warning", "a barrier", "tile",
    Place("k.cu", 5), 2, 0b10,
)  # fmt: skip
PLAIN = Finding("M101", "out of bounds", 12)
ERROR = ErrorReport(1.5, 0.25, -0.125, 0.5, 0.75, 0.375, 0.0625, 3, (0, 1, 2, 3))
VERDICT = Verdict(
    Workload(Shape("mine", 1, 4, 2, 5, 6, 7), "bf16", "top_left", "logits_8", 11, "e4m3"),
    Status.INCORRECT_NUMERICAL,
    "tight: beyond",
    (GateResult("tight", False, Block(0, 1, 64), math.inf, 0.5), GateResult("lse", True, Block(0, 0, 0), 0.0, 1.0)),
    ERROR,
    {"err_quant": ERROR},
    ("lse",),
    (Sample((0, 1, 2, 3), -math.inf, 0.5),),
    (RACE, PLAIN),
    (Suppressed(PLAIN, "it is meant"),),
    12,
    True,
    1.25,
    order_dependent=("dq",),
)


def test_a_verdict_survives_a_round_trip() -> None:
    text = json.dumps(verdict_record(VERDICT), allow_nan=False)
    assert verdict_of(json.loads(text)) == VERDICT
    timeless = verdict_record(VERDICT, timed=False)
    assert "seconds" not in timeless and verdict_of(timeless) == dataclasses.replace(VERDICT, seconds=0.0)


def test_fewer_findings_are_written_than_are_counted() -> None:
    record = verdict_record(VERDICT, findings=1)
    assert [finding["code"] for finding in record["findings"]] == ["R102"] and record["findings_in_all"] == 2


def test_a_nan_is_spelled() -> None:
    broken = dataclasses.replace(ERROR, bias=math.nan)
    text = json.dumps(verdict_record(dataclasses.replace(VERDICT, error=broken)), allow_nan=False)
    error = verdict_of(json.loads(text)).error
    assert error is not None and math.isnan(error.bias) and error.max == 1.5


@pytest.mark.parametrize(
    "change",
    [{"code": "Z999"}, {"severity": "fatal"}, {"warp": "0"}, {"cta": [0, 0]}, {"ptx_line": True}, {"line": 1.5}],
)
def test_an_invalid_finding_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        finding_of({**finding_record(RACE), **change})


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 2"):
        verdict_of({**verdict_record(VERDICT), "version": 2})


def test_the_page_names_every_field_and_every_status() -> None:
    page = PAGE.read_text()
    named = set(re.findall(r"`(\w+)`", page))
    record = check_record({"k.cu": [VERDICT]}, {"k.cu": 1}, {"k.cu": Coverage()}, scopes={"k.cu": Scope()})
    (target,) = record["targets"].values()
    (verdict,) = target["verdicts"]
    finding = verdict["findings"][0]
    fields = {*record, *target, *verdict, *verdict["workload"], *verdict["gates"][0], *verdict["error"], *finding}
    fields |= {*verdict["workload"]["sizes"], *verdict["samples"][0], *finding["other"], *verdict["gates"][0]["where"]}
    assert fields - named == set()
    assert {status.value for status in Status} - named == set()


def test_a_conclusion_from_many_verdicts() -> None:
    warned = dataclasses.replace(VERDICT, status=Status.PASSED, message="", debug_build=False)
    passed = dataclasses.replace(warned, findings=())
    aside = dataclasses.replace(VERDICT, status=Status.UNSUPPORTED, message="its -G build is odd")
    unknown = dataclasses.replace(passed, status=Status.UNSUPPORTED, message="unknown")
    wrong = dataclasses.replace(passed, status=Status.UNSAFE, message="M101")
    found = conclude([passed, aside], 1)
    assert (found.status, found.message, found.judged) == (Status.PASSED, "its -G build is odd", 1)
    found = conclude([warned, aside, warned], 2)
    assert (found.status, found.message) == (Status.PASSED, f"its -G build is odd; {VERDICT.findings[0]}")
    assert conclude([passed, unknown], 3).status is Status.UNSUPPORTED
    assert conclude([unknown, passed, wrong], 3).failure == wrong
    assert conclude([passed, dataclasses.replace(wrong, debug_build=True)], 1).status is Status.UNSAFE
    assert conclude([], 0).status is Status.REJECTED
