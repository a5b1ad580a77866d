// The exponential as a polynomial on FMA units: 2^x is split into a whole part, which goes into the exponent's bits,
// and a fraction in [-1/2, 1/2] by Cody and Waite, whose power is a polynomial of degree 7.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    polynomial<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
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

// 2^x for x <= 0, -inf included, to about one ulp. Below 2^-126 it is 0: such a weight is nothing next to 1.
__device__ __forceinline__ float polynomial_exp2(float x) {
    if (x < -126.0f) return 0.0f;
    const float whole = rintf(x), f = x - whole;  // exact
    float p = 1.5252734e-5f;                      // (ln 2)^n / n!
    p = fmaf(p, f, 1.5403530e-4f);
    p = fmaf(p, f, 1.3333558e-3f);
    p = fmaf(p, f, 9.6181291e-3f);
    p = fmaf(p, f, 5.5504109e-2f);
    p = fmaf(p, f, 2.4022651e-1f);
    p = fmaf(p, f, 6.9314718e-1f);
    p = fmaf(p, f, 1.0f);
    return p * __int_as_float((int(whole) + 127) << 23);
}

template <int D>
__global__ void __launch_bounds__(128)
polynomial(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;  // columns of a lane: lane, lane + 32 ...
    const int lane = threadIdx.x % 32, query = blockIdx.x * 4 + threadIdx.x / 32;
    if (query >= SQ) return;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    const float scale_log2 = scale * 1.44269504f;
    for (int key = 0; key < visible_keys(query, SQ, SKV); ++key) {
        const size_t at = (kv_head * SKV + key) * D;
        float s = 0.0f;
        for (int i = 0; i < PER_LANE; ++i)
            if (i * 32 + lane < D) s += ql[i] * float(k[at + i * 32 + lane]);
        s = warp_sum(s) * scale_log2;
        const float m_new = fmaxf(m, s), rescale = polynomial_exp2(m - m_new), p = polynomial_exp2(s - m_new);
        for (int i = 0; i < PER_LANE; ++i)
            if (i * 32 + lane < D) u[i] = u[i] * rescale + p * float(v[at + i * 32 + lane]);
        l = l * rescale + p;
        m = m_new;
    }
    m *= 0.693147181f;

    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
