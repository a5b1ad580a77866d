"""The gates kill every wrong implementation and no right one; a gate used in earnest elsewhere does not."""

import json
from pathlib import Path

import numpy as np
import pytest

from weft.attention.dtypes import numpy_dtype
from weft.attention.shapes import SHAPES
from weft.cli.main import main
from weft.core.errors import UsageError
from weft.judge.certify import CERTIFIED, RIGHT, certify, certify_loose, loose_survivors, workloads
from weft.judge.mutant import Mutant
from weft.judge.mutants import MUTANTS, mutants_of
from weft.judge.problem import pose
from weft.judge.select import QUICK_REGIMES, QUICK_SHAPES
from weft.judge.verdict import Workload
from weft.kernels.ladder import MASKS

AT_LEAST = {"sdpa": 35, "fp8_sdpa": 30}


@pytest.mark.parametrize(("task", "dtype"), [(task, dtype) for task, dtypes in CERTIFIED.items() for dtype in dtypes])
def test_the_gate_holds(task: str, dtype: str) -> None:
    certificate = certify(task, workloads(dtype))
    assert not certificate.survivors
    assert not certificate.wrongly_killed
    assert len(certificate.right) == len(RIGHT) >= 4
    assert len(certificate.mutants) >= AT_LEAST[task]
    assert len(certificate.mutants) + len(certificate.excluded) == len(mutants_of(task))
    assert certificate.holds


def test_the_page_says_what_the_command_says() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/certification.md").read_text()
    for task in CERTIFIED:
        count = len(certify(task, workloads("f16")).mutants)
        assert f"| `{task}` | f16, bf16, f32 | {count} of {count} each | {len(RIGHT)} of {len(RIGHT)} |" in page
    loose = certify_loose("sdpa")
    killed = len(loose.mutants) - len(loose.survivors)
    assert f"| `sdpa`, loose policy | f16 | {killed} of {len(loose.mutants)} |" in page


def test_the_workloads_cover_what_mutants_need() -> None:
    todo = workloads("f16")
    assert {work.mask for work in todo} == {"none", "top_left", "bottom_right"}
    assert len({work.seed for work in todo}) >= 2
    assert any(work.shape.group > 1 and work.shape.hkv > 1 for work in todo), "a wrong GQA mapping shows only there"
    assert any(work.shape.d != 64 for work in todo)
    assert any(work.shape.sq % 64 == work.shape.skv % 64 == 0 for work in todo)


def test_what_weft_check_runs_by_default_kills_them_too() -> None:
    """The quick selection, with one seed: a kernel that passes `weft check` is none of the mutants."""
    quick = [
        Workload(SHAPES[shape], "f16", mask, regime, seed)
        for shape in QUICK_SHAPES
        for mask in MASKS
        for regime in QUICK_REGIMES
        for seed in (0, 1)
    ]
    assert not certify("sdpa", quick).survivors


def test_the_registry_is_a_table() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert all(mutant.what and all(mutant.excluded.values()) for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_has_the_form_of_a_kernels_result(mutant: Mutant) -> None:
    """It must die of its numbers, not of a wrong shape or type."""
    problem = pose(mutant.tasks[-1], workloads("f16")[0])
    with np.errstate(all="ignore"):
        o, lse = mutant.run(problem)
    assert (o.shape, o.dtype) == (problem.workload.shape.q, numpy_dtype("f16"))
    assert (lse.shape, lse.dtype) == (problem.workload.shape.lse, numpy_dtype("f32"))


def test_an_exclusion_is_true() -> None:
    """Without an LSE, a bias of K cannot be seen: the same O in exact arithmetic."""
    excluded = [mutant for mutant in MUTANTS if mutant.excluded]
    assert [mutant.name for mutant in excluded] == ["half_lsb_k_no_lse"]
    problem = pose("fp8_sdpa", workloads("f32")[0])
    np.testing.assert_allclose(excluded[0].run(problem).o, problem.gold().o, atol=1e-6)


def test_the_loose_gate_lets_mean_v_through() -> None:
    survivors = loose_survivors("sdpa")
    assert {"mean_v", "uniform_p", "no_scale", "k_not_transposed", "no_rescale"} <= set(survivors)
    assert not {"nan", "zeros", "one_nan"} & set(survivors)


def test_workloads_are_of_one_type() -> None:
    with pytest.raises(UsageError, match="one type"):
        certify("sdpa", [*workloads("f16"), *workloads("f32")])


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "sdpa"]) == 0
    head, *rows, summary = capsys.readouterr().out.splitlines()
    assert head.split("\t") == ["mutant", "what is wrong", "killed by", "workload"]
    count = len(rows)
    assert count == len(mutants_of("sdpa"))
    assert summary == f"{count} of {count} mutants killed, 7 of 7 correct implementations passed"


def test_the_command_lists_survivors(capsys: pytest.CaptureFixture[str]) -> None:
    """Half an LSB of bias passed the loose gate of the quantised task."""
    assert main(["certify", "fp8_sdpa", "--policy", "loose"]) == 1
    shown = capsys.readouterr().out.splitlines()
    survivors = next(line for line in shown if line.startswith("survivors: "))
    assert {"mean_v", "half_lsb"} <= set(survivors.removeprefix("survivors: ").split(", "))
    assert shown[-1].endswith("7 of 7 correct implementations passed")


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "fp8_sdpa", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["holds"] and record["dtype"] == "f16"
    assert all(trial["killed_by"] and trial["workload"] for trial in record["mutants"])


@pytest.mark.parametrize("wrong", [["sdpa", "--policy", "lax"], ["gemm"], ["sdpa", "--dtype", "f8"]])
def test_unknown_words_are_refused(wrong: list[str]) -> None:
    assert main(["certify", *wrong]) == 2
