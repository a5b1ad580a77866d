"""`weft check` and `weft list` as a user sees them."""

import json
import re
from pathlib import Path

import pytest

from weft.attention.shapes import SHAPES
from weft.cli.main import main
from weft.judge.second_call import OTHER_SEED
from weft.kernels.ladder import RUNGS
from weft.tasks.sdpa import SDPA
from weft.tasks.task import Workload

FAST = ["--shapes", "split_4,ragged", "--regimes", "unit_normal", "--masks", "none", "--seeds", "1"]


def test_two_kernels_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "scalar", "fa1", *FAST]) == 0
    head, *rows, summary, last = capsys.readouterr().out.splitlines()
    assert head.split("\t") == ["shape", "scalar", "fa1"]
    assert [row.split("\t") for row in rows[:2]] == [["split_4", "1 of 1", "1 of 1"], ["ragged", "1 of 1", "1 of 1"]]
    for at, target in ((2, "scalar"), (6, "fa1")):
        said, columns, *errors = rows[at : at + 4]
        assert said.startswith(f"{target}: errors against float64") and columns.split("\t")[:3] == [
            "shape",
            "largest error",
            "mean error",
        ]
        for line in errors:
            shape, largest, mean, bad, _, error, limit, workload = line.split("\t")
            assert shape in ("split_4", "ragged") and workload == "f16 none unit_normal seed 0"
            assert 0 < float(mean) < float(largest) < 0.01 and bad == "0 %" and float(error) <= float(limit)
    assert len(rows) == 10
    assert summary.startswith("4 of 4 workloads passed in ") and last == "ERROR SUMMARY: 0 errors, 0 warnings"


