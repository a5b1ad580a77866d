"""A command under the journal behaves as without it."""

import sys

import pytest

from weft.core.errors import UsageError
from weft.journal.records import ShapeResult
from weft.journal.watch_command import kind_of, watch


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_output_and_exit_code_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([10.0, 12.5])
    watched = watch(python("print('é one'); print('two'); raise SystemExit(3)"), clock=lambda: next(seconds))
    assert capsys.readouterr().out == "é one\ntwo\n"
    run = watched.run
    assert (run.exit_code, run.seconds, run.summary, run.tail) == (3, 2.5, "two", "é one\ntwo")


def test_shapes_are_read() -> None:
    watched = watch(python(r"print('shape\tk.cu\nsmall\t1 of 1\ndone')"))
    assert watched.shapes == (ShapeResult("small", "1 of 1"),)


def test_a_killed_command_has_the_code_a_shell_gives() -> None:
    assert watch(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")).run.exit_code == 137


def test_a_character_in_two_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    """The first byte of é comes some time before the second."""
    program = "import os, time; os.write(1, b'\\xc3'); time.sleep(0.2); os.write(1, b'\\xa9\\n')"
    assert watch(python(program)).run.summary == "é"
    assert capsys.readouterr().out == "é\n"


def test_a_command_that_is_none() -> None:
    with pytest.raises(UsageError, match="no_such_program cannot be run"):
        watch(["no_such_program"])


def test_weft_is_this_weft(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert watch(["weft", "--version"]).run.exit_code == 0
    assert capsys.readouterr().out.startswith("weft ")


def test_kinds() -> None:
    words = (["weft", "check", "k.cu"], ["/usr/bin/weft", "profile", "k.cu"], ["weft", "--version"], ["ncu", "weft"])
    assert [kind_of(each) for each in words] == ["check", "profile", "command", "command"]
