// The softmax of every row of x, one warp per row:
//     out[r, c] = exp(x[r, c] - m[r]) / l[r],   m[r] = max over c of x,   l[r] = sum over c of exp(x - m[r])
//
// weft: sizes   ROWS=37 COLUMNS=100
// weft: define  WARPS = 4
// weft: in      x   : f32[ROWS, COLUMNS] = normal
// weft: out     out : f32[ROWS, COLUMNS]
// weft: launch  softmax(x, out, ROWS, COLUMNS)  grid(cdiv(ROWS, WARPS)) block(32, WARPS)

#include <math_constants.h>

__device__ float warp_max(float value) {
    for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, step));
    return value;
}

__device__ float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
    return value;
}

__global__ void softmax(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
    const int row = blockIdx.x * WARPS + threadIdx.y;
    if (row >= rows) return;  // the whole warp leaves, so the shuffles below are complete
    x += row * columns;
    out += row * columns;

    float m = -CUDART_INF_F;
    for (int c = threadIdx.x; c < columns; c += 32) m = fmaxf(m, x[c]);
    m = warp_max(m);

    float l = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 32) l += expf(x[c] - m);
    l = warp_sum(l);

    for (int c = threadIdx.x; c < columns; c += 32) out[c] = expf(x[c] - m) / l;
}
