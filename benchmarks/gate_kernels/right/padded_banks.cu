// Shared tiles padded by one column: K is kept as [32 keys][D + 1], so that 32 lanes with one key each read 32
// different banks; four warps with one query each share the tile.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: require   D <= 256
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    padded_banks<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
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

__device__ __forceinline__ float warp_max(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

constexpr int WARPS = 4, TILE = 32;

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
padded_banks(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    __shared__ float sK[TILE][D + 1], sQ[WARPS][D];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first_query = blockIdx.x * WARPS;
    const int query = min(first_query + warp, SQ - 1);  // a warp without a query does the last one again, and keeps it
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    for (int d = lane; d < D; d += 32) sQ[warp][d] = float(q[row * D + d]);
    float u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    const int mine = visible_keys(query, SQ, SKV), most = visible_keys(min(first_query + WARPS, SQ) - 1, SQ, SKV);
    for (int first = 0; first < most; first += TILE) {
        const int keys = min(TILE, SKV - first);
        __syncthreads();
        for (int i = threadIdx.x; i < keys * D; i += 32 * WARPS)
            sK[i / D][i % D] = float(k[(kv_head * SKV + first) * D + i]);
        __syncthreads();
        if (first >= mine) continue;  // the whole warp
        float s = 0.0f;
        if (lane < keys)
            for (int d = 0; d < D; ++d) s += sQ[warp][d] * sK[lane][d];
        s = first + lane < mine ? s * scale : -CUDART_INF_F;
        const float m_new = fmaxf(m, warp_max(s)), rescale = expf(m - m_new), p = expf(s - m_new);
        l = l * rescale + warp_sum(p);
        m = m_new;
        for (int i = 0; i < PER_LANE; ++i) u[i] *= rescale;
        for (int j = 0; j < min(TILE, mine - first); ++j) {
            const float weight = __shfl_sync(0xffffffffu, p, j);
            for (int i = 0; i < PER_LANE; ++i)
                if (i * 32 + lane < D) u[i] += weight * float(v[(kv_head * SKV + first + j) * D + i * 32 + lane]);
        }
    }
    if (first_query + warp >= SQ) return;

    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
