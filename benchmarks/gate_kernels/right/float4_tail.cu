// Vectorised copies with a scalar head and tail: a tile of rows is one run of floats, whose aligned middle is read as
// float4 and whose ends, which odd D leaves unaligned, are read one by one.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    CAUSAL = 0
// weft: require   D <= 256
// weft: in        q    : f32[B, HQ, SQ, D] = normal
// weft: in        k, v : f32[B, HKV, SKV, D] = normal
// weft: out       o    : f32[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    float4_tail<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
#include <math_constants.h>

using T = float;

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

constexpr int WARPS = 4, TILE = 16, THREADS = 32 * WARPS;

// to[i] = from[i], 0 <= i < count.
__device__ void copy(float* to, const float* from, int count) {
    const int misaligned = int(reinterpret_cast<size_t>(from) / sizeof(float) % 4);
    const int head = min(count, (4 - misaligned) % 4), vectors = (count - head) / 4, tail = head + vectors * 4;
    for (int i = threadIdx.x; i < head; i += THREADS) to[i] = from[i];
    for (int i = threadIdx.x; i < vectors; i += THREADS) {
        const float4 four = *reinterpret_cast<const float4*>(from + head + i * 4);
        float* const at = to + head + i * 4;
        at[0] = four.x, at[1] = four.y, at[2] = four.z, at[3] = four.w;
    }
    for (int i = tail + threadIdx.x; i < count; i += THREADS) to[i] = from[i];
}

template <int D>
__global__ void __launch_bounds__(THREADS)
float4_tail(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    __shared__ float sK[TILE * D], sV[TILE * D];
    const int lane = threadIdx.x % 32, first_query = blockIdx.x * WARPS, query = first_query + threadIdx.x / 32;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const int most = visible_keys(min(first_query + WARPS, SQ) - 1, SQ, SKV);
    const int mine = query < SQ ? visible_keys(query, SQ, SKV) : 0;
    const size_t row = q_head * SQ + min(query, SQ - 1);
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    for (int first = 0; first < most; first += TILE) {
        __syncthreads();  // the tile before was read
        copy(sK, k + (kv_head * SKV + first) * D, min(TILE, most - first) * D);
        copy(sV, v + (kv_head * SKV + first) * D, min(TILE, most - first) * D);
        __syncthreads();
        for (int j = 0; j < min(TILE, mine - first); ++j) step<D>(ql, u, m, l, sK + j * D, sV + j * D, scale);
    }
    if (query >= SQ) return;

    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
