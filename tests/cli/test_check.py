"""`weft check` and `weft list` as a user sees them."""

import json
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.kernels.ladder import RUNGS

FAST = ["--shapes", "split_4,ragged", "--regimes", "unit_normal", "--masks", "none", "--seeds", "1"]


def test_two_kernels_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "scalar", "fa1", *FAST]) == 0
    head, *rows, summary = capsys.readouterr().out.splitlines()
    assert head.split("\t") == ["shape", "scalar", "fa1"]
    assert [row.split("\t") for row in rows] == [["split_4", "1 of 1", "1 of 1"], ["ragged", "1 of 1", "1 of 1"]]
    assert summary.startswith("4 of 4 workloads passed in ")


def test_a_file_of_ones_own_that_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = RUNGS["scalar"].path.read_text()
    assert "warp_sum(products) * scale" in text
    file = tmp_path / "mine.cu"
    file.write_text(text.replace("warp_sum(products) * scale", "warp_sum(products) * scale * scale"))
    assert main(["check", str(file), *FAST]) == 1
    shown = capsys.readouterr().out
    assert "INCORRECT_NUMERICAL" in shown and "should be" in shown and "sign flips" in shown
    assert shown.splitlines()[-1].startswith("0 of 2 workloads passed")


def test_a_kernel_without_lse_is_judged_without_it_and_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = RUNGS["scalar"].path.read_text()
    for old, new in (
        ("// weft: out     lse  : f32[B, HQ, SQ]\n", ""),
        ("(q, k, v, o, lse, HKV", "(q, k, v, o, HKV"),
        ("if (lane == 0) lse[q_row] = m + logf(l);", ""),
        ("float* __restrict__ lse, ", ""),
    ):
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "no_lse.cu"
    file.write_text(text)
    assert main(["check", str(file), *FAST]) == 0
    assert "LSE not judged" in capsys.readouterr().out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "wmma", *FAST, "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)["wmma"]
    assert {verdict["status"] for verdict in verdicts} == {"PASSED"}
    assert all(verdict["gates"]["tight"]["error"] <= verdict["gates"]["tight"]["limit"] for verdict in verdicts)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing.cu"], 2, "neither a file nor a rung"),
        (["scalar", "--shapes", "huge"], 2, "unknown shape 'huge'"),
        (["wmma", "--dtypes", "f32"], 5, "nothing selected: wmma"),
        (["scalar", "wmma", "--dtypes", "f32", *FAST], 5, "nothing selected: wmma"),
        (["qk_dot"], 2, "does not judge yet"),
    ],
)
def test_errors_say_what_to_do(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *arguments]) == code
    assert message in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*RUNGS, "mission", "sorted_keys", "fp8_sdpa"))
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shapes"]["mission"] == [1, 8, 8, 512, 512, 64]
