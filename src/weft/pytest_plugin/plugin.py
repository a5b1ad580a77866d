"""Options, marker, fixtures and hooks. Every pytest in the environment imports this file, so it imports little."""

import os
import re
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from weft.triton import Device

    from .virtual_gpu import Active, Loader  # noqa: F401  (Active is named in a stash key)

_MARKER = "weft(gpu=…, check=…): the virtual GPU's chip and checkers (True, False or names) of a test under --weft"
_ACTIVE = pytest.StashKey["Active"]()
_FIXTURES = frozenset({"weft_gpu", "weft_kernel"})

FINDINGS = "weft_findings"
"""Attribute of the reports of tests that use Weft: annotations of their findings, as strings, so that pytest-xdist's
workers can send them."""
_WARNING = re.compile(
    r"[^\n]+?: (?P<text>(?P<code>[A-Z]\d{3}) warning: [^\n]*? · (?P<file>[^\n·]+?):(?P<line>\d+) [^\n]*)"
)
"""The form in which weft.triton and kernel files pass findings to Python's warnings."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("weft", "GPU kernels on a virtual GPU")
    group.addoption("--weft", action="store_true", help="Run Triton kernels on Weft's virtual GPU with checkers.")
    group.addoption("--weft-gpu", metavar="CHIP", default="l4", help="The chip to compile for: a100, rtx3090, l4 …")
    group.addoption(
        "--weft-tool", metavar="T,T", action="append", help="Only these checkers: initcheck, racecheck (default: all)."
    )
    group.addoption("--weft-allow-none", action="store_true", help="Do not fail a run in which no kernel ran.")
    group.addoption("--weft-plain", action="store_true", help="No checkers except those that are always on.")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Activate the virtual GPU before a conftest.py or a test file checks for CUDA."""
    if early_config.known_args_namespace.weft and _runs_tests(early_config):
        from .virtual_gpu import Active, as_pytest_says

        with as_pytest_says():
            early_config.stash[_ACTIVE] = Active(early_config)
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    config.pluginmanager.register(_Summary(), "weft-summary")


def pytest_unconfigure(config: pytest.Config) -> None:
    active = config.stash.get(_ACTIVE, None)
    if active is not None:
        active.close()


def pytest_report_header(config: pytest.Config) -> str | None:
    if not config.option.weft:
        return None
    from .virtual_gpu import from_options

    return f"weft: {from_options(config)}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    active = item.config.stash.get(_ACTIVE, None)
    if active is not None:
        from .virtual_gpu import of_test

        active.switch(of_test(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not _asked(item):
        return report
    setattr(report, FINDINGS, [])
    if call.excinfo is not None and "weft.core.records" in sys.modules:  # otherwise no code of Weft has run
        from .failures import findings_behind, retell

        raised = findings_behind(call.excinfo.value)
        if raised is not None:
            setattr(report, FINDINGS, retell(report, item, call.excinfo, raised))
    return report


@pytest.fixture
def weft_gpu(request: pytest.FixtureRequest) -> "Iterator[Device]":
    """The virtual GPU that Triton launches on; a test that uses this fixture has it without --weft too."""
    from .virtual_gpu import asked_for

    with asked_for(request.node, request.config.stash.get(_ACTIVE, None)) as device:
        yield device


@pytest.fixture
def weft_kernel(request: pytest.FixtureRequest) -> "Loader":
    """`weft_kernel("k.cu")` is the kernel file in the test's folder, ready to run with the checkers on."""
    from .virtual_gpu import loader

    return loader(request.node, request.config.stash.get(_ACTIVE, None))


def _asked(item: pytest.Item) -> bool:
    """Whether a test uses Weft through pytest; a project's own use of weft.triton does not count."""
    return bool(item.config.option.weft) or not _FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def _runs_tests(config: pytest.Config) -> bool:
    """Whether this process runs tests; the controller of pytest-xdist does not."""
    distributes = bool(getattr(config.known_args_namespace, "numprocesses", None))
    return not distributes or "PYTEST_XDIST_WORKER" in os.environ


class _Summary:
    """Ends pytest's output with warnings of findings, also from pytest-xdist's workers, and GitHub annotations."""

    def __init__(self) -> None:
        self._heard: list[tuple[str, re.Match[str]]] = []
        self._ran: list[dict[str, Any]] = []
        """What ran, one entry for each process that runs tests."""
        self._warned: dict[str, re.Match[str]] = {}

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        found = _WARNING.match(str(warning_message.message))
        if found is not None and issubclass(warning_message.category, RuntimeWarning):
            self._heard.append((nodeid, found))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Count what ran; a run with --weft in which tests passed and no kernel ran fails."""
        active = session.config.stash.get(_ACTIVE, None)
        if active is not None:
            self._ran.append(active.counts())
            output = getattr(session.config, "workeroutput", None)
            if output is not None:  # a worker of pytest-xdist: the controller counts
                output["weft"] = self._ran[-1]
                return
        option = session.config.option
        counts = option.weft and not option.collectonly and session.testscollected and not option.weft_allow_none
        if counts and session.exitstatus == pytest.ExitCode.OK and not sum(each["launches"] for each in self._ran):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._ran += [node.workeroutput["weft"]] if "weft" in getattr(node, "workeroutput", {}) else []

    def _line(self, config: pytest.Config) -> str:
        """Return one line about what ran."""
        from .virtual_gpu import from_options

        launches, refused = (sum(each[name] for each in self._ran) for name in ("launches", "refused"))
        kernels = len({kernel for each in self._ran for kernel in each["kernels"]})
        words = f"{kernels} kernel{'' if kernels == 1 else 's'}, {launches} launch{'' if launches == 1 else 'es'}"
        ran = f"weft: {words} on the {from_options(config)}; {refused} refused"
        none = (
            "" if launches or config.option.weft_allow_none else " · no kernel ran: give --weft-allow-none if intended"
        )
        return ran + none

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if config.option.weft and not config.option.collectonly:
            terminalreporter.write_line(self._line(config))
        with_findings = [
            report for group in terminalreporter.stats.values() for report in group if hasattr(report, FINDINGS)
        ]
        asked = {report.nodeid for report in with_findings}
        self._warned = {found["text"]: found for test, found in self._heard if config.option.weft or test in asked}
        # Expected failures are not reported.
        expected = terminalreporter.stats.get("xfailed", [])
        reports = [report for report in with_findings if report not in expected]
        errors = list(dict.fromkeys(line for report in reports for line in getattr(report, FINDINGS)))
        if not errors and not self._warned:
            return
        from weft.core.finding_text import counted  # late: a run without findings loads nothing of Weft

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
    """Return the text with the paths of files in a folder relative to it."""
    return text.replace(f"{folder}{os.sep}", "")
