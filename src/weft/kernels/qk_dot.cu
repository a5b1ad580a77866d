// The scores of quantised Q and K, one warp per element.
//
//     S[m, n] = Σ_d Q[m, d] · K[n, d], times 1/√D if SCALED
//
// Idea      The first step of every attention kernel, alone: no softmax, no V, no tiles. The lanes of a warp
//           share D, and a butterfly of five shuffles sums their products. A code means number · step, with one
//           step per head, hence
//               S[m, n] = q_step · k_step · Σ_d q_number · k_number
//           sim_fp8: number = code - 128, step = scale · 448 / 127. The sum is an integer: exact, in any order. Only
//           the last products round.
//           e4m3: number is the E4M3 value that the code's bits are, step = scale. A product of two is exact in fp32,
//           their sum rounds.
// History   The classical mistake is that each lane takes another row before the reduction, which then adds up 32
//           different scores. Here all lanes of a warp work on the same (m, n).
// Levers    WARPS: elements per CTA.
// Supports  codes u8, ENCODING 0 sim_fp8, 1 e4m3; S in f32; SQ, SKV ≥ 1 with SQ · SKV < 2³¹;
//           1 ≤ D ≤ 131071 (the sum fits an int); HQ a multiple of HKV (grouped queries); SCALED 1 with 1/√D,
//           0 without. No mask.
//           Generated E4M3 codes are the positive ones, 0 … 126: the full range contains NaN.
//
// weft: sizes   B=1 HQ=2 HKV=1 SQ=4 SKV=8 D=64
// weft: define  SCALED = 1
// weft: define  ENCODING = 0
// weft: define  WARPS = 4
// weft: in      q_code  : u8[B, HQ, SQ, D] = uniform(0, 256 - 129 * ENCODING)
// weft: in      k_code  : u8[B, HKV, SKV, D] = uniform(0, 256 - 129 * ENCODING)
// weft: in      q_scale : f32[B, HQ] = uniform(0.005, 0.01)
// weft: in      k_scale : f32[B, HKV] = uniform(0.005, 0.01)
// weft: out     s       : f32[B, HQ, SQ, SKV]
// weft: scalar  scale   : f32 = 1 / sqrt(D)
// weft: launch  qk_dot(q_code, k_code, q_scale, k_scale, s, HKV, SQ, SKV, D, scale)
// weft:         grid(cdiv(SQ * SKV, WARPS), HQ, B) block(32 * WARPS)

#include <assert.h>
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

// An int for sim_fp8, a float for E4M3.
__device__ __forceinline__ auto number(int code) {
    if constexpr (E4M3)
        return e4m3(code);
    else
        return code - MIDPOINT;
}

template <typename Sum>
__device__ __forceinline__ Sum warp_sum(Sum x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

__global__ void __launch_bounds__(32 * WARPS)
qk_dot(const unsigned char* __restrict__ q_code, const unsigned char* __restrict__ k_code,
       const float* __restrict__ q_scale, const float* __restrict__ k_scale, float* __restrict__ s, int HKV, int SQ,
       int SKV, int D, float scale) {
    static_assert(SCALED == 0 || SCALED == 1, "SCALED is 0 or 1");
    static_assert(ENCODING == 0 || ENCODING == 1, "ENCODING is 0 (sim_fp8) or 1 (e4m3)");
    const int lane = threadIdx.x % 32;
    const int element = blockIdx.x * WARPS + threadIdx.x / 32;  // m · SKV + n
    if (element >= SQ * SKV) return;
    const int m = element / SKV, n = element % SKV;

    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    assert(HQ % HKV == 0);
    const size_t q_head = static_cast<size_t>(b) * HQ + h;                 // [b, h]
    const size_t kv_head = static_cast<size_t>(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const unsigned char* const q_row = q_code + (q_head * SQ + m) * D;
    const unsigned char* const k_row = k_code + (kv_head * SKV + n) * D;

    auto products = 0 * number(0);
    for (int d = lane; d < D; d += 32) products += number(q_row[d]) * number(k_row[d]);
    const auto dot = warp_sum(products);

    if (lane == 0) {
        const float value = float(dot) * (STEP * q_scale[q_head]) * (STEP * k_scale[kv_head]);
        s[(q_head * SQ + m) * SKV + n] = SCALED ? value * scale : value;
    }
}
