"""The README's table of the laboratory's ways: each command runs and is green."""

import re
import shlex
from pathlib import Path

import pytest

from weft.cli.main import main

README = Path(__file__).parents[2] / "README.md"
SECTION = README.read_text().split("## In the logs → here")[1].split("\n## ")[0]
COMMANDS = re.findall(r"\| `(weft check [^`]+)` \|", SECTION)


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 2


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(command)[1:]) == 0
    passed, total = re.findall(r"(\d+) of (\d+) workloads passed", capsys.readouterr().out)[-1]
    assert int(passed) == int(total) > 0