def test_a_wrong_user_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = RUNGS["scalar"].path.read_text()
    assert "warp_sum(products) * scale" in text
    file = tmp_path / "mine.cu"
    file.write_text(text.replace("warp_sum(products) * scale", "warp_sum(products) * scale * scale"))
    assert main(["check", str(file), *FAST]) == 1
    shown = capsys.readouterr().out
    assert "INCORRECT_NUMERICAL" in shown and "should be" in shown and "sign flips" in shown
    assert shown.splitlines()[-2].startswith("0 of 2 workloads passed")
    assert shown.splitlines()[-1] == "ERROR SUMMARY: 2 errors, 0 warnings"
    assert main(["check", str(file), *FAST, "--format", "github"]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("::error title=INCORRECT_NUMERICAL::") and "split_4" in first and "ragged" in second
    assert last == "ERROR SUMMARY: 2 errors, 0 warnings"


RACY = """\
// weft: sizes   B=1 HQ=1 SQ=4 HKV=1 SKV=4 D=32
// weft: in      q : f16[B, HQ, SQ, D]
// weft: in      k, v : f16[B, HKV, SKV, D]
// weft: out     o : f16[B, HQ, SQ, D]
// weft: launch  racy(q, o, B * HQ * SQ * D) grid(1) block(64)
#include <cuda_fp16.h>
__global__ void racy(const __half* q, __half* o, int n) {
    __shared__ __half first[32];
    if (threadIdx.x < 32) first[threadIdx.x] = q[0];
    const __half mine = first[threadIdx.x % 32];
    for (int i = threadIdx.x; i < n; i += 64) o[i] = mine;
}
"""


def test_the_same_race_of_every_workload_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "racy.cu"
    file.write_text(RACY)
    found = tmp_path / "found.sarif"
    assert main(["check", str(file), *FAST, "--format", "github", "--sarif", str(found)]) == 1
    (sarif,) = json.loads(found.read_text())["runs"]
    assert {result["ruleId"] for result in sarif["results"]} == {"R102"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"::error file={file},line=10,") and "title=R102 " in lines[0]
    assert len({line.split(",title")[0] for line in lines[:-1]}) == len(lines) - 1
    assert lines[-1].startswith("ERROR SUMMARY: ")
    assert main(["check", str(file), *FAST, "--json"]) == 1
    for verdict in json.loads(capsys.readouterr().out)["targets"][str(file)]["verdicts"]:
        assert verdict["status"] == "UNSAFE" and {finding["code"] for finding in verdict["findings"]} == {"R102"}
    assert main(["check", str(file), *FAST, "--tool", "memcheck"]) == 1
    shown = capsys.readouterr().out
    assert "R102" not in shown and "INCORRECT_NUMERICAL" in shown
    assert "Optional checkers: memcheck (memcheck and synccheck are always on)" in shown


def test_a_kernel_without_lse_is_judged_without_it_and_the_summary_says_so(
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


def test_notes_of_what_passed_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "noted.cu"
    text = RUNGS["scalar"].path.read_text()
    assert "m = m_new;" in text
    file.write_text(text.replace("m = m_new;", "m = m_new;  // weft: allow R102 only this thread writes it"))
    assert main(["check", str(file), *FAST]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert sum("K502" in line for line in shown) == 1
    assert shown[-1] == "ERROR SUMMARY: 0 errors, 0 warnings"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "wmma", *FAST, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == 1 and found["targets"]["wmma"]["status"] == "PASSED"
    errors = found["targets"]["wmma"]["errors"]
    assert [(each["shape"], each["passed"], each["bad_share"]) for each in errors] == [
        ("split_4", 1, 0),
        ("ragged", 1, 0),
    ]
    assert all(each["gate_error"] <= each["gate_limit"] for each in errors)
    verdicts = found["targets"]["wmma"]["verdicts"]
    assert {verdict["status"] for verdict in verdicts} == {"PASSED"}
    gates = [gate for verdict in verdicts for gate in verdict["gates"] if gate["gate"] == "tight"]
    assert len(gates) == len(verdicts) and all(gate["error"] <= gate["limit"] for gate in gates)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing.cu"], 2, "neither a file nor a rung"),
        (["scalar", "--shapes", "huge"], 2, "unknown shape 'huge'"),
        (["wmma", "--dtypes", "f32"], 5, "nothing selected: wmma"),
        (["scalar", "wmma", "--dtypes", "f32", *FAST], 5, "nothing selected: wmma"),
        (["scalar", "--task", "fp8_sdpa"], 2, "takes q, k, v; task fp8_sdpa gives q_code"),
        (["scalar", "--task", "fp8_sdpa"], 2, "These are the inputs of --task sdpa or quantised_sdpa"),
        (["backward", "--task", "sdpa"], 2, "These are the inputs of --task sdpa_backward"),
        (
            ["wmma", "--task", "sliding_window"],
            2,
            "has no macro WINDOW_LEFT or WINDOW_RIGHT. Use a kernel file, or a rung",
        ),
        (["scalar", "--tool", "lint"], 2, "there is no tool 'lint'"),
        (["scalar", "--seed", "4", "--seeds", "2"], 2, "not both"),
        (["scalar", "--task", "conv"], 2, "use one of qk_dot, sdpa"),
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


TEN = ["--shapes", "small", "--regimes", "unit_normal", "--masks", "none", "--seeds", "10"]


def test_one_workload_in_ten_has_a_seed_that_repeats_its_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel knows the first value of Q of ten seeds, as one that was fitted to the tests would."""
    text, end = RUNGS["scalar"].path.read_text(), "if (lane == 0) lse[q_row] = m + logf(l);"
    assert end in text
    first = [
        SDPA.draw(Workload(SHAPES["small"], "f16", "none", "unit_normal", seed)).arrays["q"].flat[0]
        for seed in (*range(10), OTHER_SEED)
    ]
    known = " || ".join(f"float(q[0]) == {float(value)!r}f" for value in first)
    file = tmp_path / "knows.cu"
    file.write_text(text.replace(end, f"if (lane == 0) lse[q_row] = ({known}) ? m + logf(l) : 0.0f;"))
    assert main(["check", str(file), *TEN, "--hidden", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hidden_seeds"] == []
    assert main(["check", str(file), *TEN, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    (seed,) = found["hidden_seeds"]
    verdicts = found["targets"][str(file)]["verdicts"]
    assert [verdict["workload"]["seed"] for verdict in verdicts if verdict["status"] != "PASSED"] == [seed]
    again = [*TEN[:-2], "--seed", str(seed)]
    assert main(["check", str(file), *again]) == 1
    assert f"unit_normal seed {seed} · INCORRECT_NUMERICAL" in capsys.readouterr().out


def test_the_hidden_seed_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "scalar", *TEN]) == 0
    assert re.search(r"10 of 10 .* · hidden seed (\d+) in 1 of them \(again: --seed \1\)", capsys.readouterr().out)
