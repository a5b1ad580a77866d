// cuda::pipeline of two stages with cuda::memcpy_async: while the CTA works on one tile of keys and values, the next
// is on its way.
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
// weft: launch    pipelined<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cooperative_groups.h>
#include <cuda/pipeline>
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

constexpr int TILE = 8, STAGES = 2, WARPS = 4, THREADS = 32 * WARPS;

template <int D>
__global__ void __launch_bounds__(THREADS)
pipelined(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    __shared__ alignas(16) T sK[STAGES][TILE][D], sV[STAGES][TILE][D];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    const auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const int lane = threadIdx.x % 32, first_query = blockIdx.x * WARPS, query = first_query + threadIdx.x / 32;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const int most = visible_keys(min(first_query + WARPS, SQ) - 1, SQ, SKV);  // the last query sees the most
    const int tiles = (most + TILE - 1) / TILE, mine = query < SQ ? visible_keys(query, SQ, SKV) : 0;
    const size_t row = q_head * SQ + min(query, SQ - 1);
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;

    const auto fetch = [&](int tile) {
        const size_t at = (kv_head * SKV + tile * TILE) * D, bytes = sizeof(T) * min(TILE, most - tile * TILE) * D;
        pipe.producer_acquire();
        cuda::memcpy_async(block, &sK[tile % STAGES][0][0], k + at, bytes, pipe);
        cuda::memcpy_async(block, &sV[tile % STAGES][0][0], v + at, bytes, pipe);
        pipe.producer_commit();
    };
    if (tiles > 0) fetch(0);
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) fetch(tile + 1);
        pipe.consumer_wait();
        for (int j = 0; j < min(TILE, mine - tile * TILE); ++j)
            step<D>(ql, u, m, l, sK[tile % STAGES][j], sV[tile % STAGES][j], scale);
        pipe.consumer_release();
    }
    if (query >= SQ) return;

    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
