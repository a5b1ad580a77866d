"""Blocks that run equally often, on graphs made by hand; and kernels whose exponentials come after a rare branch."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.engines.kernel_file import load
from weft.evolve.levers.render import render
from weft.evolve.levers.space import family, start_of
from weft.profile.block_runs import equal_blocks
from weft.profile.profiler import Profiler
from weft.profile.sass_text import SassBlock, SassInstruction


def graph(*ways: Sequence[int], leaves: Sequence[int] = ()) -> list[SassBlock]:
    """Block i goes to ways[i]; `leaves` may end the kernel as well."""
    return [
        SassBlock(number, (SassInstruction(0, "EXIT" if number in leaves or not to else "BRA", "", "", 0),), tuple(to))
        for number, to in enumerate(ways)
    ]


@pytest.mark.parametrize(
    ("blocks", "groups"),
    [
        pytest.param(graph((1, 2), (2,), ()), [{0, 2}, {1}], id="if without else"),
        pytest.param(graph((1, 2), (3,), (3,), ()), [{0, 3}, {1}, {2}], id="if with else"),
        pytest.param(graph((1,), (1, 2), ()), [{0, 2}, {1}], id="a loop of one block"),
        pytest.param(graph((1,), (2, 3), (3,), (1, 4), ()), [{0, 4}, {1, 3}, {2}], id="if in a loop"),
        pytest.param(graph((1,), (2, 4), (3, 1), (1,), ()), [{0, 4}, {1}, {2}, {3}], id="continue"),
        pytest.param(
            graph((1,), (2, 4), (3, 4), (1,), ()), [{0, 4}, {1}, {2}, {3}], id="break: what follows it runs less"
        ),
        pytest.param(graph((1,), (2,), (), leaves=(1,)), [{0, 1}, {2}], id="some leave in the middle"),
    ],
)
def test_groups(blocks: list[SassBlock], groups: list[set[int]]) -> None:
    assert [set(group) for group in equal_blocks(blocks)] == groups


RARE = """
extern "C" __global__ void k(const float* a, float* out, int n) {
    float m = a[0], sum = 0.0f, other = 0.0f;
    for (int i = 0; i < n; ++i) {
        const float x = a[i * 32 + threadIdx.x];
        if (__any_sync(~0u, x > m)) {
            m = x;
            #pragma unroll
            for (int j = 0; j < 4; ++j) { sum = sum * 1.5f + x; other = other * 0.5f + sum; }
        }
        float y;
        asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x - m));
        sum += y;
    }
    out[threadIdx.x] = sum + other;
}
"""


def test_code_after_a_rare_branch_runs_every_time() -> None:
    profiler = Profiler(weft.VirtualGPU(threads=1))
    a = np.full(32 * 40, -1.0, np.float32)
    a[32 * 7] = 3.0
    profiler.launch(weft.compile_cuda(RARE, name="k.cu"), "k", 1, 32, [a, np.zeros(32, np.float32), 40])
    counts = profiler.counts[-1][1]
    assert sum(n for opcode, n in counts.sass.items() if opcode.startswith("MUFU.EX2")) == 40


@pytest.mark.parametrize("rescale", ["always", "moved", "lazy"])
@pytest.mark.parametrize("tail", ["every", "edge"])
def test_a_kernel_of_the_family_has_an_exponential_per_score(rescale: str, tail: str, tmp_path: Path) -> None:
    """64 queries of 128 keys are 256 per lane of a warp; a rescale adds two per 16 rows of a tile."""
    point = start_of("wmma").moved({"PRODUCT": "mma", "RESCALE": rescale, "TAIL": tail, "EXP": "exp2"})
    path = tmp_path / "kernel.cu"
    path.write_text(render(family("sdpa"), point))
    profiler = Profiler(weft.VirtualGPU(threads=1))
    load(path).run(profiler, {}, sizes={"B": 1, "HQ": 1, "HKV": 1, "SQ": 64, "SKV": 128, "D": 64})
    counts = profiler.counts[-1][1]
    exponentials = sum(n for opcode, n in counts.sass.items() if opcode.startswith("MUFU.EX2"))
    scores, tiles = 64 * 128 // 32, 4 * 128 // int(point["BLOCK_N"])
    assert scores <= exponentials <= scores + 2 * tiles + 8
