"""On unmodified files, `weft check` passes right kernels and `weft diagnose` names mistakes."""

import re
from pathlib import Path

import pytest

from weft.cli.main import main

from .styles import LATER, STYLES, Mistake, Style

KERNELS = Path(__file__).parent / "kernels"
READ = [style for style in STYLES if style.file not in LATER]
OFTEN = ("torch_online_f32.cu", "main_check.cu", "one_head.cu", "c_launcher.cu", "bare_lines.cu", "triton_row.py",
         "three_kernels.cu", "half2_loads.cu", "split_keys.cu")  # fmt: skip
"""Right files that are checked in every test run; `scripts/test -m sweep` checks the rest."""
QUICK = ("torch_online_f32.cu", "main_check.cu", "three_kernels.cu", "triton_row.py")
"""Files whose first mistake is diagnosed in every test run; `scripts/test -m sweep` covers the rest."""


def _wrong() -> list[object]:
    rows = []
    for style in READ:
        for number, mistake in enumerate(style.mistakes):
            often = style.file in QUICK and number == 0
            rows.append(
                pytest.param(style, mistake, id=f"{style.file}-{number}", marks=() if often else pytest.mark.sweep)
            )
    return rows


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _narrow(shape: str, *, verb: str, style: Style) -> list[str]:
    if verb == "check":
        return ["--shapes", shape, "--regimes", "unit_normal", "--seeds", "1", "--hidden", "0", *style.options]
    return ["--shape", shape, "--regime", "unit_normal", *(each.replace("--masks", "--mask") for each in style.options)]


@pytest.mark.parametrize(
    "style",
    [pytest.param(each, id=each.file, marks=() if each.file in OFTEN else pytest.mark.sweep) for each in READ],
)
def test_a_right_file_passes_as_it_is(style: Style, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / style.file).write_text((KERNELS / style.file).read_text())
    code = main(["check", style.file, *_narrow("small", verb="check", style=style)])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    assert re.search(r"^small\t(\d+) of \1\b", said.out, re.MULTILINE)
    lines = "weft: launch" in (KERNELS / style.file).read_text()
    assert ("to write them to a file: weft import" in said.err) is not lines


@pytest.mark.parametrize(("style", "mistake"), _wrong())
def test_a_mistake_is_diagnosed(
    style: Style, mistake: Mistake, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = (KERNELS / style.file).read_text()
    assert right.count(mistake.right) == 1
    wrong = right.replace(mistake.right, mistake.wrong)
    (folder / style.file).write_text(wrong)
    assert main(["check", style.file, *_narrow(mistake.shape, verb="check", style=style)]) == 1
    capsys.readouterr()
    assert main(["diagnose", style.file, *_narrow(mistake.shape, verb="diagnose", style=style)]) == 1
    said = capsys.readouterr().out
    assert re.search(mistake.named, said), said
    place = re.match(rf"{re.escape(style.file)}:(\d+): ", said)
    text, part = (wrong, mistake.at) if mistake.at else (right, mistake.right)
    if place is not None:
        assert abs(int(place[1]) - (text[: text.index(part)].count("\n") + 1)) <= 3, said


@pytest.mark.parametrize("file", LATER)
def test_a_partly_read_file_is_not_judged(file: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / file).write_text((KERNELS / file).read_text())
    assert main(["check", file]) in (2, 3)
    said = capsys.readouterr()
    assert said.out == ""
    assert re.search(rf"{re.escape(file)}:\d+: ", said.err)


def test_inputs_that_match_no_task_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(KERNELS / "varlen.cu")]) == 2
    assert "takes q, k, v, cu_seqlens; task sdpa gives q, k, v" in capsys.readouterr().err


def test_written_launch_lines_give_the_same_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "k.cu").write_text((KERNELS / "c_launcher.cu").read_text())
    assert main(["import", "k.cu", "-o", "k_weft.cu"]) == 0
    narrow = ["--shapes", "gqa_4", "--regimes", "unit_normal", "--seeds", "1", "--hidden", "0"]
    assert main(["check", "k.cu", "k_weft.cu", *narrow]) == 0
    assert re.search(r"^gqa_4\t1 of 1\S*\t1 of 1\b", capsys.readouterr().out, re.MULTILINE)
