// P = softmax of the rows of S: one warp per row. The kernel of docs/howto/add_task.md.
//
// weft: sizes   B=1 H=2 SQ=20 SKV=100
// weft: in      s : f32[B, H, SQ, SKV] = normal
// weft: out     p : f32[B, H, SQ, SKV]
// weft: launch  softmax_rows(s, p, B * H * SQ, SKV) grid(B * H * SQ) block(32)

#include <math_constants.h>

constexpr unsigned ALL_LANES = 0xffffffffu;

extern "C" __global__ void softmax_rows(const float* s, float* p, int rows, int columns) {
    const float* row = s + static_cast<size_t>(blockIdx.x) * columns;
    float m = -CUDART_INF_F, l = 0.0f;
    for (int j = threadIdx.x; j < columns; j += 32) m = fmaxf(m, row[j]);
    for (int offset = 16; offset > 0; offset /= 2) m = fmaxf(m, __shfl_xor_sync(ALL_LANES, m, offset));
    for (int j = threadIdx.x; j < columns; j += 32) l += expf(row[j] - m);
    for (int offset = 16; offset > 0; offset /= 2) l += __shfl_xor_sync(ALL_LANES, l, offset);
    for (int j = threadIdx.x; j < columns; j += 32) p[static_cast<size_t>(blockIdx.x) * columns + j] = expf(row[j] - m) / l;
}
