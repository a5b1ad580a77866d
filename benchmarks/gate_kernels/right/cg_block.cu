// Cooperative groups over a whole CTA: one CTA per query, the threads share the keys of a chunk, cg::reduce gives
// each warp's maximum and sum, and block.sync() separates the chunk's steps.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    cg_block<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(SQ, HQ, B) block(64)
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
constexpr int THREADS = 64;

template <int D>
__global__ void __launch_bounds__(THREADS)
cg_block(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    __shared__ float sQ[D], sU[D], sP[THREADS], warp_top[THREADS / 32], warp_total[THREADS / 32];
    const cg::thread_block block = cg::this_thread_block();
    const auto warp = cg::tiled_partition<32>(block);
    const int t = block.thread_rank(), query = blockIdx.x;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    for (int d = t; d < D; d += THREADS) {
        sQ[d] = float(q[row * D + d]);
        sU[d] = 0.0f;
    }
    block.sync();
    float m = -CUDART_INF_F, l = 0.0f;
    const int end = visible_keys(query, SQ, SKV);
    for (int first = 0; first < end; first += THREADS) {
        float s = -CUDART_INF_F;
        if (first + t < end) {
            s = 0.0f;
            for (int d = 0; d < D; ++d) s += sQ[d] * float(k[(kv_head * SKV + first + t) * D + d]);
            s *= scale;
        }
        const float top = cg::reduce(warp, s, cg::greater<float>());
        if (warp.thread_rank() == 0) warp_top[warp.meta_group_rank()] = top;
        block.sync();
        const float m_new = fmaxf(m, fmaxf(warp_top[0], warp_top[1])), rescale = expf(m - m_new), p = expf(s - m_new);
        const float total = cg::reduce(warp, p, cg::plus<float>());
        if (warp.thread_rank() == 0) warp_total[warp.meta_group_rank()] = total;
        sP[t] = p;
        block.sync();
        l = l * rescale + warp_total[0] + warp_total[1];
        m = m_new;
        for (int d = t; d < D; d += THREADS) {
            float u = sU[d] * rescale;
            for (int j = 0; j < min(THREADS, end - first); ++j)
                u += sP[j] * float(v[(kv_head * SKV + first + j) * D + d]);
            sU[d] = u;
        }
        block.sync();
    }
    for (int d = t; d < D; d += THREADS) o[row * D + d] = T(l > 0.0f ? sU[d] / l : 0.0f);
    if (t == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
