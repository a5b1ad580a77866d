"""The cure of a race names a line that the user can change, in the words of the kernel's language."""

from pathlib import Path

import pytest

from weft.core.records import Finding
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.probes.tools import watch_for

HEADER = """\
template <typename T>
__device__ void put(T* tile, const T* x, int t) {
    tile[t] = x[t];
}
__device__ float turned(float* tile, float x, int t) {
    for (int i = 0; i < 1; ++i) {
        tile[t] = x;
    }
    return tile[63 - t];
}
"""
KERNEL = """\
// weft: in      x : f32[64] = normal
// weft: out     y : f32[64]
// weft: launch  {kernel}(x, y) grid(1) block(64)
#include "tile.cuh"
__global__ void called(const float* x, float* y) {{
    __shared__ float tile[64];
    put(tile, x, threadIdx.x);
    y[threadIdx.x] = tile[63 - threadIdx.x];
}}
__global__ void inside(const float* x, float* y) {{
    __shared__ float tile[64];
    y[threadIdx.x] = turned(tile, x[threadIdx.x], threadIdx.x);
}}
"""


def races(file: Path) -> tuple[Finding, ...]:
    kernel = load(file)
    return kernel.run(VirtualGPU(threads=1), watch=watch_for(["racecheck"])).run.findings


@pytest.mark.parametrize(
    ("kernel", "cures", "at"),
    [
        ("called", {"add a barrier after line 7", "add a barrier after line 7 of k.cu"}, ("k.cu", 7)),
        ("inside", {"add a barrier after line 8"}, ("tile.cuh", 8)),
    ],
)
def test_a_line_of_a_header_is_named_with_its_file(
    tmp_path: Path, kernel: str, cures: set[str], at: tuple[str, int]
) -> None:
    (tmp_path / "tile.cuh").write_text(HEADER)
    file = tmp_path / "k.cu"
    file.write_text(KERNEL.format(kernel=kernel))
    found = races(file)
    assert found and {finding.remedy for finding in found} <= cures
    for finding in found:
        assert finding.place is not None and finding.cure_place is not None
        assert (Path(finding.cure_place.file).name, finding.cure_place.line) == at
        named = " of " in finding.remedy
        assert named == (Path(finding.place.file).name != at[0]), "a line of another file than the finding's"


TRITON = """\
# weft: sizes   N=256
# weft: define  BLOCK = 64
# weft: in      x : f32[N] = normal
# weft: inout   m : f32[1] = zeros
# weft: inout   y : f32[N] = zeros
# weft: out     z : f32[N]
# weft: launch  {launch} block(128)
import triton
import triton.language as tl


@triton.jit
def largest(x, m, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(m, tl.max(tl.load(x + at)))


@triton.jit
def turn(x, y, z, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at))
    tl.store(z + at, tl.load(y + N - 1 - at))
"""


@pytest.mark.parametrize(
    ("launch", "cure"),
    [
        (
            "largest(x, m) grid(4)",
            "let each program store only its own elements, or combine them: tl.atomic_add, tl.atomic_max",
        ),
        ("turn(x, y, z) grid(1)", "add tl.debug_barrier() after line 21"),
    ],
)
def test_triton_cures_use_triton_words(tmp_path: Path, launch: str, cure: str) -> None:
    pytest.importorskip("triton")
    file = tmp_path / "k.py"
    file.write_text(TRITON.format(launch=launch))
    found = races(file)
    assert found and {finding.remedy for finding in found} == {cure}
