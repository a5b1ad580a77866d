"""docs/findings: a page per code, whose example gives the finding at the marked line, and whose cure is clean."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from weft.attention.shapes import SHAPES
from weft.cli.main import main
from weft.core.finding_codes import FINDING_CODES, Severity
from weft.core.records import Finding, Run
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.judge.large_sizes import large_calls
from weft.judge.local_runs import LocalRuns
from weft.judge.select import find_candidate
from weft.probes.tools import watch_for
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {file.stem: file.read_text() for file in sorted((DOCS / "findings").glob("*.md"))}
_FILE = re.compile(r"^`(\w+\.cu)`:\n```cuda\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n\$ weft (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STEPS = 100_000
"""Enough for every example but the one with an infinite loop."""


@dataclass(frozen=True)
class Page:
    """The parts of a page that a test needs."""

    bad: str
    good: str
    command: list[str]
    shown: list[str]


def read(code: str) -> Page:
    files = dict(_FILE.findall(PAGES[code]))
    ((command, shown),) = _CONSOLE.findall(PAGES[code])
    assert set(files) == {"bad.cu", "good.cu"}
    return Page(files["bad.cu"], files["good.cu"], command.split(), shown.splitlines())


def marked_line(text: str, code: str) -> int:
    """Return the line with `finds CODE`, or the one after it."""
    ((number, line),) = [(n, line) for n, line in enumerate(text.splitlines(), 1) if f"finds {code}" in line]
    return number + 1 if "on the next line" in line else number


def run(file: Path, tool: str, *, schedule: int = 0, gpu_name: str = "") -> Run:
    gpu = VirtualGPU(gpu_name, threads=1, schedule=schedule)
    watch = watch_for([] if tool == "kernel" else [tool])
    return load(file, gpu=gpu_name).run(gpu, watch=watch, max_steps=_STEPS).run


def gpu_of(command: list[str]) -> str:
    """Return the GPU or architecture that an example needs, empty for any."""
    chosen = [command[at + 1] for at, word in enumerate(command) if word in ("--gpu", "--arch")]
    return chosen[0] if chosen else ""


def shown_by(tool: str, file: Path, gpu_name: str = "") -> tuple[Finding, ...]:
    """Return the findings of a run, or those that need no run."""
    workload = Workload(SHAPES["small"], "f16", "none", "unit_normal", 0)
    if tool == "indexcheck":
        return LocalRuns(Candidate(file)).check_indices({}, large_calls(TASKS["sdpa"], workload)).findings
    if tool != "check":
        return run(file, tool, gpu_name=gpu_name).findings
    candidate, supports = find_candidate(str(file), task=None)
    verdict = check(candidate, supports.task, workload)
    assert verdict.passed, verdict.message
    return verdict.findings


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert set(PAGES) == set(FINDING_CODES)


def test_the_index_is_the_table() -> None:
    rows = [line for line in (DOCS / "reference" / "findings.md").read_text().splitlines() if line.startswith("| [")]
    assert rows == [
        f"| [{row.code}](../findings/{row.code}.md) | {row.name} | {row.tool} | {row.severity} | {row.cure} |"
        for row in FINDING_CODES.values()
    ]


@pytest.mark.parametrize("code", PAGES)
def test_a_page_has_its_parts(code: str) -> None:
    row, text = FINDING_CODES[code], PAGES[code]
    assert text.startswith(f"# {code}: {row.name}\n\n{row.tool} · {row.severity}\n")
    parts = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert parts == ["What happened", "Why it matters", "Example", "Cure"]


@pytest.mark.parametrize("code", PAGES)
def test_the_example_shows_the_code_at_its_line(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = read(code)
    monkeypatch.chdir(tmp_path)
    Path("bad.cu").write_text(page.bad)
    findings = shown_by(FINDING_CODES[code].tool, Path("bad.cu"), gpu_of(page.command))
    named = {each.code for each in findings if each.code == code or each.level is not Severity.INFO}
    assert named == {code}, "one page, one code"
    places = [finding.place for finding in findings]
    assert marked_line(page.bad, code) in {place.line for place in places if place and place.file == "bad.cu"}
    status = main(page.command)
    printed = capsys.readouterr().out.splitlines()
    verb = "check" if FINDING_CODES[code].tool in ("indexcheck", "check") else "run"
    fails = FINDING_CODES[code].severity is Severity.ERROR
    assert page.command[:2] == [verb, "bad.cu"] and status == (1 if fails else 0)
    shown = [line for line in page.shown if line != "…"]
    assert [line for line in printed if line in shown] == shown, "\n".join(printed)
    assert all(line in shown for line in printed if re.match(r"[A-Z]\d{3} ", line)), "\n".join(printed)
    assert shown[-1] == printed[-1]


@pytest.mark.parametrize("code", PAGES)
def test_the_cured_example_is_clean(code: str, tmp_path: Path) -> None:
    file = tmp_path / "good.cu"
    file.write_text(read(code).good)
    for schedule in (0, 1):
        findings = run(file, "all", schedule=schedule, gpu_name=gpu_of(read(code).command)).findings
        # A note that bulk copies were not checked for races stays: it is no fault of the kernel.
        assert [each for each in findings if each.code == code or each.severity is not Severity.INFO] == []
    if FINDING_CODES[code].tool == "check":
        assert shown_by("check", file) == ()
