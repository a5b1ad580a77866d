// Split keys with a semaphore: every CTA of a query leaves its part in a workspace, and the one that counts last
// merges them all and resets the counter.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: workspace part : f32[B, HQ, SQ, 3, D + 2]
// weft: workspace counter : u32[B, HQ, SQ]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    clear(counter) grid(B * HQ * SQ) block(1)
// weft: launch    split_and_merge<{D}>(q, k, v, o, lse, part, counter, HKV, SQ, SKV, scale)
// weft:           grid(SQ, HQ, B * 3) block(32)
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

constexpr int SPLITS = 3;

__global__ void clear(unsigned* counter) { counter[blockIdx.x] = 0; }

template <int D>
__global__ void __launch_bounds__(32)
split_and_merge(const T* q, const T* k, const T* v, T* o, float* lse, float* part, unsigned* counter, int HKV, int SQ,
                int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    const int lane = threadIdx.x, query = blockIdx.x, h = blockIdx.y, HQ = gridDim.y;
    const int b = blockIdx.z / SPLITS, split = blockIdx.z % SPLITS, per_split = (SKV + SPLITS - 1) / SPLITS;
    const size_t kv_head = size_t(b) * HKV + h / (HQ / HKV), row = (size_t(b) * HQ + h) * SQ + query;
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    const int end = min((split + 1) * per_split, visible_keys(query, SQ, SKV));
    for (int key = split * per_split; key < end; ++key)
        step<D>(ql, u, m, l, k + (kv_head * SKV + key) * D, v + (kv_head * SKV + key) * D, scale);

    float* const own = part + (row * SPLITS + split) * (D + 2);  // u[0 .. D), m, l
    for (int d = lane; d < D; d += 32) own[d] = u[d / 32];
    if (lane == 0) own[D] = m, own[D + 1] = l;
    __threadfence();
    __syncthreads();
    __shared__ bool last;
    if (lane == 0) last = atomicAdd(&counter[row], 1u) == SPLITS - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();  // what the others left before they counted is seen from here on

    const float* const parts = part + row * SPLITS * (D + 2);
    float top = -CUDART_INF_F, sum = 0.0f;
    for (int s = 0; s < SPLITS; ++s) top = fmaxf(top, parts[s * (D + 2) + D]);
    const float shift = top == -CUDART_INF_F ? 0.0f : top;
    for (int s = 0; s < SPLITS; ++s) sum += expf(parts[s * (D + 2) + D] - shift) * parts[s * (D + 2) + D + 1];
    for (int d = lane; d < D; d += 32) {
        float total = 0.0f;
        for (int s = 0; s < SPLITS; ++s) total += expf(parts[s * (D + 2) + D] - shift) * parts[s * (D + 2) + d];
        o[row * D + d] = T(sum > 0.0f ? total / sum : 0.0f);
    }
    if (lane == 0) {
        lse[row] = sum > 0.0f ? top + logf(sum) : -CUDART_INF_F;
        counter[row] = 0;
    }
}
