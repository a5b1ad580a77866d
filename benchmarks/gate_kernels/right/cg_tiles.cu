// Cooperative groups: tiles of 16 lanes own a query each, sum their products with cg::reduce and stride the columns
// by their rank.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    cg_tiles<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(64)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <math_constants.h>

using T = ELEMENT;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

namespace cg = cooperative_groups;

template <int D>
__global__ void __launch_bounds__(64)
cg_tiles(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 15) / 16;
    const cg::thread_block block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<16>(block);
    const int lane = tile.thread_rank(), query = blockIdx.x * 4 + tile.meta_group_rank();
    if (query >= SQ) return;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 16 + lane < D ? float(q[row * D + i * 16 + lane]) : 0.0f;
    for (int key = 0; key < visible_keys(query, SQ, SKV); ++key) {
        const size_t at = (kv_head * SKV + key) * D;
        float s = 0.0f;
        for (int i = 0; i < PER_LANE; ++i)
            if (i * 16 + lane < D) s += ql[i] * float(k[at + i * 16 + lane]);
        s = cg::reduce(tile, s, cg::plus<float>()) * scale;
        const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
        for (int i = 0; i < PER_LANE; ++i)
            if (i * 16 + lane < D) u[i] = u[i] * rescale + p * float(v[at + i * 16 + lane]);
        l = l * rescale + p;
        m = m_new;
    }
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 16 + lane < D) o[row * D + i * 16 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
