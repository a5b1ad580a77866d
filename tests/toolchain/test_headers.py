"""The headers that a real kernel file includes."""

import pytest

from weft.core.errors import CompileError
from weft.toolchain import compile_cuda
from weft.toolchain.cuda_headers import before_the_file

C_LIBRARY = r"""
#include <stdint.h>
#include <cstdint>
#include <math.h>
#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <assert.h>
#include <stddef.h>
#include <string.h>
#include <stdlib.h>
#include "weft.h"
static_assert(sizeof(uint8_t) == 1 && sizeof(std::int64_t) == 8 && sizeof(uintptr_t) == 8, "widths");
static_assert(UINT32_MAX == 4294967295u && INT_MIN < -2147483647, "integers");
static_assert(FLT_MAX > 3.4e38f && DBL_EPSILON < 1e-15, "floats");
extern "C" __global__ void k(uint8_t* bytes, float* out, uint32_t n, ptrdiff_t step) {
    assert(n > 0);
    WEFT_REGION(bytes, 16, "q");
    WEFT_TAP(scores, out[0], n);
    float best = -INFINITY;
    if (isnan(out[0]) || isinf(out[1])) best = NAN;
    printf("%d %f\n", bytes[0], best);
    memcpy(out + step, out, 8);
    out[2] = fmaxf(best, expf(FLT_MIN)) + sqrtf(float(M_PI)) + powf(2.0f, out[3]);
}
"""

CUDA_TYPES = """
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>
__constant__ float scale[4];
extern "C" __global__ void __launch_bounds__(32) k(half* a, half* b, float* c, __nv_fp8_e4m3* q) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> acc;
    load_matrix_sync(fa, a, 16);
    load_matrix_sync(fb, b, 16);
    fill_fragment(acc, scale[1] + float(q[0]) + __bfloat162float(__float2bfloat16(c[0])));
    mma_sync(acc, fa, fb, acc);
    store_matrix_sync(c, acc, 16, mem_row_major);
}
"""

LIBRARY = """
#include <type_traits>
#include <utility>
#include <limits>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cassert>
#include <cfloat>
#include <cooperative_groups.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
template <class T> __global__ void k(T* out) {
    static_assert(std::is_same<T, float>::value && std::is_same_v<std::remove_pointer_t<T*>, T>, "");
    T value = std::numeric_limits<T>::infinity();
    std::swap(value, out[1]);
    out[0] = std::sqrt(value) + std::max(out[2], std::min(out[3], FLT_MAX)) + std::exp(out[4]);
    cg::thread_block block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    out[5] = warp.shfl_down(out[6], 1);
    block.sync();
}
"""


def test_the_c_library_a_kernel_uses() -> None:
    binary = compile_cuda(C_LIBRARY, name="c.cu")
    assert binary.diagnostics == ()
    assert "vprintf" in binary.ptx and "__assertfail" in binary.ptx
    assert "__assertfail" not in compile_cuda(C_LIBRARY, name="c.cu", defines={"NDEBUG": "1"}).ptx


def test_cuda_types_constant_memory_and_tensor_cores() -> None:
    ptx = compile_cuda(CUDA_TYPES, name="types.cu").ptx
    assert ".const .align 4 .b8 scale[16]" in ptx
    assert "wmma.mma.sync.aligned" in ptx and ".maxntid 32" in ptx


def test_std_and_cooperative_groups() -> None:
    binary = compile_cuda(LIBRARY, name="cg.cu", entries=["k<float>"])
    assert "shfl.sync.down" in binary.ptx and ("bar.sync" in binary.ptx or "barrier.sync" in binary.ptx)


@pytest.mark.parametrize("header", ["cuda.h", "cstring", "cstddef", "climits", "initializer_list"])
def test_light_headers_alone(header: str) -> None:
    compile_cuda(f"#include <{header}>\n__global__ void k() {{}}", name="h.cu")


WITHOUT_INCLUDES = """
__global__ void k(float* p, uint n) {
    float best = -INFINITY;
    for (int32_t i = 0; i < n && i < INT_MAX; ++i) best = fmaxf(best, std::sqrt(p[i]) * float(M_LOG2E));
    static_assert(std::is_same<float, std::remove_pointer_t<decltype(p)>>::value && CHAR_BIT == 8, "");
    p[n] = isinf(best) ? NAN : HUGE_VALF + best;
}
"""
"""nvcc accepts it unchanged: cuda_runtime.h, which it reads before the file, includes <math.h> and the others."""


def test_what_nvcc_includes_before_the_file() -> None:
    assert compile_cuda(WITHOUT_INCLUDES, name="k.cu").diagnostics == ()


def test_a_definition_in_the_file_takes_precedence() -> None:
    own = "#ifndef M_PI\n#define M_PI 3\n#endif\ntypedef unsigned int uint;\n"
    source = (
        own + "#include <limits.h>\n#include <stdint.h>\n__global__ void k(uint* p) { p[0] = M_PI > 3 ? INT_MAX : 0; }"
    )
    assert "2147483647" in compile_cuda(source, name="k.cu").ptx


def test_what_nvcc_does_not_include_is_still_missing() -> None:
    with pytest.raises(CompileError, match="FLT_MAX"):
        compile_cuda("__global__ void k(float* p) { p[0] = FLT_MAX; }", name="k.cu")


def test_a_plain_file_includes_no_library() -> None:
    assert before_the_file("__global__ void k(float* p) { p[0] = expf(p[1]); }") == ("math.h",)
