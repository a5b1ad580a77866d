// Grouped queries packed: one CTA serves all query heads of a key head, its rows are (query, head of the group)
// pairs, and every tile of K and V is loaded once for all of them.
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
// weft: launch    gqa_packed<{D}>(q, k, v, o, lse, HQ // HKV, SQ, SKV, scale)
// weft:           grid(cdiv(SQ * HQ // HKV, 8), HKV, B) block(256)
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

constexpr int WARPS = 8, TILE = 8, THREADS = 32 * WARPS;

template <int D>
__global__ void __launch_bounds__(THREADS)
gqa_packed(const T* q, const T* k, const T* v, T* o, float* lse, int group, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    __shared__ T sK[TILE][D], sV[TILE][D];
    const int lane = threadIdx.x % 32, HKV = gridDim.y, h = blockIdx.y, b = blockIdx.z;
    const int packed = blockIdx.x * WARPS + threadIdx.x / 32, last = group * SQ - 1;  // query = packed / group
    const int query = min(packed, last) / group, head = h * group + min(packed, last) % group;
    const size_t kv_head = size_t(b) * HKV + h, row = (size_t(b) * HKV * group + head) * SQ + query;
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    const int mine = packed <= last ? visible_keys(query, SQ, SKV) : 0;
    const int most = visible_keys(min(int(blockIdx.x + 1) * WARPS - 1, last) / group, SQ, SKV);
    for (int first = 0; first < most; first += TILE) {
        const size_t at = (kv_head * SKV + first) * D;
        __syncthreads();  // the tile before was read
        for (int i = threadIdx.x; i < min(TILE, most - first) * D; i += THREADS) {
            sK[i / D][i % D] = k[at + i];
            sV[i / D][i % D] = v[at + i];
        }
        __syncthreads();
        for (int j = 0; j < min(TILE, mine - first); ++j) step<D>(ql, u, m, l, sK[j], sV[j], scale);
    }
    if (packed > last) return;

    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
