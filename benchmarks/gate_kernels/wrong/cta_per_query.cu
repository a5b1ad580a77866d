// One CTA of 128 threads per query. Threads share the keys of a block of 1,024 for the scores, which are in shared
// memory, and the columns for the output.
//
// wrong 1 second_block: beyond 1,024 keys U is not rescaled to the new maximum (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=1100 D=16 f16 none sorted_keys)
// wrong 2 flushed: outputs below 2e-5 are flushed to zero (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=20 D=64 f16 none denormals)
// wrong 3 second_column: a thread's second column, from D = 129 on, is stored without the division by l (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=20 D=136 f16 none unit_normal)
// wrong 4 key_in_16_bits: the number of a key is kept in 16 bits (seen at B=1 HQ=1 HKV=1 SQ=1 SKV=65700 D=4 f16 none sorted_keys)
// wrong 5 kv_offset_in_ints: the offset of a row of K and V is a product of ints, which overflows from 2^31 elements on [overflow]
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
// weft: launch  cta_per_query(q, k, v, o, lse, HKV, SQ, SKV, D, scale)
// weft:         grid(SQ, HQ, B) block(128) shared(4 * D)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr int BLOCK = 1024, THREADS = 128;

// The sum or the maximum over the CTA, the same in every thread.
template <bool MAX>
__device__ float over_cta(float x) {
    __shared__ float of_warp[THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(~0u, x, offset);
        x = MAX ? fmaxf(x, other) : x + other;
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = of_warp[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) x = MAX ? fmaxf(x, of_warp[warp]) : x + of_warp[warp];
    __syncthreads();
    return x;
}

__device__ size_t kv_row(int b, int h, int key, int HKV, int SKV, int D) {
    const int kv_head = b * HKV + h / int(gridDim.y / HKV);
    if (WRONG == 5) return (kv_head * SKV + key) * D;
    return (size_t(kv_head) * SKV + key) * D;
}

__global__ void cta_per_query(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int HKV,
                              int SQ, int SKV, int D, float scale) {
    extern __shared__ float u[];
    __shared__ float weights[BLOCK];
    const int thread = threadIdx.x, query = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + query;
    int end = SKV;
    if (CAUSAL) end = max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
    for (int d = thread; d < D; d += THREADS) u[d] = 0.0f;

    float m = -CUDART_INF_F, l = 0.0f;
    for (int first = 0; first < end; first += BLOCK) {
        const int keys = min(BLOCK, end - first);
        float m_new = m, sum = 0.0f;
        for (int i = thread; i < keys; i += THREADS) {
            const int key = WRONG == 4 ? static_cast<unsigned short>(first + i) : first + i;
            const ELEMENT* const k_row = k + kv_row(b, h, key, HKV, SKV, D);
            float s = 0.0f;
            for (int d = 0; d < D; ++d) s += float(q[row * D + d]) * float(k_row[d]);
            weights[i] = s * scale;
            m_new = fmaxf(m_new, s * scale);
        }
        m_new = over_cta<true>(m_new);
        for (int i = thread; i < keys; i += THREADS) sum += weights[i] = expf(weights[i] - m_new);
        const float rescale = expf(m - m_new);
        l = l * rescale + over_cta<false>(sum);  // its barriers publish the weights
        m = m_new;
        for (int d = thread; d < D; d += THREADS) {
            float products = 0.0f;
            for (int i = 0; i < keys; ++i)
                products += weights[i] * float(v[kv_row(b, h, first + i, HKV, SKV, D) + d]);
            u[d] = (WRONG == 1 ? u[d] : u[d] * rescale) + products;
        }
        __syncthreads();
    }
    const float inverse = l == 0.0f ? 0.0f : 1.0f / l;
    for (int d = thread; d < D; d += THREADS) {
        float out = u[d] * (WRONG == 3 && d >= THREADS ? 1.0f : inverse);
        if (WRONG == 2 && fabsf(out) < 2e-5f) out = 0.0f;
        o[row * D + d] = ELEMENT(out);
    }
    if (thread == 0) lse[row] = m + logf(l);
}
