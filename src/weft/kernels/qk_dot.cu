// The scores of quantised Q and K, one warp per element.
//
//     S[m, n] = Σ_d Q[m, d] · K[n, d], times 1/√D if SCALED
//
// Idea      The first step of every attention kernel, in the open: no softmax, no V, no tiles. The lanes of a warp
//           share D, and a butterfly of five shuffles sums what they found. A code u stands for (u - 128) · step,
//           step = scale · 448 / 127, one scale per head, hence
//               S[m, n] = q_step · k_step · Σ_d (q_code - 128) · (k_code - 128)
//           and the sum is an integer: exact, in any order. Only the last products round.
// History   The classical mistake is a lane that takes a row of its own before the reduction, which then adds up 32
//           different scores. Here all lanes of a warp work on the same (m, n).
// Levers    WARPS: elements per CTA.
// Supports  codes u8, S in f32; SQ, SKV ≥ 1 with SQ · SKV < 2³¹; 1 ≤ D ≤ 131071 (the sum fits an int);
//           HQ a multiple of HKV (grouped queries); SCALED 1 with 1/√D, 0 without. No mask.
//
// weft: sizes   B=1 HQ=2 HKV=1 SQ=4 SKV=8 D=64
// weft: define  SCALED = 1
// weft: define  WARPS = 4
// weft: in      q_code  : u8[B, HQ, SQ, D] = uniform(0, 256)
// weft: in      k_code  : u8[B, HKV, SKV, D] = uniform(0, 256)
// weft: in      q_scale : f32[B, HQ] = uniform(0.005, 0.01)
// weft: in      k_scale : f32[B, HKV] = uniform(0.005, 0.01)
// weft: out     s       : f32[B, HQ, SQ, SKV]
// weft: scalar  scale   : f32 = 1 / sqrt(D)
// weft: launch  qk_dot(q_code, k_code, q_scale, k_scale, s, HKV, SQ, SKV, D, scale)
// weft:         grid(cdiv(SQ * SKV, WARPS), HQ, B) block(32 * WARPS)

#include <assert.h>

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int MIDPOINT = 128;            // the code of 0
constexpr float STEP = 448.0f / 127.0f;  // the value of one code step, in units of the head's scale

__device__ __forceinline__ int warp_sum(int x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

__global__ void __launch_bounds__(32 * WARPS)
qk_dot(const unsigned char* __restrict__ q_code, const unsigned char* __restrict__ k_code,
       const float* __restrict__ q_scale, const float* __restrict__ k_scale, float* __restrict__ s, int HKV, int SQ,
       int SKV, int D, float scale) {
    static_assert(SCALED == 0 || SCALED == 1, "SCALED is 0 or 1");
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

    int products = 0;
    for (int d = lane; d < D; d += 32) products += (q_row[d] - MIDPOINT) * (k_row[d] - MIDPOINT);
    const int dot = warp_sum(products);

    if (lane == 0) {
        const float value = float(dot) * (STEP * q_scale[q_head]) * (STEP * k_scale[kv_head]);
        s[(q_head * SQ + m) * SKV + n] = SCALED ? value * scale : value;
    }
}
