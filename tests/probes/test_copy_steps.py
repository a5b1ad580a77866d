"""A copy that is accessed too early: the cure names the step that is missing, and its line."""

import numpy as np
import pytest

import weft
from weft.core.records import Finding
from weft.probes import RaceCheck

KERNEL = """\
__device__ void copy(float* to, const float* from) {
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
__device__ void wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

extern "C" __global__ void staged(const float* x, float* y, int tiles) {
    __shared__ float stage[2][64];
    const int t = threadIdx.x;
    copy(&stage[0][t], x + t);
    FIRST_COMMIT
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) copy(&stage[(tile + 1) % 2][t], x + 64 * (tile + 1) + t);
        COMMIT
        WAIT
        BARRIER
        y[64 * tile + t] = stage[tile % 2][READ];
        AFTER
        __syncthreads();
    }
}
"""
RIGHT = {
    "FIRST_COMMIT": "commit();", "COMMIT": "commit();", "WAIT": "wait<1>();", "BARRIER": "__syncthreads();",
    "READ": "63 - t", "AFTER": "",
}  # fmt: skip
GENERAL = "add cp.async.wait_group and then a barrier before the access"


def findings(schedule: int = 0, **changed: str) -> tuple[Finding, ...]:
    text = KERNEL
    for name, code in {**RIGHT, **changed}.items():
        text = text.replace(f" {name}\n", f" {code}\n").replace(f"[{name}]", f"[{code}]")
    binary = weft.compile_cuda(text, name="staged.cu", entries=("staged",))
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    gpu = weft.VirtualGPU(threads=1, schedule=schedule)
    return gpu.launch(binary, "staged", 1, 64, [x, y, np.int32(4)], watch=RaceCheck()).findings


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(KERNEL.splitlines(), 1) if text in line)


@pytest.mark.parametrize("schedule", [0, 1])
@pytest.mark.parametrize("wait", ["wait<1>();", "wait<0>();", "wait_all();"])
def test_a_right_pipeline_has_no_finding(wait: str, schedule: int) -> None:
    assert findings(schedule, WAIT=wait) == ()
    assert findings(schedule, FIRST_COMMIT="", COMMIT="", WAIT="wait_all();") == ()


@pytest.mark.parametrize("schedule", [0, 1])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("changed", "cure", "line"),
    [
        ({"FIRST_COMMIT": "", "COMMIT": ""}, "end the copy's group after line {}", "copy(&stage[0]"),
        ({"WAIT": "wait<2>();"}, "the wait of line {} does not include the last 2 groups", " WAIT"),
        ({"WAIT": ""}, GENERAL, ""),
        ({"FIRST_COMMIT": "", "COMMIT": "", "WAIT": "", "AFTER": "wait_all();"}, GENERAL, ""),
    ],
)
def test_the_missing_step_is_named(changed: dict[str, str], cure: str, line: str, own: bool, schedule: int) -> None:
    found = findings(schedule, **changed, **({"READ": "t"} if own else {}))
    copies = [each for each in found if each.code == "R104"]
    assert copies
    at = line_of(line) if line else 0
    assert any(each.remedy.startswith(cure.format(at)) for each in copies), [each.remedy for each in copies]
    assert {each.cure_place.line for each in copies if each.cure_place is not None} >= ({at} if line else set())


@pytest.mark.parametrize("schedule", [0, 1])
@pytest.mark.parametrize(
    "changed",
    [
        {"BARRIER": ""},
        {"WAIT": "", "BARRIER": "__syncthreads(); wait<1>();"},
        {"FIRST_COMMIT": "", "COMMIT": "", "WAIT": "wait_all();", "BARRIER": ""},
    ],
)
def test_a_wait_holds_for_the_waiting_thread_alone(changed: dict[str, str], schedule: int) -> None:
    assert not [each for each in findings(schedule, **changed, READ="t") if each.code == "R104"]
    copies = [each for each in findings(schedule, **changed) if each.code == "R104"]
    assert copies
    at = line_of(" WAIT" if changed.get("WAIT") != "" else " BARRIER")
    assert {each.remedy for each in copies} == {
        f"add a barrier after the wait of line {at}, which holds for the waiting thread alone"
    }


def test_two_copies_to_the_same_bytes_lack_no_step() -> None:
    found = findings(COMMIT="copy(&stage[0][t], x + t); commit();", WAIT="wait<2>();")
    line = line_of("cp.async.ca")
    twice = [each for each in found if each.place and each.other and each.place.line == each.other.line == line]
    assert twice and {each.remedy for each in twice} == {GENERAL}
