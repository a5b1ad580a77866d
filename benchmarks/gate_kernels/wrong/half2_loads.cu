// f16 only. A warp per query, a key per lane; rows of K are read as wide as D allows: 16 bytes, half2, or single halves.
//
// wrong 1 single_halves: for an odd D the last column of the score is left out (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=20 D=17 f16 none unit_normal)
// wrong 2 half2_sums: where D is even but no multiple of 8, products are summed in half (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=20 D=36 f16 none logits_32)
// wrong 3 ninth_vector: rows longer than eight vectors (D > 64) go on one vector too far (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=20 D=80 f16 none unit_normal)
// wrong 4 bytes_in_ints: the byte offset of a row of K is a product of ints, which overflows from 2^30 elements on [overflow]
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
// weft: define  CAUSAL = 0
// weft: define  WRONG = 0
// weft: in      q    : f16[B, HQ, SQ, D] = normal
// weft: in      k, v : f16[B, HKV, SKV, D] = normal
// weft: out     o    : f16[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  half2_loads(q, k, v, o, lse, HKV, SQ, SKV, D, scale) grid(SQ, HQ, B) block(32) shared(8 * D)

#include <cuda_fp16.h>
#include <math_constants.h>

__device__ float dot8(const float* q, uint4 vector) {
    const half2* const pairs = reinterpret_cast<const half2*>(&vector);
    float sum = 0.0f;
    for (int i = 0; i < 4; ++i) {
        const float2 k = __half22float2(pairs[i]);
        sum += q[2 * i] * k.x + q[2 * i + 1] * k.y;
    }
    return sum;
}

__device__ float dot(const float* q, const half* k, int D) {
    float sum = 0.0f;
    if (D % 8 == 0) {
        const uint4* const vectors = reinterpret_cast<const uint4*>(k);
        for (int i = 0; i < min(D / 8, 8); ++i) sum += dot8(q + 8 * i, vectors[i]);
        for (int i = 8 + (WRONG == 3); i < D / 8; ++i) sum += dot8(q + 8 * i, vectors[i]);
    } else if (D % 2 == 0) {
        half2 narrow = __float2half2_rn(0.0f);
        for (int d = 0; d < D; d += 2) {
            const half2 pair = *reinterpret_cast<const half2*>(k + d);
            if (WRONG == 2) {
                narrow = __hfma2(__floats2half2_rn(q[d], q[d + 1]), pair, narrow);
                continue;
            }
            const float2 wide = __half22float2(pair);
            sum += q[d] * wide.x + q[d + 1] * wide.y;
        }
        if (WRONG == 2) sum = __low2float(narrow) + __high2float(narrow);
    } else {
        for (int d = 0; d < D - (WRONG == 1); ++d) sum += q[d] * __half2float(k[d]);
    }
    return sum;
}

__global__ void half2_loads(const half* q, const half* k, const half* v, half* o, float* lse, int HKV, int SQ, int SKV,
                            int D, float scale) {
    extern __shared__ float q_row[];
    float* const u = q_row + D;
    const int lane = threadIdx.x, query = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + query;
    const size_t kv_row = (size_t(b) * HKV + h / (gridDim.y / HKV)) * SKV;
    const int end = CAUSAL ? max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1)) : SKV;
    for (int d = lane; d < D; d += 32) q_row[d] = __half2float(q[row * D + d]), u[d] = 0.0f;
    __syncwarp();
    float m = -CUDART_INF_F, l = 0.0f;
    for (int first = 0; first < end; first += 32) {
        const size_t key = kv_row + min(first + lane, end - 1);
        const size_t bytes = WRONG == 4 ? int(key) * D * 2 : key * D * 2;
        float s = dot(q_row, reinterpret_cast<const half*>(reinterpret_cast<const char*>(k) + bytes), D) * scale;
        if (first + lane >= end) s = -CUDART_INF_F;
        float m_new = fmaxf(m, s);
        for (int offset = 16; offset > 0; offset /= 2) m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, offset));
        const float p = expf(s - m_new), rescale = expf(m - m_new);
        float sum = p;
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
        l = l * rescale + sum;
        m = m_new;
        for (int d = lane; d < D; d += 32) u[d] *= rescale;
        for (int i = 0; i < min(32, end - first); ++i) {
            const float weight = __shfl_sync(~0u, p, i);
            for (int d = lane; d < D; d += 32) u[d] += weight * __half2float(v[(kv_row + first + i) * D + d]);
        }
    }
    for (int d = lane; d < D; d += 32) o[row * D + d] = __float2half(end == 0 ? 0.0f : u[d] / l);
    if (lane == 0) lse[row] = m + logf(l);
}
