"""`weft demo`: the check fails, the line is named, the fixed kernel passes; the same as a picture."""

import re
from pathlib import Path

import pytest

from weft.cli.demo import RIGHT, WRONG
from weft.cli.main import main
from weft.kernels.ladder import RUNGS


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "demo.svg"
    assert main(["demo", "--keep", str(tmp_path), "--svg", str(picture)]) == 0
    printed = capsys.readouterr().out
    red, rest = printed.split("$ weft diagnose attention.cu")
    diagnosis, green = rest.split(f"+ {RIGHT}")

    right = RUNGS["wmma"].path.read_text()
    faulty = next(number for number, line in enumerate(right.splitlines(), 1) if RIGHT in line)
    assert "INCORRECT_NUMERICAL" in red and "0 of 2 workloads passed" in red
    assert diagnosis.strip().splitlines()[0].startswith(f"attention.cu:{faulty}: ")
    assert "U is not rescaled in columns 1-" in diagnosis and f"- {WRONG}" in diagnosis
    assert "2 of 2 workloads passed" in green and "ERROR SUMMARY: 0 errors, 0 warnings" in green
    assert (tmp_path / "attention.cu").read_text() == right

    # Spaces are no-break spaces, and a line that is too long continues in the next element.
    shown = "".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text())).replace("&#160;", " ")
    for words in ("INCORRECT_NUMERICAL", f"attention.cu:{faulty}: ", "U is not rescaled", "2 of 2 workloads passed"):
        assert words in shown, words
