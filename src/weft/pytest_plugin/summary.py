"""What stands at the end of pytest's output: findings that are warnings, and GitHub's annotations."""

import os
import re
import warnings
from pathlib import Path

import pytest

FINDINGS = "weft_findings"
"""Attribute of the reports of tests that asked for Weft: annotations of their findings, as strings, so that they travel
from pytest-xdist's workers."""
_WARNING = re.compile(
    r"[^\n]+?: (?P<text>(?P<code>[A-Z]\d{3}) warning: [^\n]*? · (?P<file>[^\n·]+?):(?P<line>\d+) [^\n]*)"
)
"""As weft.triton and kernel files give them to Python's warnings."""


class Summary:
    """Hears warnings, those of pytest-xdist's workers too."""

    def __init__(self) -> None:
        self._heard: list[tuple[str, re.Match[str]]] = []
        self._warned: dict[str, re.Match[str]] = {}

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        found = _WARNING.match(str(warning_message.message))
        if found is not None and issubclass(warning_message.category, RuntimeWarning):
            self._heard.append((nodeid, found))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        told = [report for group in terminalreporter.stats.values() for report in group if hasattr(report, FINDINGS)]
        asked = {report.nodeid for report in told}
        self._warned = {found["text"]: found for test, found in self._heard if config.option.weft or test in asked}
        # Expected failures are no news.
        expected = terminalreporter.stats.get("xfailed", [])
        reports = [report for report in told if report not in expected]
        errors = list(dict.fromkeys(line for report in reports for line in getattr(report, FINDINGS)))
        if not errors and not self._warned:
            return
        from weft.core.finding_text import counted  # a run of pytest without findings loads nothing of Weft

        terminalreporter.section("Weft's findings")
        for text in self._warned:
            terminalreporter.write_line(_seen_from(config.invocation_params.dir, text))
        counts = f"{counted(len(errors), 'error')}, {counted(len(self._warned), 'warning')}"
        terminalreporter.write_line(counts)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for line in [*errors, *self._annotations(config)]:
                terminalreporter.write_line(line)

    def _annotations(self, config: pytest.Config) -> list[str]:
        from weft.core.finding_text import annotation

        root = Path(os.environ.get("GITHUB_WORKSPACE") or config.invocation_params.dir)
        lines = []
        for found in self._warned.values():
            fields = {"file": _seen_from(root, found["file"]), "line": found["line"], "title": found["code"]}
            lines.append(annotation("warning", fields, _seen_from(root, found["text"])))
        return lines


def _seen_from(folder: Path, text: str) -> str:
    """With the paths of files in a folder relative to it."""
    return text.replace(f"{folder}{os.sep}", "")
