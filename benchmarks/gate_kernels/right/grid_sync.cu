// Two phases in one cooperative launch: all CTAs leave partial results of key halves in a workspace, grid.sync(),
// then all merge them.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: workspace part : f32[B, HQ, SQ, 2, D + 2]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    two_phases<{D}>(q, k, v, o, lse, part, B, HQ, HKV, SQ, SKV, scale) grid(8) block(64)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cooperative_groups.h>
#include <math_constants.h>

using T = ELEMENT;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

__device__ __forceinline__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

// One key: score s of this warp's query; every lane holds the columns lane, lane + 32 ...
template <int D, int PER_LANE>
__device__ __forceinline__ void step(const float (&ql)[PER_LANE], float (&u)[PER_LANE], float& m, float& l,
                                     const T* k_row, const T* v_row, float scale) {
    const int lane = threadIdx.x % 32;
    float s = 0.0f;
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) s += ql[i] * float(k_row[i * 32 + lane]);
    s = warp_sum(s) * scale;
    const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) u[i] = u[i] * rescale + p * float(v_row[i * 32 + lane]);
    l = l * rescale + p;
    m = m_new;
}

namespace cg = cooperative_groups;
constexpr int SPLITS = 2;

template <int D>
__global__ void __launch_bounds__(64)
two_phases(const T* q, const T* k, const T* v, T* o, float* lse, float* part, int B, int HQ, int HKV, int SQ, int SKV,
           float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    const int lane = threadIdx.x % 32, warps = gridDim.x * 2, first = blockIdx.x * 2 + threadIdx.x / 32;
    const int rows = B * HQ * SQ, per_split = (SKV + SPLITS - 1) / SPLITS;
    for (int item = first; item < rows * SPLITS; item += warps) {
        const int row_number = item / SPLITS, split = item % SPLITS, query = row_number % SQ;
        const int h = row_number / SQ % HQ, b = row_number / SQ / HQ;
        const size_t row = row_number, kv_head = size_t(b) * HKV + h / (HQ / HKV);
        float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
        for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
        const int end = min((split + 1) * per_split, visible_keys(query, SQ, SKV));
        for (int key = split * per_split; key < end; ++key)
            step<D>(ql, u, m, l, k + (kv_head * SKV + key) * D, v + (kv_head * SKV + key) * D, scale);
        float* const own = part + (row * SPLITS + split) * (D + 2);  // u[0 .. D), m, l
        for (int i = 0; i < PER_LANE; ++i)
            if (i * 32 + lane < D) own[i * 32 + lane] = u[i];
        if (lane == 0) own[D] = m, own[D + 1] = l;
    }
    cg::this_grid().sync();
    for (int row_number = first; row_number < rows; row_number += warps) {
        const size_t row = row_number;
        const float* const a = part + row * SPLITS * (D + 2);
        const float* const c = a + D + 2;
        const float top = fmaxf(a[D], c[D]), shift = top == -CUDART_INF_F ? 0.0f : top;
        const float wa = expf(a[D] - shift), wc = expf(c[D] - shift), l = wa * a[D + 1] + wc * c[D + 1];
        for (int d = lane; d < D; d += 32) o[row * D + d] = T(l > 0.0f ? (wa * a[d] + wc * c[d]) / l : 0.0f);
        if (lane == 0) lse[row] = l > 0.0f ? top + logf(l) : -CUDART_INF_F;
    }
}
