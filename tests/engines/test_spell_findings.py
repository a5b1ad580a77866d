"""The user's line of a chain of inlined calls, names, and copies of a line."""

from pathlib import Path

import pytest

from weft.core.records import Finding, Place
from weft.engines.kernel_file import load
from weft.engines.spell_findings import folded, plain_names, user_place
from weft.engines.virtual import VirtualGPU
from weft.toolchain.cuda_headers import include_dirs


def test_the_place_is_the_innermost_line_outside_cuda_headers() -> None:
    user = Place("tile.h", 3, inlined_at=Place("k.cu", 20))
    assert user_place(Place(str(include_dirs()[-1] / "cuda_fp16.hpp"), 700, inlined_at=user)) == user
    assert user_place(user) == user and user_place(None) is None


@pytest.mark.parametrize("file", ["standard.py", "extra/cuda/libdevice.py"])
def test_the_place_is_the_call_of_tritons_library(file: str) -> None:
    """A race inside `tl.sum` is one of the line that calls it."""
    call = Place("mine.py", 12)
    assert user_place(Place(f"/env/site-packages/triton/language/{file}", 290, inlined_at=call)) == call
    assert user_place(Place("/home/me/triton/kernels/mine.py", 3, inlined_at=call)).line == 3


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("4 bytes at _ZZ4turnPKfPfiE4tile+0x40", "4 bytes at tile+0x40"),
        ("_ZZN3lib4turnILi4EEEvPfE2sS_0 (256 bytes)", "sS (256 bytes)"),
        ("_ZZ4racyPK6__halfPS_iE5first_$_0+0x0", "first+0x0"),
        ("_ZZ1kvE5aE4bc", "aE4bc"),
        ("_ZZ1kvE9short", "_ZZ1kvE9short"),
        ("block+0x8", "block+0x8"),
    ],
)
def test_names_are_demangled(text: str, plain: str) -> None:
    assert plain_names(text) == plain


def test_copies_of_an_unrolled_line_are_one_finding() -> None:
    here, there = Place("k.cu", 3), Place("k.cu", 4)
    copies = [Finding("M103", "m", ptx_line=n, place=here, warp=n, count=2) for n in (1, 2)]
    others = [Finding("M103", "other", place=here), Finding("M103", "m", place=there)]
    assert folded([*copies, *others]) == (Finding("M103", "m", ptx_line=1, place=here, warp=1, count=4), *others)


SOURCE = """\
// weft: in      x : f32[32] = normal
// weft: out     y : f32[32]
// weft: launch  stage(x, y) grid(1) block(32)
#include <cuda_pipeline.h>
__device__ void fetch(float* to, const float* from) {
    __pipeline_memcpy_async(to, from, 4);
}
__global__ void stage(const float* x, float* y) {
    __shared__ float tile[32];
    fetch(&tile[threadIdx.x], &x[threadIdx.x + 1]);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = tile[threadIdx.x];
}
"""


def test_a_finding_deep_in_cudas_headers_is_on_the_users_line_with_its_caller(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(SOURCE)
    (finding,) = load(file).run(VirtualGPU(threads=1)).run.findings
    place = finding.place
    assert place is not None and place.inlined_at is not None
    assert (finding.code, place.file, place.line) == ("M101", str(file), 6)
    assert (place.inlined_at.file, place.inlined_at.line, place.inlined_at.inlined_at) == (str(file), 10, None)
