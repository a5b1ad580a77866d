"""Same inputs, same bits: for any number of host threads, and for race-free kernels in any order of CTAs and warps."""

import zlib
from functools import cache

import numpy as np
import pytest

import weft
from tests.kernels.case import Arrays, Case, Triton
from tests.kernels.cases import CASES
from tests.kernels.test_kernels import _argument, _compiled, _poisoned
from weft.core.records import Binary
from weft.vm.program import compile_program

RACE_FREE = (
    "wmma_attention_B2_S77_32x32_w4_sm_89",
    "mma_attention_B2_S200_fp16_w4_causal_sm_89",
    "mma_attention_B1_S65_bf16_w8_causal_sm_89",
    "triton_flash_S200_fp16_w4_s2_causal_sm_89",
    "triton_flash_S200_fp16_w8_s3_sm_89",
    "tiled_gemm_45x70x70_beta-0.5",
    "softmax_block_per_row",
    "softmax_warp_per_row",
    "split_k_attention_S65_splits3",
    "split_k_attention_S64_splits4_causal",
)
"""Beginnings of case names."""
ORDER_SHOWS = ("keep_positive", "statistics", "histogram")
SCHEDULES = (0, 1, 2, 3)

SUMS = r"""
extern "C" __global__ void sum_in_global(const float* x, float* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum + i % 3, x[i]);
}

extern "C" __global__ void sum_in_shared(const float* x, float* sum, int n) {
    __shared__ float part;
    if (threadIdx.x == 0) part = 0.0f;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&part, x[i]);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(sum + blockIdx.x % 3, part);
}

extern "C" __global__ void ticket(const float* x, float* sum, int n) {
    __shared__ unsigned mine;
    if (threadIdx.x == 0) mine = atomicInc(reinterpret_cast<unsigned*>(sum), 1000u);
    __syncthreads();
    if (threadIdx.x == 0 && mine < 2) sum[1 + mine] = x[blockIdx.x];
}
"""


def _case(start: str) -> Case:
    return next(case for case in CASES if case.name.startswith(start))


def _results(case: Case, *, threads: int, schedule: int) -> tuple[Arrays, list[int]]:
    """Return all arrays afterwards, and the warp instructions of each launch."""
    binary = _compiled(case.name)
    arrays = case.inputs(np.random.default_rng(zlib.crc32(case.name.encode())))
    arrays |= {name: _poisoned(buffer) for name, buffer in case.outputs.items()}
    gpu = weft.VirtualGPU(case.source.arch, threads=threads, schedule=schedule)
    instructions = []
    for launch in case.launches:
        shared_bytes = binary.dynamic_shared_bytes if isinstance(case.source, Triton) else launch.shared_bytes
        args = [_argument(item, arrays) for item in launch.args]
        run = gpu.launch(binary, launch.entry, launch.grid, launch.block, args, shared_bytes=shared_bytes)
        assert run.clean, run.findings
        instructions.append(run.instructions)
    return arrays, instructions


def _assert_same_bits(got: Arrays, expected: Arrays, what: str) -> None:
    for name, array in expected.items():
        assert got[name].tobytes() == array.tobytes(), f"{name} differs with {what}"


@pytest.mark.parametrize("start", RACE_FREE)
def test_race_free_kernels_do_not_depend_on_threads_or_schedule(start: str) -> None:
    case = _case(start)
    expected, instructions = _results(case, threads=1, schedule=0)
    for threads in (1, 2):
        for schedule in SCHEDULES:
            got, counted = _results(case, threads=threads, schedule=schedule)
            _assert_same_bits(got, expected, f"{threads} threads, schedule {schedule}")
            assert counted == instructions


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("start", ORDER_SHOWS)
def test_order_dependent_kernels_do_not_depend_on_threads(start: str, schedule: int) -> None:
    case = _case(start)
    expected, instructions = _results(case, threads=1, schedule=schedule)
    for _ in range(3):  # a race between host threads would not show every time
        got, counted = _results(case, threads=2, schedule=schedule)
        _assert_same_bits(got, expected, f"2 threads, schedule {schedule}")
        assert counted == instructions


@cache
def _sums() -> Binary:
    return weft.compile_cuda(SUMS, name="sums.cu")


def _sum(entry: str, *, threads: int, schedule: int) -> bytes:
    n = 64 * 77 - 5
    x = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    total = np.zeros(3, np.float32)
    gpu = weft.VirtualGPU(threads=threads, schedule=schedule)
    assert gpu.launch(_sums(), entry, 77, 64, [x, total, np.int32(n)]).clean
    if entry != "ticket":
        expected = x.astype(np.float64)
        assert abs(total.astype(np.float64).sum() - expected.sum()) < n * 2.0**-24 * np.abs(expected).sum()
    return total.tobytes()


@pytest.mark.parametrize("entry", ["sum_in_global", "sum_in_shared", "ticket"])
def test_float_atomics_have_one_order_per_schedule(entry: str) -> None:
    results = {}
    for schedule in SCHEDULES:
        results[schedule] = _sum(entry, threads=1, schedule=schedule)
        for _ in range(3):
            assert _sum(entry, threads=2, schedule=schedule) == results[schedule], f"schedule {schedule}"
    assert len(set(results.values())) > 1, "the order shows, or this test proves nothing"


LOADS = (
    "volatile.global",
    "relaxed.cta.global",
    "relaxed.gpu.global",
    "relaxed.sys.global",
    "relaxed.gpu",
    "acquire.gpu.global",
    "acquire.sys.global",
)
LOAD = """.version 8.4
.target sm_89
.address_size 64
.visible .entry peek(.param .u64 x)
{ .reg .b64 %a, %b; .reg .b32 %c, %v;
  ld.param.u64 %a, [x]; mov.u32 %c, %ctaid.x; mul.wide.u32 %b, %c, 4; add.u64 %b, %a, %b;
  """


@pytest.mark.parametrize("load", LOADS)
def test_a_strong_load_shows_the_order_of_ctas(load: str) -> None:
    text = f"{LOAD} ld.{load}.u32 %v, [%b]; add.u32 %v, %v, 1; st.relaxed.gpu.global.u32 [%b+4], %v; ret; }}"
    assert compile_program(text, "peek").plan.ordered


@pytest.mark.parametrize("load", ["global", "weak.global", "global.nc", "relaxed.cta.shared", "volatile.shared"])
def test_other_loads_do_not(load: str) -> None:
    variable = ".shared .u32 s;" if "shared" in load else ""
    text = f"{LOAD} {variable} ld.{load}.u32 %v, [{'s' if variable else '%b'}]; st.global.u32 [%b], %v; ret; }}"
    assert not compile_program(text, "peek").plan.ordered


RELAXED = r"""
extern "C" __global__ void chain(unsigned* x) {
    unsigned before;
    for (int i = 0; i < 2000; ++i)
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(before) : "l"(x + blockIdx.x));
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(x + blockIdx.x + 1), "r"(before + 1));
}
"""


def test_relaxed_loads_have_one_order_per_schedule() -> None:
    binary = weft.compile_cuda(RELAXED, name="relaxed.cu")
    for schedule in SCHEDULES:
        results = set()
        for threads in (1, 2, 2, 2):
            x = np.zeros(65, np.uint32)
            weft.VirtualGPU(threads=threads, schedule=schedule).launch(binary, "chain", 64, 32, [x])
            results.add(x.tobytes())
        assert len(results) == 1, f"schedule {schedule}"
