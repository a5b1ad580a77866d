"""A warning fails nothing unless the judge is strict; errors and wrong numbers are reported together, cause first."""

import json
from pathlib import Path

import pytest

from tests.judge.candidates import RACED_AND_WRONG, WARNED, WARNED_AND_WRONG
from weft.attention.shapes import SHAPES
from weft.cli.main import main
from weft.core.finding_codes import Severity
from weft.core.status import Status
from weft.diagnose.conclusion import cure_of, sentence
from weft.diagnose.diagnose import diagnose
from weft.judge.candidate import Candidate
from weft.judge.judge import Policy, judge
from weft.judge.local_runs import LocalRuns
from weft.judge.select import Choice, find_candidate
from weft.judge.verdict import Verdict
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

WORKLOAD = Workload(SHAPES["small"], "f16", "none", "unit_normal", 0)
OPTIONS = ["--shapes", "small", "--regimes", "unit_normal", "--masks", "none", "--seeds", "1"]


@pytest.fixture
def kernel(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text(request.param)
    return path


def verdict(path: Path, *, strict: bool = False) -> Verdict:
    return judge(LocalRuns(Candidate(path)), TASKS["sdpa"], WORKLOAD, Policy(strict=strict)).verdict


def said(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    code = main(["check", str(path), *OPTIONS, *options])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("kernel", [WARNED], indirect=True)
def test_a_warning_is_shown_and_fails_nothing(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = verdict(kernel)
    assert found.passed and [(f.code, f.level) for f in found.findings] == [("R103", Severity.WARNING)]
    assert verdict(kernel, strict=True).status is Status.UNSAFE
    code, shown = said(kernel, capsys)
    assert code == 0 and "R103 warning" in shown and shown.endswith("ERROR SUMMARY: 0 errors, 1 warning\n")
    code, shown = said(kernel, capsys, "--strict")
    assert code == 1 and "UNSAFE: R103 warning" in shown and "its numbers are right in this run" in shown


@pytest.mark.parametrize("kernel", [WARNED], indirect=True)
def test_a_run_with_warnings_ends_with_0_unless_strict(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["run", str(kernel), "--tool", "racecheck", "--size", "SQ=16", "--size", "SKV=16", "--json"]
    assert main(options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["clean"] and [finding["severity"] for finding in found["findings"]] == ["warning"]
    assert main([*options, "--strict"]) == 1


@pytest.mark.parametrize("kernel", [WARNED_AND_WRONG], indirect=True)
def test_wrong_numbers_come_before_a_warning(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = said(kernel, capsys)
    assert code == 1 and "INCORRECT_NUMERICAL: tight" in shown
    assert shown.index("% bad") < shown.index("R103 warning")


@pytest.mark.parametrize("kernel", [RACED_AND_WRONG], indirect=True)
def test_an_error_comes_before_the_numbers(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = verdict(kernel)
    assert found.status is Status.UNSAFE and found.message.startswith("R102")
    assert found.error is not None and found.error.bad_share > 0.1
    assert found.samples and not all(gate.passed for gate in found.gates)
    code, shown = said(kernel, capsys)
    assert code == 1 and shown.index("UNSAFE: R102") < shown.index("its numbers are wrong too: tight")


@pytest.mark.parametrize("kernel", [WARNED_AND_WRONG], indirect=True)
def test_the_diagnosis_ignores_a_warning(kernel: Path) -> None:
    choice = Choice(("small",), ("unit_normal",), ("none",), seeds=(0,))
    found = diagnose(*find_candidate(str(kernel), task=None), choice)
    assert found.causes == () and [finding.code for finding in found.other_findings] == ["R103"]
    assert found.signatures[0].name == "missing_rescale" and "rescale" in sentence(found) + cure_of(found)
