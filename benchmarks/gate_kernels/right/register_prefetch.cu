// Software pipelining in registers: while a tile in shared memory is used, the next one is loaded into registers and
// stored after the barrier; it has no causal mask.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: require   D <= 256
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    register_prefetch<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using T = ELEMENT;

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

constexpr int WARPS = 4, TILE = 8, THREADS = 32 * WARPS;

template <int D>
__global__ void __launch_bounds__(THREADS)
register_prefetch(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32, PER_THREAD = (TILE * D + THREADS - 1) / THREADS;
    __shared__ T sK[TILE * D], sV[TILE * D];
    const int lane = threadIdx.x % 32, query = blockIdx.x * WARPS + threadIdx.x / 32;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + min(query, SQ - 1);
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    T next_k[PER_THREAD], next_v[PER_THREAD];
    const auto fetch = [&](int first) {
        for (int i = 0; i < PER_THREAD; ++i) {
            const int at = i * THREADS + threadIdx.x;
            if (at >= min(TILE, SKV - first) * D) break;
            next_k[i] = k[(kv_head * SKV + first) * D + at];
            next_v[i] = v[(kv_head * SKV + first) * D + at];
        }
    };
    fetch(0);
    for (int first = 0; first < SKV; first += TILE) {
        const int keys = min(TILE, SKV - first);
        __syncthreads();  // the tile before was read
        for (int i = 0; i < PER_THREAD; ++i) {
            const int at = i * THREADS + threadIdx.x;
            if (at < keys * D) sK[at] = next_k[i], sV[at] = next_v[i];
        }
        __syncthreads();
        if (first + TILE < SKV) fetch(first + TILE);
        for (int j = 0; j < keys; ++j) step<D>(ql, u, m, l, sK + j * D, sV + j * D, scale);
    }
    if (query >= SQ) return;

    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
