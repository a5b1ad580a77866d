"""The workloads of the full check: every shape of a task, within what the rung takes."""

import pytest

from benchmarks.full_check import Job, jobs, run
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import TASKS


@pytest.mark.parametrize(
    ("rung", "task"),
    [
        ("softcap_sinks", None),
        ("paged_decode", None),
        ("paged_decode_fp8", None),
        ("varlen_triton", None),
        ("backward_mma", None),
        ("pipelined", "sliding_window"),
    ],
)
def test_every_shape_and_regime_of_the_task_is_judged(rung: str, task: str | None) -> None:
    axes = TASKS[task or RUNGS[rung].task].workloads
    found = list(jobs(rung, 1, task))
    assert {(job.shape, job.regime) for job in found} == {(s, r) for s in axes.shapes for r in axes.regimes}
    assert {job.mask for job in found} == set(RUNGS[rung].masks)
    assert {job.dtype for job in found} == set(RUNGS[rung].dtypes)


def test_shapes_that_launch_lines_exclude_are_left_out() -> None:
    shapes = {job.shape for job in jobs("hopper_tma", 1)}
    assert "odd_d" not in shapes and {"d48", "d128"} <= shapes


def test_a_job_names_its_task() -> None:
    job = Job("pipelined", "small", "f16", "none", "plain", "unit_normal", 0, False, "sliding_window")
    judged, verdict = run(job)
    assert judged == job and verdict.passed
    assert {gate.gate for gate in verdict.gates} >= {"tight", "lse"}
