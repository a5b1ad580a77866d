// Fused attention on 8-bit codes, one warp per query: the trusted baseline of the 8-bit rungs.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      `scalar` with a decoder in front: uint8 Q, K, V are a quarter of fp32's traffic, decoded in registers. A
//           code c means x = number · step, where step is the same for an entire head, whose scale is absmax / 448:
//               sim_fp8   number = c - 128, step = scale · 448 / 127: linear, code 128 is exactly 0
//               e4m3      number = the E4M3 value whose bits c is, step = scale
//           All that follows is fp32 and the online softmax of `scalar`:
//               m' = max(m, s),   r = exp(m - m'),   p = exp(s - m'),   l' = l · r + p,   u' = u · r + p · v
// History   The correct version without tensor cores; `fp8_wmma` is compared with it. It differs from fp32 attention
//           only by the quantiser.
// Levers    WARPS: queries per CTA.
// Supports  codes u8, ENCODING 0 sim_fp8, 1 e4m3; scales f32 per head; ELEMENT, the type of O: float, half,
//           __nv_bfloat16; any D, SQ, SKV ≥ 1; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf.
//           Generated E4M3 codes are the positive ones, 0 … 126: the full range contains NaN.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  ENCODING = 0
// weft: define  CAUSAL = 0
// weft: define  WARPS = 4
// weft: in      q_code : u8[B, HQ, SQ, D] = uniform(0, 256 - 129 * ENCODING)
// weft: in      k_code, v_code : u8[B, HKV, SKV, D] = uniform(0, 256 - 129 * ENCODING)
// weft: in      q_scale : f32[B, HQ] = uniform(0.005, 0.01)
// weft: in      k_scale, v_scale : f32[B, HKV] = uniform(0.005, 0.01)
// weft: out     o      : ELEMENT[B, HQ, SQ, D]
// weft: out     lse    : f32[B, HQ, SQ]
// weft: scalar  scale  : f32 = 1 / sqrt(D)
// weft: launch  fp8_scalar<{D}>(q_code, k_code, v_code, q_scale, k_scale, v_scale, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, WARPS), HQ, B) block(32 * WARPS)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr bool E4M3 = ENCODING == 1;
constexpr int MIDPOINT = 128;                          // sim_fp8: the code of 0
constexpr float STEP = E4M3 ? 1.0f : 448.0f / 127.0f;  // the value of the number 1, in units of the head's scale

// E4M3 is s eeee mmm with the exponent biased by 7; a half is s eeeee mmmmmmmmmm with 15. So the bits of the
// first, moved to those of the second, are its value / 2⁸ (also denormals). 0x7F and 0xFF would be ±480 and are NaN.
__device__ __forceinline__ float e4m3(int code) {
    const half bits = __ushort_as_half(static_cast<unsigned short>((code & 0x80) << 8 | (code & 0x7f) << 7));
    return (code & 0x7f) == 0x7f ? CUDART_NAN_F : __half2float(bits) * 256.0f;
}

__device__ __forceinline__ float decode(int code, float step) {
    static_assert(ENCODING == 0 || ENCODING == 1, "ENCODING is 0 (sim_fp8) or 1 (e4m3)");
    return (E4M3 ? e4m3(code) : float(code - MIDPOINT)) * step;
}

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
fp8_scalar(const unsigned char* __restrict__ q_code, const unsigned char* __restrict__ k_code,
           const unsigned char* __restrict__ v_code, const float* __restrict__ q_scale,
           const float* __restrict__ k_scale, const float* __restrict__ v_scale, ELEMENT* __restrict__ o,
           float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;  // a lane's columns: lane, lane + 32, lane + 64 …
    const int lane = threadIdx.x % 32;
    const int query = blockIdx.x * WARPS + threadIdx.x / 32;
    if (query >= SQ) return;

    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    assert(HQ % HKV == 0);
    const size_t q_head = static_cast<size_t>(b) * HQ + h;                 // [b, h]
    const size_t kv_head = static_cast<size_t>(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const size_t q_row = q_head * SQ + query;                              // [b, h, query]
    const float q_step = STEP * q_scale[q_head];
    const float k_step = STEP * k_scale[kv_head];
    const float v_step = STEP * v_scale[kv_head];

    float q_lane[PER_LANE], u[PER_LANE];
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
        const int d = i * 32 + lane;
        q_lane[i] = d < D ? decode(q_code[q_row * D + d], q_step) : 0.0f;
        u[i] = 0.0f;
    }
    float m = -CUDART_INF_F, l = 0.0f;

    const int end = visible_keys(query, SQ, SKV);
    for (int key = 0; key < end; ++key) {
        const size_t row = (kv_head * SKV + key) * D;  // k_code, v_code at [b, kv head, key, 0]
        float products = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int d = i * 32 + lane;
            if (d < D) products += q_lane[i] * decode(k_code[row + d], k_step);
        }
        const float s = warp_sum(products) * scale;  // the same bits in every lane
        const float m_new = fmaxf(m, s);             // finite from the first key on, so m - m_new is never inf - inf
        const float rescale = expf(m - m_new), p = expf(s - m_new);
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int d = i * 32 + lane;
            if (d < D) u[i] = u[i] * rescale + p * decode(v_code[row + d], v_step);
        }
        l = l * rescale + p;
        m = m_new;
    }

    const float inverse = l > 0.0f ? 1.0f / l : 0.0f;  // l = 0: no visible key
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
        const int d = i * 32 + lane;
        if (d < D) o[q_row * D + d] = ELEMENT(u[i] * inverse);
    }
    if (lane == 0) lse[q_row] = m + logf(l);  // -inf + log 0 = -inf
}
