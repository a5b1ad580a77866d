"""CUDA for sm_120a with 4- and 6-bit elements: CUDA's own conversions, a product with scales, rows with padding."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from weft import VirtualGPU
from weft.core.finding_codes import Severity
from weft.engines.kernel_file import FileRun, load
from weft.probes.tools import watch_for

CONVERT = """#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
// weft: in      x : f32[256] = normal
// weft: out     d : u8[512]
// weft: out     h : f16[128]
// weft: launch  convert(x, d, h) grid(1) block(64)
__global__ void convert(const float* x, unsigned char* d, __half* h) {
    const int i = threadIdx.x;
    const float2 pair = make_float2(x[2 * i], x[2 * i + 1]);
    d[i] = __nv_cvt_float2_to_fp4x2(pair, __NV_E2M1, cudaRoundNearest);
    const unsigned short six = __nv_cvt_float2_to_fp6x2(pair, __NV_E3M2, cudaRoundNearest);
    d[64 + 2 * i] = six & 255, d[65 + 2 * i] = six >> 8;
    const unsigned short scales = __nv_cvt_float2_to_e8m0x2(pair, __NV_SATFINITE, cudaRoundPosInf);
    d[192 + 2 * i] = scales & 255, d[193 + 2 * i] = scales >> 8;
    const __half2_raw back = __nv_cvt_fp4x2_to_halfraw2(d[i], __NV_E2M1);
    h[2 * i] = __half(__half_raw{back.x}), h[2 * i + 1] = __half(__half_raw{back.y});
    for (int j = 320 + i; j < 512; j += 64) d[j] = 0;
}
"""
PRODUCT = """// weft: in      a : u8[512]
// weft: in      b : u8[256]
// weft: in      sa : u8[64]
// weft: in      sb : u8[32]
// weft: out     c : f32[16, 8]
// weft: launch  multiply(a, b, sa, sb, c) grid(1) block(32)
__global__ void multiply(const unsigned char* a, const unsigned char* b, const unsigned char* sa,
                         const unsigned char* sb, float* c) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    const unsigned *x = (const unsigned*)a, *y = (const unsigned*)b;
    unsigned scale_a = ((const unsigned*)sa)[g + 8 * (t % 2)], scale_b = ((const unsigned*)sb)[g];
    float d[4];
    asm volatile("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10}, {%11}, {0, 0}, {%12}, {0, 0};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(x[8 * g + t]), "r"(x[8 * (g + 8) + t]), "r"(x[8 * g + t + 4]), "r"(x[8 * (g + 8) + t + 4]),
                   "r"(y[8 * g + t]), "r"(y[8 * g + t + 4]), "f"(0.0f), "r"(scale_a), "r"(scale_b));
    for (int i = 0; i < 4; ++i) c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = d[i];
}
"""
ROWS = """// weft: in      x : u32[64] = uniform(0, 1000000)
// weft: out     d : u32[32]
// weft: launch  rows(x, d) grid(1) block(32)
__global__ void rows(const unsigned* x, unsigned* d) {
    __shared__ alignas(16) unsigned tile[32];
    if (threadIdx.x < 8)
        for (int i = 0; i < WORDS; ++i) tile[4 * threadIdx.x + i] = x[WORDS * threadIdx.x + i];
    __syncwarp();
    unsigned got, at = (unsigned)__cvta_generic_to_shared(tile + 4 * (threadIdx.x % 8));
    asm volatile("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.SOURCE {%0}, [%1];" : "=r"(got) : "r"(at) : "memory");
    d[threadIdx.x] = got;
}
"""


def _run(folder: Path, text: str, **arrays: np.ndarray) -> FileRun:  # type: ignore[type-arg]
    file = folder / "kernel.cu"
    file.write_text(text)
    return load(file, arch="sm_120a").run(VirtualGPU("rtx5090"), arrays, watch=watch_for(["all"]))


def _codes(done: FileRun) -> set[str]:
    return {finding.code for finding in done.run.findings if finding.level is not Severity.INFO}


def test_conversions_of_cudas_headers(tmp_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal(256).astype(np.float32) * 3
    done = _run(tmp_path, CONVERT, x=x)
    assert _codes(done) == set()
    d, used = np.asarray(done.arrays["d"]), x[:128]
    four = used.astype(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(d[:64], four.view(np.uint8)[0::2] | four.view(np.uint8)[1::2] << 4)
    np.testing.assert_array_equal(d[64:192], used.astype(ml_dtypes.float6_e3m2fn).view(np.uint8))
    np.testing.assert_array_equal(d[192:320], np.ceil(np.log2(np.abs(used.astype(np.float64)))) + 127)
    np.testing.assert_array_equal(np.asarray(done.arrays["h"]), four.astype(np.float16))


def test_a_product_with_scales(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    counts = {"a": 16, "b": 8}
    values = {n: rng.standard_normal((rows, 64)).astype(ml_dtypes.float4_e2m1fn) for n, rows in counts.items()}
    scales = {n: rng.choice([0.5, 1.0, 1.5, 3.0], (rows, 4)) for n, rows in counts.items()}
    packed = {n: (v.view(np.uint8)[:, 0::2] | v.view(np.uint8)[:, 1::2] << 4).reshape(-1) for n, v in values.items()}
    codes = {f"s{n}": s.astype(ml_dtypes.float8_e4m3fn).view(np.uint8).reshape(-1) for n, s in scales.items()}
    done = _run(tmp_path, PRODUCT, **packed, **codes)
    assert _codes(done) == set()
    left, right = (values[n].astype(np.float64) * scales[n].repeat(16, 1) for n in "ab")
    np.testing.assert_array_equal(np.asarray(done.arrays["c"]), left @ right.T)


@pytest.mark.parametrize(("source", "words"), [("b4x16_p64", 2), ("b6x16_p32", 3)])
def test_padding_of_rows_need_not_be_written(source: str, words: int, tmp_path: Path) -> None:
    for written, expected in ((words, set()), (words - 1, {"I201"})):
        text = ROWS.replace("WORDS", str(written)).replace("SOURCE", source)
        assert _codes(_run(tmp_path, text)) == expected


def test_an_uninitialised_value_is_followed_through_a_conversion(tmp_path: Path) -> None:
    text = """#include <cuda_fp4.h>
// weft: out     d : u8[32]
// weft: launch  k(d) grid(1) block(32)
__global__ void k(unsigned char* d) {
    __shared__ float x[64];
    x[2 * threadIdx.x] = 1.0f;
    __syncthreads();
    const float2 pair = make_float2(x[2 * threadIdx.x], x[2 * threadIdx.x + 1]);
    d[threadIdx.x] = __nv_cvt_float2_to_fp4x2(pair, __NV_E2M1, cudaRoundNearest);
}
"""
    assert _codes(_run(tmp_path, text)) == {"I201"}
