"""The commands of "Your own attention kernel in five minutes", on the files they name."""

import re
from pathlib import Path

import pytest

from weft.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "own_kernel.md"
KERNELS = Path(__file__).parent / "kernels"
WRONG = ("o_row[x] = alpha * o_row[x] + p", "o_row[x] = o_row[x] + p")


def test_the_page_shows_what_its_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("torch_online_f32.cu", "main_check.cu", "c_launcher.cu"):
        (tmp_path / name).write_text((KERNELS / name).read_text().replace(*WRONG))
    commands = 0
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for shown in re.findall(r"^\$ weft (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            command, expected = shown
            narrow = ["--regimes", "unit_normal", "--seeds", "1"] if command.startswith("check") else []
            narrow = ["--shape", "small"] if command.startswith("diagnose") else narrow
            code = main([*command.split(), *narrow])
            said = capsys.readouterr()
            assert code == (1 if command.startswith("diagnose") else 0), said.err
            for line in expected.splitlines():
                for part in filter(None, line.split("…")):
                    assert part.strip() in said.out + said.err, command
            commands += 1
    assert commands == 4
