"""The gates reject every wrong implementation and no right one; the loose gate does not."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weft.attention.dtypes import numpy_dtype, ulp
from weft.cli.main import main
from weft.core.errors import UsageError
from weft.judge.certify import Certificate, certify
from weft.judge.loose import certify_loose
from weft.judge.select import Choice, Supports, plan
from weft.tasks.registry import TASKS
from weft.tasks.task import Mutant, Task

AT_LEAST = {name: 30 for name in TASKS} | {"qk_dot": 8, "sdpa": 35, "quantised_sdpa": 40, "sdpa_decode": 8}
OFTEN = {name: "f16" if "f16" in task.workloads.dtypes else task.workloads.dtypes[0] for name, task in TASKS.items()}
"""The default type in which a task is certified."""
SLOW = ("fp8_sdpa", "quantised_sdpa", "sliding_window", "softcap_sinks", "sdpa_varlen")
CERTIFIED = [
    pytest.param(task, dtype, marks=[pytest.mark.sweep] * (dtype != OFTEN[task.name] or task.name in SLOW))
    for task in TASKS.values()
    for dtype in task.workloads.dtypes
]
"""Every test run certifies the quick tasks in this type; the others take minutes."""
SDPA, FP8 = TASKS["sdpa"], TASKS["fp8_sdpa"]


@functools.cache
def certified(task: str, dtype: str) -> Certificate:
    return certify(TASKS[task], dtype)


@pytest.mark.parametrize(("task", "dtype"), CERTIFIED, ids=lambda each: getattr(each, "name", each))
def test_the_gate_holds(task: Task, dtype: str) -> None:
    certificate = certified(task.name, dtype)
    assert not certificate.survivors
    assert not certificate.wrongly_killed
    assert len(certificate.right) == len(task.right) >= 3
    assert len(certificate.mutants) >= AT_LEAST[task.name]
    assert len(certificate.mutants) + len(certificate.excluded) == len(task.mutants)
    assert certificate.holds


@pytest.mark.sweep  # certifies every task
def test_the_page_matches_the_command() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/certification.md").read_text()
    for name, task in TASKS.items():
        count, right = len(certified(name, OFTEN[name]).mutants), len(task.right)
        types = ", ".join(dtype for dtype in ("f16", "bf16", "f32") if dtype in task.workloads.dtypes)
        assert f"| `{name}` | {types} | {count} of {count} | {right} of {right} |" in page
    for task in (SDPA, FP8):
        loose = certify_loose(task)
        killed = len(loose.mutants) - len(loose.survivors)
        assert f"| `{task.name}`, loose policy | f16 | {killed} of {len(loose.mutants)} |" in page
    for trial in certify_loose(SDPA).survivors:
        assert f"`{trial.name}`" in page, "the survivors are listed"


def test_the_workloads_cover_what_mutants_need() -> None:
    todo = SDPA.certified_on
    assert {work.mask for work in todo} == {"none", "top_left", "bottom_right"}
    assert len({work.seed for work in todo}) >= 2
    assert any(work.shape.group > 1 and work.shape.hkv > 1 for work in todo), "a wrong GQA mapping shows only there"
    assert any(work.shape.d != 64 for work in todo)
    assert any(work.shape.sq % 64 == work.shape.skv % 64 == 0 for work in todo)


def test_the_default_workloads_of_weft_check_reject_all_mutants() -> None:
    """A kernel that passes `weft check` is not a mutant, whatever its first type is."""
    supports = Supports(SDPA, ("f16",), SDPA.workloads.masks)
    assert not certify(replace(SDPA, right={}), "f16", plan(supports, Choice())).survivors


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_mutants_are_a_table(task: Task) -> None:
    names = [mutant.name for mutant in task.mutants]
    assert len(set(names)) == len(names)
    assert all(mutant.what and all(mutant.excluded.values()) for mutant in task.mutants)


EVERY_MUTANT = [(task, mutant) for task in TASKS.values() for mutant in task.mutants]


@pytest.mark.parametrize(("task", "mutant"), EVERY_MUTANT, ids=lambda each: each.name)
def test_a_mutant_has_the_form_of_a_kernels_result(task: Task, mutant: Mutant) -> None:
    """It must be rejected for its numbers, not for a wrong shape or type."""
    workload = task.certified_on[0]
    with np.errstate(all="ignore"):
        outputs = mutant.run(task.draw(workload))
    assert set(outputs) == {output.name for output in task.outputs}
    for output in task.outputs:
        array = outputs[output.name]
        assert (array.shape, array.dtype) == (output.shape(workload.shape), output.numpy_dtype(workload))
    assert task.outputs[0].numpy_dtype(workload) == numpy_dtype(workload.dtype)


def test_the_exclusions() -> None:
    excluded = {(task.name, mutant.name, dtype) for task, mutant in EVERY_MUTANT for dtype in mutant.excluded}
    of_one_task = {("softcap_sinks", "p_in_bf16", "f16"), ("sliding_window", "l_in_f16", "bf16")}
    assert of_one_task <= excluded
    no_lse = {("half_lsb_k_no_lse", dtype) for dtype in ("f16", "bf16", "f32")}
    in_f32 = {(name, "f32") for name in ("truncated_output", "floored_output", "dv_truncated")}
    of_all = {(name, dtype) for _, name, dtype in excluded - of_one_task}
    assert of_all == in_f32 | {("p_in_bf16", "bf16")} | no_lse


def mutant_of(task: Task, name: str) -> Mutant:
    return next(mutant for mutant in task.mutants if mutant.name == name)


def test_without_an_lse_a_bias_of_k_cannot_be_seen() -> None:
    """The same O in exact arithmetic."""
    problem = FP8.draw(replace(FP8.certified_on[0], dtype="f32"))
    biased = mutant_of(FP8, "half_lsb_k_no_lse").run(problem)
    np.testing.assert_allclose(biased["o"], FP8.reference(problem)["o"], atol=1e-6)


@pytest.mark.parametrize("name", ["truncated_output", "floored_output"])
def test_a_truncated_float32_is_nearer_than_sums_in_another_order(name: str) -> None:
    problem = SDPA.draw(replace(SDPA.certified_on[0], dtype="f32"))
    exact = SDPA.reference(problem)["o"]
    step = ulp(exact, "f32")
    assert (np.abs(mutant_of(SDPA, name).run(problem)["o"] - exact) < step).all()
    assert (np.abs(SDPA.right["online_32"](problem)["o"] - exact) > step).any()


def test_p_in_bf16_is_right_for_bf16() -> None:
    problem = SDPA.draw(replace(SDPA.certified_on[0], dtype="bf16"))
    ours = SDPA.right["short_p_32"](problem)["o"]
    assert np.array_equal(mutant_of(SDPA, "p_in_bf16").run(problem)["o"], ours)


def test_the_loose_gate_accepts_mean_v() -> None:
    survivors = {trial.name for trial in certify_loose(SDPA).survivors}
    assert {"mean_v", "uniform_p", "no_scale", "k_not_transposed", "no_rescale"} <= survivors
    assert not {"nan", "zeros", "one_nan"} & survivors


def test_a_task_that_names_no_workload_is_not_certified() -> None:
    with pytest.raises(UsageError, match="certified_on"):
        certify(replace(SDPA, certified_on=()))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "sdpa"]) == 0
    head, *rows, summary = capsys.readouterr().out.splitlines()
    assert head.split("\t") == ["mutant", "what is wrong", "killed by", "workload"]
    count = len(rows)
    assert count == len(SDPA.mutants)
    assert summary == f"{count} of {count} mutants killed, 9 of 9 correct implementations passed"


def test_the_command_lists_survivors(capsys: pytest.CaptureFixture[str]) -> None:
    """Half an LSB of bias passes the loose gate of the quantised task."""
    assert main(["certify", "fp8_sdpa", "--policy", "loose"]) == 1
    shown = capsys.readouterr().out.splitlines()
    survivors = next(line for line in shown if line.startswith("survivors: "))
    assert {"mean_v", "half_lsb"} <= set(survivors.removeprefix("survivors: ").split(", "))
    assert shown[-1].endswith("9 of 9 correct implementations passed")


@pytest.mark.parametrize("task", ["sdpa_varlen", "paged_decode_fp8"])
def test_the_loose_gate_refuses_other_layouts(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", task, "--policy", "loose"]) == 2
    assert "the loose gate judges dense arrays" in capsys.readouterr().err


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "qk_dot", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["holds"] and record["dtype"] == "f32" and len(record["mutants"]) >= AT_LEAST["qk_dot"]
    assert all(trial["killed_by"] and trial["workload"] for trial in record["mutants"])


@pytest.mark.parametrize("wrong", [["sdpa", "--policy", "lax"], ["gemm"], ["sdpa", "--dtype", "f8"]])
def test_unknown_words_are_refused(wrong: list[str]) -> None:
    assert main(["certify", *wrong]) == 2
