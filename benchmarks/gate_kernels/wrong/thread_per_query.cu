// One thread per query. The keys go in chunks of 256: a first sweep finds the chunk's largest score, a second one adds.
// Weights are rounded to ELEMENT, as tensor cores would take them.
//
// wrong 1 second_chunk: from the second chunk of 256 keys on, the first key of a chunk is skipped (seen at B=1 HQ=1 HKV=1 SQ=3 SKV=300 D=64 f16 none unit_normal)
// wrong 2 wide_halves: for D > 64 the columns go in two halves, and the second half of the scores ends a column early (seen at B=1 HQ=1 HKV=1 SQ=8 SKV=20 D=80 f16 none unit_normal)
// wrong 3 truncated: outputs are cut to 16 bits instead of rounded, a bias of half an ulp [bias] (seen at B=2 HQ=2 HKV=2 SQ=77 SKV=77 D=64 f16 none offsets)
// wrong 4 f32_through_half: float inputs are rounded to half when they are read (seen at B=1 HQ=1 HKV=1 SQ=8 SKV=20 D=32 f32 none unit_normal)
// wrong 5 bf16_as_half: the bits of bf16 inputs are read as half (seen at B=1 HQ=1 HKV=1 SQ=8 SKV=20 D=32 bf16 none unit_normal)
// wrong 6 first_max: the first chunk's largest score is kept, so later weights overflow half (seen at B=1 HQ=2 HKV=2 SQ=16 SKV=600 D=64 f16 none sorted_keys)
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  WRONG = 0
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  thread_per_query<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, 32), HQ, B) block(32)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr int CHUNK = 256;

__device__ float load(const half* x) { return __half2float(*x); }
__device__ float load(const float* x) { return WRONG == 4 ? __half2float(__float2half(*x)) : *x; }
__device__ float load(const __nv_bfloat16* x) {
    return WRONG == 5 ? __half2float(*reinterpret_cast<const half*>(x)) : __bfloat162float(*x);
}

__device__ void store(half* x, float value) { *x = WRONG == 3 ? __float2half_rz(value) : __float2half(value); }
__device__ void store(float* x, float value) { *x = value; }
__device__ void store(__nv_bfloat16* x, float value) {
    *x = WRONG == 3 ? __float2bfloat16_rz(value) : __float2bfloat16(value);
}

__device__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

template <int BEGIN, int END>
__device__ float dot(const float* q, const ELEMENT* k) {
    float sum = 0.0f;
#pragma unroll 8
    for (int d = BEGIN; d < END; ++d) sum += q[d] * load(k + d);
    return sum;
}

// Wide heads are summed in two halves, which halves the rounding error of a long chain.
template <int D>
__device__ float score(const float* q, const ELEMENT* k) {
    if constexpr (D > 64) return dot<0, D / 2>(q, k) + dot<D / 2, WRONG == 2 ? D - 1 : D>(q, k);
    return dot<0, D>(q, k);
}

template <int D>
__global__ void thread_per_query(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int HKV,
                                 int SQ, int SKV, float scale) {
    const int query = blockIdx.x * 32 + threadIdx.x, h = blockIdx.y, b = blockIdx.z;
    if (query >= SQ) return;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + query;
    const size_t kv = (size_t(b) * HKV + h / (gridDim.y / HKV)) * SKV * D;
    float q_row[D], u[D];
    for (int d = 0; d < D; ++d) q_row[d] = load(q + row * D + d), u[d] = 0.0f;
    float m = -CUDART_INF_F, l = 0.0f;
    const int visible = visible_keys(query, SQ, SKV);
    for (int first = 0; first < visible; first += CHUNK) {
        const int end = min(first + CHUNK, visible);
        float m_new = m;
        if (WRONG != 6 || first == 0)
            for (int key = first; key < end; ++key)
                m_new = fmaxf(m_new, score<D>(q_row, k + kv + size_t(key) * D) * scale);
        const float rescale = expf(m - m_new);
        for (int d = 0; d < D; ++d) u[d] *= rescale;
        l *= rescale;
        m = m_new;
        for (int key = first + (WRONG == 1 && first > 0); key < end; ++key) {
            const float s = score<D>(q_row, k + kv + size_t(key) * D) * scale;
            const float p = float(ELEMENT(expf(s - m)));
            for (int d = 0; d < D; ++d) u[d] += p * load(v + kv + size_t(key) * D + d);
            l += p;
        }
    }
    const float inverse = l == 0.0f ? 0.0f : 1.0f / l;
    for (int d = 0; d < D; ++d) store(o + row * D + d, u[d] * inverse);
    lse[row] = m + logf(l);
}
