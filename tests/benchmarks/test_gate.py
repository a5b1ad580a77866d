"""The benchmark of the gate on two cheap kernels, and its totals on rows made by hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import gate
from benchmarks.gate_corpus import Wrong, right_kernels
from weft.judge.select import find_candidate

MOST_LINES = 110
WRONG_MASK = """
// weft: sizes   B=1 HQ=1 HKV=1 SQ=4 SKV=4 D=4
// weft: define  WRONG = 0
// weft: in      q    : f32[B, HQ, SQ, D] = normal
// weft: in      k, v : f32[B, HKV, SKV, D] = normal
// weft: out     o    : f32[B, HQ, SQ, D]
// weft: launch  zeros(o, B * HQ * SQ * D, HKV, SKV) grid(cdiv(B * HQ * SQ * D, 32)) block(32)
extern "C" __global__ void zeros(float* o, int n, int, int) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) o[i] = WRONG;
}
"""

RIGHT = gate.Row("right/a", True, "PASSED", "", 2, 2, 3.0)
WRONG = gate.Row("wrong/b.c", False, "INCORRECT_NUMERICAL", "tight", 1, 6, 1.0)


def test_two_right_kernels_pass_in_separate_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate.main(["--quick", "--only", "right/only_d64", "right/no_lse"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table] == ["right/no_lse", "right/only_d64"]
    told = json.loads(last)
    assert (told["right"], told["false_rejects"], told["wrong"], told["false_passes"]) == (2, [], 0, [])
    assert told["right_seconds_median"] > 0 and told["first_red_seconds_median"] is None


def test_a_wrong_kernel_is_judged_until_its_first_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "wrong" / "ones.cu"
    path.parent.mkdir()
    path.write_text(WRONG_MASK)
    monkeypatch.setattr(gate, "wrong_kernels", lambda: [Wrong(path, 1, "all_ones", "O is 1", "", None)])
    (job, *_) = gate.jobs("before")
    row = gate.judge_one(job)
    assert (row.name, row.status, row.workloads) == ("wrong/ones.all_ones", "INCORRECT_NUMERICAL", 1)
    assert row.planned == 6 * 1 * 1 * 5 * 3  # shapes, types, masks of a file without macros, regimes, seeds
    assert row.expected and row.seconds > 0


def test_the_former_selection_has_one_type_and_every_mask() -> None:
    (scalar,) = (path for path in right_kernels() if path.name == "no_lse.cu")
    _, supports = find_candidate(str(scalar), task=None)
    todo = gate.plan(supports, gate.choice_of("before", supports))
    assert len(todo) == 6 * 3 * 5 * 3 and {workload.dtype for workload in todo} == {"f16"}


def test_what_counts_as_a_false_verdict() -> None:
    passed = replace(WRONG, name="wrong/b.d", status="PASSED", workloads=6)
    late = replace(WRONG, name="wrong/b.e", status="TIMEOUT", workloads=0)  # the judge's own limit, not the kernel's
    refused = replace(WRONG, name="wrong/b.f", status="COMPILE_ERROR")  # rejected, but not for its bug
    unsafe = replace(RIGHT, name="right/g", status="UNSAFE", message="R101")
    unsupported = replace(RIGHT, name="right/h", status="UNSUPPORTED", message="no row")
    told = gate.report([RIGHT, WRONG, passed, late, refused, unsafe, unsupported])
    assert (told["wrong"], told["right"]) == (4, 3)
    assert told["false_passes"] == ["wrong/b.d", "wrong/b.e", "wrong/b.f"]
    assert told["false_rejects"] == [
        {"name": "right/g", "status": "UNSAFE", "message": "R101"},
        {"name": "right/h", "status": "UNSUPPORTED", "message": "no row"},
    ]
    assert (told["first_red_seconds_median"], told["right_seconds_median"]) == (1.0, 3.0)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SystemExit):
        gate.main(["--only", "right/no_such_kernel"])


def test_the_corpus_has_thirty_short_right_kernels_that_describe_their_design() -> None:
    own = [path for path in right_kernels() if path.parent.name == "right"]
    assert len(own) >= 30
    for path in own:
        lines = path.read_text().splitlines()
        assert len(lines) <= MOST_LINES, path.name
        assert lines[0].startswith(("// ", "# ")) and "weft:" not in lines[0], path.name
