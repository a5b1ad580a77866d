// Warp specialisation with named barriers: one producer warp fills two tiles of K and V in turn, three consumer warps
// read them; bar.arrive and bar.sync on one full and one empty barrier per tile order them.
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
// weft: launch    named_barriers<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 3), HQ, B) block(128)
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

constexpr int TILE = 8, CONSUMERS = 3, THREADS = 32 * (CONSUMERS + 1), FULL = 1, EMPTY = 3;  // ids FULL + stage ...

__device__ void barrier_sync(int id) { asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory"); }
__device__ void barrier_arrive(int id) {
    __threadfence_block();
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

template <int D>
__global__ void __launch_bounds__(THREADS)
named_barriers(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    __shared__ T sK[2][TILE][D], sV[2][TILE][D];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first_query = blockIdx.x * CONSUMERS;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const int most = visible_keys(min(first_query + CONSUMERS, SQ) - 1, SQ, SKV);  // the last query sees the most
    const int tiles = (most + TILE - 1) / TILE;

    if (warp == CONSUMERS) {  // the producer
        for (int tile = 0; tile < tiles; ++tile) {
            const int stage = tile % 2, keys = min(TILE, most - tile * TILE);
            if (tile >= 2) barrier_sync(EMPTY + stage);
            const size_t at = (kv_head * SKV + tile * TILE) * D;
            for (int i = lane; i < keys * D; i += 32) {
                sK[stage][i / D][i % D] = k[at + i];
                sV[stage][i / D][i % D] = v[at + i];
            }
            barrier_arrive(FULL + stage);
        }
        return;
    }
    const int query = first_query + warp, mine = query < SQ ? visible_keys(query, SQ, SKV) : 0;
    const size_t row = q_head * SQ + query;
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i)
        ql[i] = query < SQ && i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % 2;
        barrier_sync(FULL + stage);
        for (int j = 0; j < min(TILE, mine - tile * TILE); ++j)
            step<D>(ql, u, m, l, sK[stage][j], sV[stage][j], scale);
        if (tile + 2 < tiles) barrier_arrive(EMPTY + stage);  // only where the producer will wait for it
    }
    if (query >= SQ) return;

    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
