// All arguments in one struct, the keys cut into chunks of 256 whose number depends on the length, and a second
// launch that merges them where there is more than one chunk.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    CHUNKS = cdiv(SKV, 256)
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: workspace part : f32[B, HQ, SQ, CHUNKS, D + 2]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    chunk_attention<{D}>({q, k, v, o, lse, part, HQ, HKV, SQ, SKV, CHUNKS, scale})
// weft:           grid(SQ, CHUNKS, B * HQ) block(32)
// weft: launch    merge<{D}>({q, k, v, o, lse, part, HQ, HKV, SQ, SKV, CHUNKS, scale})
// weft:           grid(SQ, B * HQ) block(32) when(CHUNKS > 1)
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

constexpr int CHUNK = 256;

struct Call {
    const T *q, *k, *v;
    T* o;
    float *lse, *part;
    int HQ, HKV, SQ, SKV, chunks;
    float scale;
};

template <int D>
__global__ void __launch_bounds__(32) chunk_attention(Call c) {
    constexpr int PER_LANE = (D + 31) / 32;
    const int lane = threadIdx.x, query = blockIdx.x, chunk = blockIdx.y, b = blockIdx.z / c.HQ, h = blockIdx.z % c.HQ;
    const size_t row = size_t(blockIdx.z) * c.SQ + query, kv_head = size_t(b) * c.HKV + h / (c.HQ / c.HKV);
    const T* const q = c.q;
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    for (int key = chunk * CHUNK; key < min((chunk + 1) * CHUNK, visible_keys(query, c.SQ, c.SKV)); ++key)
        step<D>(ql, u, m, l, c.k + (kv_head * c.SKV + key) * D, c.v + (kv_head * c.SKV + key) * D, c.scale);
    if (c.chunks > 1) {
        float* const own = c.part + (row * c.chunks + chunk) * (D + 2);  // u[0 .. D), m, l
        for (int i = 0; i < PER_LANE; ++i)
            if (i * 32 + lane < D) own[i * 32 + lane] = u[i];
        if (lane == 0) own[D] = m, own[D + 1] = l;
        return;
    }
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) c.o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) c.lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}

template <int D>
__global__ void __launch_bounds__(32) merge(Call c) {
    const size_t row = size_t(blockIdx.y) * c.SQ + blockIdx.x;
    const float* const parts = c.part + row * c.chunks * (D + 2);
    float top = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < c.chunks; ++i) top = fmaxf(top, parts[i * (D + 2) + D]);
    const float shift = top == -CUDART_INF_F ? 0.0f : top;
    for (int i = 0; i < c.chunks; ++i) l += expf(parts[i * (D + 2) + D] - shift) * parts[i * (D + 2) + D + 1];
    for (int d = threadIdx.x; d < D; d += 32) {
        float u = 0.0f;
        for (int i = 0; i < c.chunks; ++i) u += expf(parts[i * (D + 2) + D] - shift) * parts[i * (D + 2) + d];
        c.o[row * D + d] = T(l > 0.0f ? u / l : 0.0f);
    }
    if (threadIdx.x == 0) c.lse[row] = l > 0.0f ? top + logf(l) : -CUDART_INF_F;
}
