"""The command line: verbs are loaded only when called, and every result has its exit code."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from weft.cli import main as cli
from weft.core.errors import (
    CompileError,
    LaunchError,
    ParseError,
    ToolMissing,
    Unsupported,
    UsageError,
    WeftError,
)
from weft.core.records import Diagnostic, Place


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A verb `try`, whose function `attempt` each test sets."""
    module = ModuleType("weft.cli.trial")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(cli.VERBS, "try", cli.Verb("weft.cli.trial:attempt", "One line about try."))
    return module


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_every_verb(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([option]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, row in cli.VERBS.items():
        assert [line.split() for line in lines].count([name, *row.help.split()]) == 1, name


def test_a_missing_verb_file_is_listed_and_fails_only_when_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = cli.Verb("weft.cli.gone:gone", "A verb with no file.")
    monkeypatch.setitem(cli.VERBS, "gone", verb)
    monkeypatch.setitem(cli.GROUPS["Judge"], "gone", verb)
    assert cli.main(["--help"]) == 0
    assert "A verb with no file." in capsys.readouterr().out
    assert cli.main(["gone"]) == 2
    assert "No module named 'weft.cli.gone'" in capsys.readouterr().err


def test_a_verb_gets_its_own_options_and_help(verb: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[str, int]] = []

    def attempt(file: str, times: int = 1) -> None:
        """What try does, in full."""
        seen.append((file, times))

    verb.attempt = attempt  # type: ignore[attr-defined]
    assert cli.main(["try", "kernel.cu", "--times", "3"]) == 0
    assert seen == [("kernel.cu", 3)]
    assert cli.main(["try", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "What try does, in full." in shown and "--times" in shown and "Usage: weft try" in shown


@pytest.mark.parametrize("status", [0, 1, 2, 3, 5])
def test_what_a_verb_returns_is_the_exit_code(verb: ModuleType, status: int) -> None:
    verb.attempt = lambda: status  # type: ignore[attr-defined]
    assert cli.main(["try"]) == status


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UsageError("no such shape"), 2, "weft: no such shape"),
        (LaunchError("block of 2048 threads, limit 1024"), 2, "weft: block of 2048 threads, limit 1024"),
        (ToolMissing("install weft[sass]"), 2, "weft: install weft[sass]"),
        (CompileError("2 errors"), 2, "weft: 2 errors"),
        (ParseError("expected ';'", 7), 3, "weft: PTX line 7: expected ';'"),
        (Unsupported("wgmma", 12), 3, "weft: unsupported at PTX line 12: wgmma"),
        (WeftError("first\nsecond"), 2, "weft: first second"),
    ],
)
def test_an_error_is_one_line_and_its_code(
    verb: ModuleType, capsys: pytest.CaptureFixture[str], error: WeftError, status: int, line: str
) -> None:
    def attempt() -> None:
        raise error

    verb.attempt = attempt  # type: ignore[attr-defined]
    assert cli.main(["try"]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == line + "\n"


def test_a_compile_error_shows_its_diagnostics_then_the_summary(
    verb: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def attempt() -> None:
        raise CompileError("1 error", (Diagnostic("error", "x is undefined", Place("kernel.cu", 4)),))

    verb.attempt = attempt  # type: ignore[attr-defined]
    assert cli.main(["try"]) == 2
    assert capsys.readouterr().err.splitlines() == ["kernel.cu:4: error: x is undefined", "weft: 1 error"]


def test_a_bug_never_looks_like_a_finding(verb: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    def attempt() -> None:
        raise ZeroDivisionError("by zero")

    verb.attempt = attempt  # type: ignore[attr-defined]
    assert cli.main(["try"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "weft: internal error: ZeroDivisionError: by zero"


@pytest.mark.parametrize("args", [["shwo"], ["--no-such-option"]])
def test_wrong_usage(args: list[str]) -> None:
    assert cli.main(args) == 2


def test_a_misspelt_verb_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["shwo"])
    assert "Did you mean 'show'?" in capsys.readouterr().err


def test_no_color() -> None:
    """Even where colour is forced, NO_COLOR wins: https://no-color.org."""
    environment = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run(
        [sys.executable, "-m", "weft", "--help"], capture_output=True, text=True, check=True, env=environment
    )
    assert "show" in done.stdout and "\x1b[" not in done.stdout


def test_a_pipe_gets_both_outputs_in_the_order_of_a_terminal(tmp_path: Path) -> None:
    kernel = tmp_path / "k.cu"
    kernel.write_text('extern "C" __global__ void k(int* x) { *x = 1; }')
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-m", "weft", "show", str(kernel), "--as", "resources"],
        check=True,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    columns, row, summary = done.stdout.splitlines()
    assert columns.startswith("entry\t") and row.startswith("k\t") and "k for sm_89" in summary
