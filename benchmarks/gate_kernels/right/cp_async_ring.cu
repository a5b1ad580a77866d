// A ring of four tiles filled by all threads with cp.async, one commit group per tile, wait_group 2 before a tile is
// read; partial tiles are filled with zeros by the copy's source size.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    CAUSAL = 0
// weft: require   D % 2 == 0 : copies of 4 bytes
// weft: require   D <= 256
// weft: in        q    : f16[B, HQ, SQ, D] = normal
// weft: in        k, v : f16[B, HKV, SKV, D] = normal
// weft: out       o    : f16[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    cp_async_ring<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
#include <cuda_fp16.h>
#include <math_constants.h>

using T = half;

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

constexpr int TILE = 8, STAGES = 4, WARPS = 4, THREADS = 32 * WARPS;

template <int D>
__device__ void fetch(T (*to)[D], const T* head, int first, int rows) {
    for (int i = threadIdx.x; i < TILE * (D / 2); i += THREADS) {
        const int r = i / (D / 2), c = i % (D / 2) * 2, there = first + r < rows ? 4 : 0;
        const unsigned at = unsigned(__cvta_generic_to_shared(&to[r][c]));
        const T* const from = head + size_t(there ? first + r : 0) * D + c;
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(there) : "memory");
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS)
cp_async_ring(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    __shared__ alignas(16) T sK[STAGES][TILE][D], sV[STAGES][TILE][D];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first_query = blockIdx.x * WARPS;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const T* const keys = k + kv_head * SKV * D;
    const T* const values = v + kv_head * SKV * D;
    const int most = visible_keys(min(first_query + WARPS, SQ) - 1, SQ, SKV);  // the last query sees the most
    const int tiles = (most + TILE - 1) / TILE;
    const int query = first_query + warp, mine = query < SQ ? visible_keys(query, SQ, SKV) : 0;
    const size_t row = q_head * SQ + query;
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i)
        ql[i] = query < SQ && i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;

    for (int tile = 0; tile < STAGES - 1; ++tile) {  // a group is committed for every tile, also an empty one
        if (tile < tiles) fetch<D>(sK[tile], keys, tile * TILE, SKV), fetch<D>(sV[tile], values, tile * TILE, SKV);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (int tile = 0; tile < tiles; ++tile) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // this tile has landed for all threads, and the stage filled below was read by all
        const int next = tile + STAGES - 1, to = next % STAGES, stage = tile % STAGES;
        if (next < tiles) fetch<D>(sK[to], keys, next * TILE, SKV), fetch<D>(sV[to], values, next * TILE, SKV);
        asm volatile("cp.async.commit_group;" ::: "memory");
        for (int j = 0; j < min(TILE, mine - tile * TILE); ++j)
            step<D>(ql, u, m, l, sK[stage][j], sV[stage][j], scale);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    if (query >= SQ) return;

    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
