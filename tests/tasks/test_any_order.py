"""Gradients that are added by atomics: their last bits depend on the order of CTAs, which a kernel must declare."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tasks.atomic_gradients import DECLARED, by_atomics, edited
from weft.attention.shapes import Shape
from weft.core.errors import UsageError
from weft.core.status import Status
from weft.engines.kernel_file import load
from weft.judge.candidate import Candidate
from weft.judge.judge import check, judge
from weft.judge.local_runs import LocalRuns
from weft.judge.runs import Ran, different
from weft.judge.select import find_candidate
from weft.judge.verdict import Verdict
from weft.judge.verdict_json import verdict_of, verdict_record
from weft.kernels import RUNGS
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

SHAPE = Shape("t", 1, 4, 2, 9, 21, 32)
WORKLOAD = Workload(SHAPE, "f32", "none", "unit_normal", 0)


def judged(tmp_path: Path, text: str, workload: Workload = WORKLOAD, task: str = "sdpa_backward") -> Verdict:
    path = tmp_path / "atomic.cu"
    path.write_text(text)
    return check(Candidate(path), TASKS[task], workload)


def test_undeclared_atomics_are_nondeterministic(tmp_path: Path) -> None:
    verdict = judged(tmp_path, by_atomics(declared=""))
    assert (verdict.status, verdict.order_dependent) == (Status.NONDETERMINISTIC, ())
    assert verdict.message == (
        "another order of CTAs and warps gives different bits of dq; if atomics add them up, declare it: "
        "`// weft: nondeterministic dq : reason`"
    )


@pytest.mark.parametrize("mask", ["none", "top_left"])
def test_declared_atomics_pass_by_the_gates_of_every_order(tmp_path: Path, mask: str) -> None:
    verdict = judged(tmp_path, by_atomics(), replace(WORKLOAD, mask=mask))
    assert (verdict.status, verdict.message, verdict.order_dependent) == (Status.PASSED, "", ("dq",))
    assert verdict_of(verdict_record(verdict)) == verdict


def test_other_outputs_must_have_the_same_bits(tmp_path: Path) -> None:
    """dK takes a last bit from the order in which the CTAs arrive."""
    late = (
        "    dk_sum.store(dk + kv_row, scale);",
        "    unsigned turn = threadIdx.x % 32 == 0 ? atomicAdd(&turns, 1u) : 0u;\n"
        "    turn = __shfl_sync(ALL_LANES, turn, 0);\n"
        "    for (int i = 0; i < Row<D>::PER_LANE; ++i) dk_sum.at[i] *= 1.0f + 0x1p-23f * float(turn % 2);\n"
        "    dk_sum.store(dk + kv_row, scale);",
    )
    text = by_atomics(
        late, ("constexpr unsigned ALL_LANES", "__device__ unsigned turns;\nconstexpr unsigned ALL_LANES")
    )
    assert judged(tmp_path, text).status is Status.NONDETERMINISTIC


def test_a_declaration_does_not_excuse_wrong_numbers_in_another_order(tmp_path: Path) -> None:
    """The CTA that arrives first is right only if it is the first of the grid, as in the first run."""
    late = (
        "    if (key >= SKV) return;\n    const int HKV = gridDim.y",
        "    if (threadIdx.x == 0 && blockIdx.x + blockIdx.y + blockIdx.z == 0) first = atomicAdd(&turns, 1u);\n"
        "    else if (threadIdx.x == 0) atomicAdd(&turns, 1u);\n"
        "    if (key >= SKV) return;\n    const int HKV = gridDim.y",
    )
    wrong = ("dq[at] = ELEMENT(sum[at] * scale);", "dq[at] = ELEMENT(sum[at] * scale) + (first == 0 ? 0.0f : 1.0f);")
    variables = "__device__ unsigned turns, first;\nconstexpr unsigned ALL_LANES"
    reset = (
        "    if (query >= SQ) return;\n    const size_t row",
        "    turns = 0;\n    if (query >= SQ) return;\n    const size_t row",
    )
    verdict = judged(tmp_path, by_atomics(late, wrong, reset, ("constexpr unsigned ALL_LANES", variables)))
    assert verdict.status is Status.INCORRECT_NUMERICAL
    assert verdict.message.startswith("with another order of CTAs and warps: ")


def test_a_task_without_atomics_refuses_the_declaration(tmp_path: Path) -> None:
    own = "// weft: out     o "
    text = edited(RUNGS["scalar"].path.read_text(), (own, DECLARED.replace("dq", "o") + own))
    verdict = judged(tmp_path, text, replace(WORKLOAD, dtype="f32"), "sdpa")
    assert verdict.status is Status.REJECTED
    assert verdict.message == ("o is declared nondeterministic; in task sdpa no output may be")


class WiderLater(LocalRuns):
    """A child that answers with more digits when it repeats a run."""

    def again(self) -> Iterator[Ran]:
        for ran in super().again():
            yield replace(ran, outputs={**ran.outputs, "dq": ran.outputs["dq"].astype(np.float64)})


def test_the_form_of_an_output_is_checked_in_every_order(tmp_path: Path) -> None:
    path = tmp_path / "atomic.cu"
    path.write_text(by_atomics())
    verdict = judge(WiderLater(Candidate(path)), TASKS["sdpa_backward"], WORKLOAD).verdict
    assert verdict.status is Status.INCORRECT_DTYPE
    assert verdict.message == "with another order of CTAs and warps: dq has type float64, expected float32"


def test_an_output_that_only_one_run_has_is_different() -> None:
    one = {"dq": np.zeros(2), "dk": np.ones(2)}
    assert different(one, one) == () and different(one, {"dk": np.ones(2)}) == different({"dk": np.ones(2)}, one) == (
        "dq",
    )
    assert different(one, {**one, "dk": np.zeros(2)}) == ("dk",)


def test_names_of_the_file_become_those_of_the_task(tmp_path: Path) -> None:
    path = tmp_path / "atomic.cu"
    path.write_text(by_atomics().replace("dq", "dQ"))
    candidate, _ = find_candidate(str(path), task="sdpa_backward")
    assert candidate.declared.nondeterministic == ("dq",)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nondeterministic dq", "with the reason"),
        ("nondeterministic de : atomics", r"'de' is no out or inout array \(did you mean d"),
        ("nondeterministic q : atomics", "'q' is no out or inout array"),
    ],
)
def test_a_line_that_declares_nothing_is_an_error(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "atomic.cu"
    path.write_text(by_atomics(declared=f"// weft: {line}\n"))
    with pytest.raises(UsageError, match=says):
        load(path)
