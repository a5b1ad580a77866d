"""What a block needs of an SM, by the chosen GPU: registers decide what can be launched and what waits together."""

from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.chips import chip
from weft.core.errors import ResourceError
from weft.core.register_file import blocks_by_registers
from weft.engines.kernel_file import load

REGISTERS = """// weft: define  BOUND = 0
// weft: in      x : f32[1024, 96] = normal
// weft: out     y : f32[1024]
// weft: launch  hoard(x, y) grid(1) block(1024)
#if BOUND
__launch_bounds__(1024)
#endif
__global__ void hoard(const float* x, float* y) {
    float kept[96];
    for (int i = 0; i < 96; ++i) kept[i] = x[threadIdx.x * 96 + i];
    __syncthreads();
    float sum = 0;
    for (int i = 95; i >= 0; --i) sum = sum * kept[i] + kept[95 - i] * kept[i];
    y[threadIdx.x] = sum;
}
"""
"""All 96 values are loaded before the barrier and used after it: without a bound they lie in registers."""

TOGETHER = """// weft: define  HOARD = 1
// weft: in        x : f32[512, 96] = normal
// weft: workspace met : u32[1]
// weft: out       y : f32[BLOCKS, 512]
// weft: sizes     BLOCKS=100
// weft: launch    zero(met) grid(1) block(1)
// weft: launch    meet(x, met, y) grid(BLOCKS) block(512)
__global__ void zero(unsigned* met) { *met = 0; }
__global__ void meet(const float* x, unsigned* met, float* y) {
    float kept[96], sum = 0;
    if (HOARD) for (int i = 0; i < 96; ++i) kept[i] = x[threadIdx.x * 96 + i];
    if (threadIdx.x == 0) {
        atomicAdd(met, 1);
        while (*(volatile unsigned*)met < gridDim.x) {}
    }
    __syncthreads();
    if (HOARD) for (int i = 95; i >= 0; --i) sum = sum * kept[i] + kept[95 - i] * kept[i];
    y[blockIdx.x * 512 + threadIdx.x] = sum;
}
"""
"""CTAs of 512 threads: an L4 (58 SMs) holds three on each SM, or one where a thread has more than 64 registers."""

SMS = """// weft: out y : u32[70, 2]
// weft: launch where(y) grid(70) block(32)
__global__ void where(unsigned* y) {
    unsigned sm, sms;
    asm volatile("mov.u32 %0, %%smid; mov.u32 %1, %%nsmid;" : "=r"(sm), "=r"(sms));
    if (threadIdx.x == 0) y[2 * blockIdx.x] = sm, y[2 * blockIdx.x + 1] = sms;
}
"""


def test_a_block_that_an_sm_cannot_hold_is_refused_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(REGISTERS)
    (resources,) = load(path).compile().resources.values()
    assert resources.registers > 64  # 65,536 registers for 1,024 threads
    with pytest.raises(ResourceError, match=r"1024 threads of \d+ registers .* __launch_bounds__\(1024\)"):
        load(path).run(weft.VirtualGPU())


def test_with_a_launch_bound_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(REGISTERS)
    run, arrays = load(path, defines={"BOUND": "1"}).run(weft.VirtualGPU())
    assert run.clean and not np.isnan(arrays["y"]).any()


def test_blocks_by_registers() -> None:
    sm_89 = chip("l4").architecture
    assert blocks_by_registers(sm_89, 1024, 64) == 1
    assert blocks_by_registers(sm_89, 1024, 65) == 0  # rounded up to 72
    assert blocks_by_registers(sm_89, 128, 255) == 2  # two warps of 8,192 in each quarter
    assert blocks_by_registers(sm_89, 256, 40) == 6  # twelve of 1,280 in each quarter: 48 warps


def test_ctas_that_wait_need_registers_for_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(TOGETHER)
    run = load(path).run(weft.VirtualGPU("l4"), max_steps=1 << 18).run
    (finding,) = run.findings
    assert finding.code == "S302" and "42 CTAs have not started" in finding.message
    assert load(path).run(weft.VirtualGPU("l4"), sizes={"BLOCKS": 58}).run.clean
    assert load(path, defines={"HOARD": "0"}).run(weft.VirtualGPU("l4")).run.clean


def test_the_sms_are_those_of_the_chosen_gpu(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(SMS)
    sm, sms = load(path).run(weft.VirtualGPU("l4"))[1]["y"].T
    assert set(sms) == {58} and set(sm) == set(range(58))
    other = load(path).run(weft.VirtualGPU("l4", schedule=1))[1]["y"].T[0]
    assert set(other) == set(range(58)) and (other != sm).any()  # on hardware a CTA's SM is chance
