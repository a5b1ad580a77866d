"""`weft evolve` whose start does not pass: it says why, and writes nothing."""

from pathlib import Path

import pytest

from weft.cli.main import main
from weft.kernels import RUNGS


def test_a_search_without_a_winner_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = RUNGS["scalar"].path.read_text()
    start, winner = tmp_path / "wrong.cu", tmp_path / "winner.cu"
    for old, new in (
        ("warp_sum(products) * scale", "warp_sum(products)"),
        ("define  WARPS = 4", "lever   WARPS = 4 in 2, 4 : warps of a CTA"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    start.write_text(text)
    store = str(tmp_path / "weft.db")
    assert main(["evolve", "--start", str(start), "--budget", "1", "-o", str(winner), "--store", store]) == 1
    said = capsys.readouterr().out
    assert "ended: the start does not pass: INCORRECT_NUMERICAL" in said
    assert f"{winner} was not written: no candidate passes" in said
    assert not winner.exists()
