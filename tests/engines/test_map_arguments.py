"""Tensor maps in launch lines: a CUDA kernel that copies a tile by TMA, and lines that are refused."""

from pathlib import Path

import numpy as np
import pytest

from weft.core.errors import WeftError
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.probes.tools import watch_for

KERNEL = """
// weft: sizes   S=20 D=64
// weft: in      x : f16[S, D] = normal
// weft: out     y : f16[32, D]
// weft: launch  tile({map}, y) grid(2) block(128)
#include <cuda_fp16.h>
struct alignas(64) Map {{ unsigned char bytes[128]; }};

__global__ void tile(const __grid_constant__ Map map, half* y) {{
    __shared__ alignas(1024) half box[16 * 64];
    __shared__ unsigned long long bar;
    const unsigned at = (unsigned)__cvta_generic_to_shared(&bar), to = (unsigned)__cvta_generic_to_shared(box);
    if (threadIdx.x == 0) {{
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2048;" ::"r"(at));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {{%2, %3}}], [%4];"
                     ::"r"(to), "l"(&map), "r"(0), "r"(16 * (int)blockIdx.x), "r"(at) : "memory");
    }}
    __syncthreads();
    asm volatile("{{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra L; }}" ::"r"(at));
    for (int i = threadIdx.x; i < 16 * 64; i += 128) {{
        const int row = i / 64, column = i % 64;
        y[16 * 64 * blockIdx.x + i] = box[64 * row + (column ^ 8 * (row % 8))];  // the swizzle of 128 bytes
    }}
}}
"""


@pytest.mark.parametrize("extra", ["", ", shape=(S, D)", ", fill=zero"])
def test_a_kernel_copies_tiles_by_the_map_of_its_line(tmp_path: Path, extra: str) -> None:
    file = tmp_path / "tile.cu"
    file.write_text(KERNEL.format(map=f"tensormap(x, box=(16, D), swizzle=128{extra})"))
    done = load(file, gpu="h100").run(VirtualGPU("h100"), watch=watch_for(["all"]))
    assert done.run.findings == ()
    x = np.asarray(done.arrays["x"])
    np.testing.assert_array_equal(np.asarray(done.arrays["y"]), np.concatenate([x, np.zeros((12, 64), x.dtype)]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tensormap(x, swizzle=128)", "the box is missing"),
        ("tensormap(z, box=(16, D))", "z"),
        ("tensormap(x, box=(16, D), swizzle=48)", "0, 32, 64 or 128"),
        ("tensormap(x, box=(16, D), shape=(S, 2 * D))", "elements"),
        ("tensormap(x, box=(16,))", "dimensions"),
        ("tensormap(x, box=(16, D), colour=1)", "not colour"),
        ("x", "array"),
    ],
)
def test_wrong_maps_are_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "tile.cu"
    file.write_text(KERNEL.format(map=text))
    with pytest.raises(WeftError, match=words):
        load(file, gpu="h100").run(VirtualGPU("h100"))
