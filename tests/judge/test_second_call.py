"""Kernels that keep state between launches: a second call with other inputs on the same device decides."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.judge.candidates import ANSWERS_AGAIN, LSE, edited, keeping
from weft.attention.shapes import SHAPES
from weft.core.status import Status
from weft.judge.candidate import Candidate
from weft.judge.judge import KEEPS_STATE
from weft.judge.judging import judge_all
from weft.judge.local_runs import LocalRuns
from weft.judge.second_call import OTHER_SEED
from weft.judge.verdict import Verdict
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

SDPA = TASKS["sdpa"]
WORKLOAD = Workload(SHAPES["small"], "f16", "none", "unit_normal", 0)
KNOWN_BY_ADDRESS = ANSWERS_AGAIN.replace("int filled[1 << 12];", "const void* filled[1 << 12];").replace(
    "!filled[q_row]", "filled[q_row] != q"
).replace("filled[q_row] = 1", "filled[q_row] = q")  # fmt: skip
"""The same, keyed by the address of Q."""


KNOWN_BY_VALUE = ANSWERS_AGAIN.replace("int filled[1 << 12];", "float filled[1 << 12];").replace(
    "!filled[q_row]", "filled[q_row] != float(q[0])"
).replace("filled[q_row] = 1", "filled[q_row] = float(q[0])")  # fmt: skip
"""The same, keyed by the first value of Q."""


def wrong_from(launch: int) -> str:
    """A kernel that is wrong from this launch on, counted from 1."""
    return keeping(
        "int launches[1 << 12];",
        (LSE, "int before = 0;\n    if (lane == 0) before = launches[q_row]++;\n"
              f"    if (lane == 0) lse[q_row] = m + logf(l) + (before >= {launch - 1} ? 1.0f : 0.0f);"),
    )  # fmt: skip


RESETS = keeping(
    "unsigned arrived;\n__device__ unsigned epoch;",
    (LSE, LSE + "\n    __syncthreads();\n    if (threadIdx.x == 0) {\n"
          "        const unsigned all = gridDim.x * gridDim.y * gridDim.z;\n"
          "        if (atomicAdd(&arrived, 1u) == all - 1) { arrived = 0; atomicAdd(&epoch, 1u); }\n    }"),
)  # fmt: skip
"""A semaphore that the last CTA resets, and an epoch that grows with every launch: state without effect on outputs."""


def judged(tmp_path: Path, text: str, todo: Sequence[Workload] = (WORKLOAD,)) -> list[Verdict]:
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    return [each.verdict for each in judge_all(LocalRuns(Candidate(path)), SDPA, todo)]


@pytest.mark.parametrize("text", [ANSWERS_AGAIN, KNOWN_BY_ADDRESS], ids=["first launch", "by address"])
def test_outputs_kept_in_a_device_variable_are_found(tmp_path: Path, text: str) -> None:
    (verdict,) = judged(tmp_path, text)
    assert verdict.status is Status.INCORRECT_NUMERICAL
    assert verdict.workload == WORKLOAD
    assert verdict.message.startswith(
        f"a second call on the same device, with other inputs (unit_normal seed {OTHER_SEED}), is wrong: {KEEPS_STATE}"
    )
    assert verdict.samples and verdict.error is not None and verdict.error.max > 0.1


def test_outputs_recognised_by_a_fingerprint_of_the_inputs_are_found(tmp_path: Path) -> None:
    """Other seeds have another first value: only a call with the same first value shows the kept outputs."""
    (verdict,) = judged(tmp_path, KNOWN_BY_VALUE)
    assert verdict.status is Status.NONDETERMINISTIC
    assert verdict.message.startswith(f"{KEEPS_STATE}: a call that shares half of its inputs")


def test_a_task_with_one_set_of_inputs_sees_it_too(tmp_path: Path) -> None:
    """As in folders of other systems: no other inputs have a reference."""
    fixed = replace(SDPA, draw=lambda workload: SDPA.draw(WORKLOAD))
    path = tmp_path / "kernel.cu"
    for text, status in ((ANSWERS_AGAIN, Status.NONDETERMINISTIC), (RESETS, Status.PASSED)):
        path.write_text(text)
        first, *_ = judge_all(LocalRuns(Candidate(path)), fixed, [WORKLOAD])
        assert first.verdict.status is status


def test_inputs_that_no_seed_changes_are_replaced(tmp_path: Path) -> None:
    """All zeros are the same for every seed: the second call has the first regime of the task's quick selection."""
    (verdict,) = judged(tmp_path, ANSWERS_AGAIN, [replace(WORKLOAD, regime="zeros")])
    assert verdict.status is Status.INCORRECT_NUMERICAL and "unit_normal seed" in verdict.message


def test_one_second_call_is_made_for_many_workloads(tmp_path: Path) -> None:
    """It is made on the smaller of the two, the second; the first passes."""
    larger = replace(WORKLOAD, shape=SHAPES["ragged"])
    first, second = judged(tmp_path, ANSWERS_AGAIN, [larger, WORKLOAD])
    assert first.passed and not second.passed and second.workload == WORKLOAD


@pytest.mark.parametrize("launch", [4, 5, 7])
def test_a_kernel_that_is_wrong_from_a_later_launch_on_is_found(tmp_path: Path, launch: int) -> None:
    """The call, its two repetitions, one more, and the second call with its own two: seven launches."""
    (verdict,) = judged(tmp_path, wrong_from(launch))
    assert not verdict.passed and KEEPS_STATE in verdict.message


@pytest.mark.parametrize("launch", [2, 3])
def test_kept_state_is_not_reported_as_an_order_of_ctas(tmp_path: Path, launch: int) -> None:
    (verdict,) = judged(tmp_path, wrong_from(launch))
    assert verdict.status is Status.NONDETERMINISTIC
    assert verdict.message == f"{KEEPS_STATE}: a second call on the same device gives different bits"


def test_state_without_effect_on_the_outputs_passes(tmp_path: Path) -> None:
    assert all(verdict.passed for verdict in judged(tmp_path, RESETS))


def test_inputs_that_are_wrong_on_a_fresh_device_too_are_not_kept_state(tmp_path: Path) -> None:
    """The first value of Q in the second call, as a constant: the result is wrong for these inputs in any call."""
    known = SDPA.draw(replace(WORKLOAD, seed=OTHER_SEED)).arrays["q"].flat[0]
    text = edited((LSE, f"if (lane == 0) lse[q_row] = m + logf(l) + (float(q[0]) == {float(known)!r}f ? 1.0f : 0.0f);"))
    (verdict,) = judged(tmp_path, text)
    assert verdict.status is Status.INCORRECT_NUMERICAL and verdict.workload.seed == OTHER_SEED
    assert KEEPS_STATE not in verdict.message
