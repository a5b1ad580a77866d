"""The judge adds workloads at the sizes where a kernel branches, and reports what it could not run."""

from dataclasses import replace
from pathlib import Path

import pytest

from weft.attention.shapes import SHAPES
from weft.core.status import Status
from weft.coverage.records import Boundary, Coverage
from weft.judge.follow import MOST_WORKLOADS, workloads_at
from weft.judge.judge import Policy
from weft.judge.judging import Judging
from weft.judge.local_runs import LocalRuns
from weft.judge.look import look_for
from weft.judge.select import Choice, Supports, find_candidate, plan
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

SDPA = TASKS["sdpa"]
LIKE = [Workload(SHAPES["ragged"], "f16", mask, "unit_normal", 0) for mask in ("none", "top_left", "bottom_right")]
WHOLE = Supports(SDPA, SDPA.workloads.dtypes, SDPA.workloads.masks)

KERNEL = """
// weft: sizes   B=1 HQ=2 HKV=1 SQ=4 SKV=20 D=64
// weft: define  ELEMENT = "float"
// weft: in      q : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o : ELEMENT[B, HQ, SQ, D]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  attend(q, k, v, o, HKV, SKV, D, scale) grid(SQ, HQ, B) block(32)
#include <math_constants.h>

__device__ float dot(const float* a, const float* b, int D) {
    float sum = 0;
    for (int d = threadIdx.x; d < D; d += 32) sum += a[d] * b[d];
    for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    return sum;
}

__global__ void attend(const float* q, const float* k, const float* v, float* o, int HKV, int SKV, int D, float scale) {
    const size_t row = (size_t(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const size_t head = (size_t(blockIdx.z) * HKV + blockIdx.y / (gridDim.y / HKV)) * SKV;
    q += row * D;
    float m = -CUDART_INF_F, l = 0;
    for (int key = 0; key < SKV; ++key) m = fmaxf(m, dot(q, k + (head + key) * D, D) * scale);
    for (int key = 0; key < SKV; ++key) l += expf(dot(q, k + (head + key) * D, D) * scale - m);
    const int end = SKV > 700 ? LAST : SKV;
    for (int d = threadIdx.x; d < D; d += 32) o[row * D + d] = 0;
    for (int key = 0; key < end; ++key) {
        const float p = expf(dot(q, k + (head + key) * D, D) * scale - m) / l;
        for (int d = threadIdx.x; d < D; d += 32) o[row * D + d] += p * v[(head + key) * D + d];
    }
}
"""


def judging(folder: Path, last: str) -> Judging:
    path = folder / "kernel.cu"
    path.write_text(KERNEL.replace("LAST", last))
    candidate, supports = find_candidate(str(path), task=None)
    choice = Choice(regimes=("unit_normal",), seeds=(0,))
    todo = [
        replace(work, dtype="f32") for work in plan(supports, choice) if work.shape.skv < 200 and work.shape.d == 64
    ]
    policy = Policy(debug_build=False, stop=True)
    return Judging(LocalRuns(candidate), supports.task, todo[:2], policy, follow=supports)


def test_a_path_that_no_shape_of_the_list_takes_is_judged(tmp_path: Path) -> None:
    wrong = judging(tmp_path, "SKV - 1")
    verdicts = [judged.verdict for judged in wrong]
    assert verdicts[-1].status is Status.INCORRECT_NUMERICAL
    assert verdicts[-1].workload.shape.skv == 701
    assert all(verdict.passed for verdict in verdicts[:-1])


def test_a_right_kernel_passes_and_reports_where_it_was_run(tmp_path: Path) -> None:
    right = judging(tmp_path, "SKV")
    assert all(judged.verdict.passed for judged in right)
    found = [each for each in right.coverage.boundaries if (each.axis, each.value) == ("SKV", 701)]
    assert not found, "the compiler has seen that both ways are the same"


def test_look_finds_the_sizes_through_the_inputs() -> None:
    look = look_for(TASKS["fp8_sdpa"], replace(LIKE[0], encoding="e4m3"))
    assert look.inputs["k_code"] == ("b", "hkv", "skv", "d")
    assert look.axes == TASKS["fp8_sdpa"].any_size


def test_both_sides_of_a_boundary_are_run() -> None:
    found = workloads_at([Boundary("SKV", 513)], WHOLE, LIKE, Coverage())
    assert {work.shape.skv for work in found.workloads} == {512, 513, 514, 65_601}
    assert found.boundaries == (Boundary("SKV", 513), Boundary("SKV", 65_536))


def test_two_boundaries_are_run_at_once() -> None:
    found = workloads_at([Boundary("SKV", 700), Boundary("SQ", 161)], WHOLE, LIKE, Coverage())
    shapes = {(work.shape.sq, work.shape.skv): work.mask for work in found.workloads}
    assert shapes[161, 700] == "none"
    assert shapes[709, 700] == "bottom_right", "rows that see no key, with many keys"


def test_boundaries_that_cost_too_much_are_reported() -> None:
    far = [Boundary("SKV", 30_000, "k.cu", 5), Boundary("SQ", 4_000, "k.cu", 9), Boundary("SKV", 65, "k.cu", 3)]
    found = workloads_at(
        [*far, *(Boundary("SQ", 10 * n, "k.cu", 100 + n) for n in range(1, 40))], WHOLE, LIKE, Coverage()
    )
    assert len(found.workloads) <= MOST_WORKLOADS + 3
    assert any(each.why_not == "it would take too long" for each in found.boundaries)


def test_a_size_that_the_kernel_does_not_take_is_reported() -> None:
    only = replace(WHOLE, only_d=64)
    boundary, _ = workloads_at([Boundary("D", 97)], only, LIKE, Coverage()).boundaries
    assert boundary.why_not == "the kernel does not take it"


@pytest.mark.parametrize("axis", SDPA.any_size)
def test_every_size_of_the_task_can_be_varied(axis: str) -> None:
    found = workloads_at([Boundary(axis, 9)], WHOLE, LIKE, Coverage())
    assert 1 in {work.shape.sq for work in found.workloads}
    assert len(found.workloads) == {"SQ": 4, "S": 4, "D": 4, "SKV": 6}.get(axis, 5)
