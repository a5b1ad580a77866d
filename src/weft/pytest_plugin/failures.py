"""Findings in pytest's reports: a failure without a traceback, JUnit properties, GitHub annotations."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from weft.core.errors import WeftError
from weft.core.finding_text import excerpt, github_lines
from weft.core.records import Finding, Place

PROPERTY = "weft.finding"
_SHOWN = 10
"""Most findings of one launch that a failure lists."""


def findings_behind(error: BaseException) -> WeftError | None:
    """Return the error itself, or the one it was raised from or while handling, if it carries findings."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at, WeftError) and _findings(at):
            return at
        at = at.__cause__ or at.__context__
    return None


def retell(
    report: pytest.TestReport, item: pytest.Item, caught: pytest.ExceptionInfo[BaseException], raised: WeftError
) -> list[str]:
    """Put findings into the report of a test; returns annotations."""
    here = item.config.invocation_params.dir
    findings = [_within(finding, here) for finding in _findings(raised)]
    text = "\n".join(_lines(findings, _launched_at(item, raised)))
    if caught.value is raised:
        short = pytest.fail.Exception(text, pytrace=False).with_traceback(raised.__traceback__)
        report.longrepr = cast(Any, item.repr_failure(pytest.ExceptionInfo.from_exception(short)))
    elif report.skipped and not hasattr(report, "wasxfail"):
        # pytest.skip() after a finding: a wrong kernel must not be reported as skipped.
        report.outcome, report.longrepr = "failed", text
    else:
        report.sections.append(("Weft's findings", text))
    properties = [(PROPERTY, str(finding)) for finding in findings]
    report.user_properties += properties  # of this phase, and of those that follow
    item.user_properties += properties
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or here)
    return list(github_lines([_within(finding, workspace) for finding in _findings(raised)], limit=_SHOWN))


def _lines(findings: list[Finding], launched: str) -> Iterator[str]:
    quoted: set[tuple[str, int]] = set()
    for finding in findings[:_SHOWN]:
        yield str(finding)
        place = finding.place
        if place is not None and (place.file, place.line) not in quoted:
            quoted.add((place.file, place.line))
            yield from excerpt(place)
    if len(findings) > _SHOWN:
        yield f"… {len(findings) - _SHOWN} more"
    yield f"{launched}more: weft explain {findings[0].code}"


def _launched_at(item: pytest.Item, raised: WeftError) -> str:
    """Return the innermost line in the test's file."""
    lines = []
    at = raised.__traceback__
    while at is not None:
        if Path(at.tb_frame.f_code.co_filename) == item.path:
            lines.append(at.tb_lineno)
        at = at.tb_next
    return f"launched at {item.path.name}:{lines[-1]} · " if lines else ""


def _findings(error: WeftError) -> tuple[Finding, ...]:
    """Return the findings of an error of weft.triton (not loaded without Triton) or of kernel files."""
    found = getattr(error, "findings", ())
    return found if isinstance(found, tuple) else ()


def _within(finding: Finding, folder: Path) -> Finding:
    return replace(finding, place=_relative(finding.place, folder), other=_relative(finding.other, folder))


def _relative(place: Place | None, folder: Path) -> Place | None:
    """Return the place with its path relative to a folder, if it is in it."""
    if place is None:
        return None
    file = Path(place.file)
    spelled = str(file.relative_to(folder)) if file.is_relative_to(folder) else place.file
    return replace(place, file=spelled, inlined_at=_relative(place.inlined_at, folder))
