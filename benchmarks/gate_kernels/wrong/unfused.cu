// Unfused: three launches with all scores in a workspace. A row of at most 256 scores is normalised in registers, a longer
// one in two walks over memory; from 400 keys on two warps halve the keys of P·V.
//
// wrong 1 long_sum: in the long path a thread adds at most 13 weights, so keys beyond 832 are missing in l (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=900 D=16 f16 none unit_normal)
// wrong 2 scores_in_ints: the offset of a row of scores is a product of ints, which overflows from 2^31 scores on [overflow]
// wrong 3 second_half: from 400 keys on, the second warp starts one key late (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=410 D=16 f16 none unit_normal)
// wrong 4 f32_out_through_half: float outputs are rounded to half on their way out (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=20 D=16 f32 none unit_normal)
// wrong 5 empty_long_row: in the long path a query that sees no key divides 0 by 0 (seen at B=1 HQ=1 HKV=1 SQ=270 SKV=260 D=16 f16 bottom_right unit_normal)
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  WRONG = 0
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: workspace scores : f32[B, HQ, SQ, SKV]
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  multiply(q, k, scores, HKV, SQ, SKV, D, scale) grid(SQ, HQ, B) block(64)
// weft: launch  softmax(scores, lse, SQ, SKV) grid(SQ, HQ, B) block(64)
// weft: launch  weigh(scores, v, o, HKV, SQ, SKV, D) grid(SQ, HQ, B) block(64) shared(4 * D)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

__device__ void store(half* x, float value) { *x = __float2half(value); }
__device__ void store(__nv_bfloat16* x, float value) { *x = __float2bfloat16(value); }
__device__ void store(float* x, float value) { *x = WRONG == 4 ? __half2float(__float2half(value)) : value; }

__device__ size_t row_of(int SQ) { return (size_t(blockIdx.z) * gridDim.y + blockIdx.y) * SQ + blockIdx.x; }
__device__ size_t scores_of(int SQ, int SKV) { return WRONG == 2 ? int(row_of(SQ)) * SKV : row_of(SQ) * SKV; }
__device__ int kv_head(int HKV) { return blockIdx.z * HKV + blockIdx.y / (gridDim.y / HKV); }
__device__ int visible_keys(int SQ, int SKV) {
    const int query = blockIdx.x;
    return CAUSAL ? max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1)) : SKV;
}

__global__ void multiply(const ELEMENT* q, const ELEMENT* k, float* scores, int HKV, int SQ, int SKV, int D, float scale) {
    for (int key = threadIdx.x; key < SKV; key += 64) {
        float s = 0.0f;
        for (int d = 0; d < D; ++d)
            s += float(q[row_of(SQ) * D + d]) * float(k[(size_t(kv_head(HKV)) * SKV + key) * D + d]);
        scores[scores_of(SQ, SKV) + key] = key < visible_keys(SQ, SKV) ? s * scale : -CUDART_INF_F;
    }
}

template <bool MAX>
__device__ float over_cta(float x) {
    __shared__ float of_warp[2];
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(~0u, x, offset);
        x = MAX ? fmaxf(x, other) : x + other;
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = MAX ? fmaxf(of_warp[0], of_warp[1]) : of_warp[0] + of_warp[1];
    __syncthreads();
    return x;
}

__global__ void softmax(float* scores, float* lse, int SQ, int SKV) {
    float* const s = scores + scores_of(SQ, SKV);
    const int thread = threadIdx.x;
    float m = -CUDART_INF_F, l = 0.0f, kept[4];
    for (int key = thread; key < SKV; key += 64) m = fmaxf(m, s[key]);
    m = over_cta<true>(m);
    const bool empty = m == -CUDART_INF_F;
    if (SKV <= 256) {
        for (int i = 0; i < 4; ++i) kept[i] = thread + 64 * i < SKV && !empty ? expf(s[thread + 64 * i] - m) : 0.0f;
        l = over_cta<false>(kept[0] + kept[1] + kept[2] + kept[3]);
        for (int i = 0; i < 4; ++i)
            if (thread + 64 * i < SKV) s[thread + 64 * i] = empty ? 0.0f : kept[i] / l;
    } else {
        const float base = empty && WRONG != 5 ? 0.0f : m;
        for (int key = thread; key < (WRONG == 1 ? min(SKV, 13 * 64) : SKV); key += 64) l += expf(s[key] - base);
        l = over_cta<false>(l);
        for (int key = thread; key < SKV; key += 64) s[key] = l == 0.0f ? 0.0f : expf(s[key] - base) / l;
    }
    if (thread == 0) lse[row_of(SQ)] = m + logf(l);
}

__global__ void weigh(const float* scores, const ELEMENT* v, ELEMENT* o, int HKV, int SQ, int SKV, int D) {
    extern __shared__ float second[];
    const int warp = threadIdx.x / 32, middle = SKV >= 400 ? SKV / 2 : SKV;
    const int begin = warp == 0 ? 0 : middle + (WRONG == 3), end = warp == 0 ? middle : SKV;
    for (int base = 0; base < D; base += 32) {
        const int d = base + threadIdx.x % 32;
        float sum = 0.0f;
        for (int key = begin; key < end && d < D; ++key)
            sum += scores[scores_of(SQ, SKV) + key] * float(v[(size_t(kv_head(HKV)) * SKV + key) * D + d]);
        if (warp == 1 && d < D) second[d] = sum;
        __syncthreads();
        if (warp == 0 && d < D) store(o + row_of(SQ) * D + d, sum + second[d]);
    }
}
