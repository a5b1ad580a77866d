// The keys are cut into four parts, however many there are: the first SKV % 4 parts have one key more. Each part leaves
// U, m and l; a second launch merges them.
//
// wrong 1 empty_split: a part without keys (SKV < 4) leaves nothing for the merge to read (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=3 D=32 f16 none unit_normal)
// wrong 2 fifth_batch: batches share parts from the fifth on (seen at B=5 HQ=1 HKV=1 SQ=2 SKV=20 D=32 f16 none unit_normal)
// wrong 3 parts_in_ints: the offset of a part is a product of ints, which overflows from 2^31 floats on [overflow]
// wrong 4 rest_of_three: at most two parts get one key more, so SKV % 4 = 3 loses the last key (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=23 D=32 f16 none unit_normal)
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    PARTS = 4
// weft: define    WRONG = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: workspace parts : f32[B, HQ, SQ, PARTS, D + 2]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    part(q, k, v, parts, HKV, SQ, SKV, D, scale) grid(SQ, HQ, B * PARTS) block(32)
// weft: launch    merge(parts, o, lse, SQ, D) grid(SQ, HQ, B) block(32)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

// U[0 … D), m and l of a part at [b, h, query, part].
__device__ float* at(float* parts, int b, int part, int SQ, int D) {
    if (WRONG == 2) b %= 4;
    const size_t row = ((size_t(b) * gridDim.y + blockIdx.y) * SQ + blockIdx.x) * PARTS + part;
    return parts + (WRONG == 3 ? int(row) * (D + 2) : row * (D + 2));
}

__global__ void part(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, float* parts, int HKV, int SQ, int SKV, int D,
                     float scale) {
    const int lane = threadIdx.x, query = blockIdx.x, h = blockIdx.y, b = blockIdx.z / PARTS, n = blockIdx.z % PARTS;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + query;
    const size_t kv = (size_t(b) * HKV + h / (gridDim.y / HKV)) * SKV * D;
    const int each = SKV / PARTS, rest = WRONG == 4 ? min(SKV % PARTS, 2) : SKV % PARTS;
    const int first = n * each + min(n, rest), keys = each + (n < rest);
    float* const out = at(parts, b, n, SQ, D);
    if (keys == 0) {
        if (WRONG == 1) return;
        for (int d = lane; d < D; d += 32) out[d] = 0.0f;
        if (lane == 0) out[D] = -CUDART_INF_F, out[D + 1] = 0.0f;
        return;
    }
    int end = first + keys;
    if (CAUSAL) end = min(end, (CAUSAL == 1 ? query : query + SKV - SQ) + 1);
    float m = -CUDART_INF_F, l = 0.0f;
    for (int d = lane; d < D; d += 32) out[d] = 0.0f;
    for (int key = first; key < end; ++key) {
        float s = 0.0f;
        for (int d = lane; d < D; d += 32) s += float(q[row * D + d]) * float(k[kv + size_t(key) * D + d]);
        for (int offset = 16; offset > 0; offset /= 2) s += __shfl_xor_sync(~0u, s, offset);
        const float m_new = fmaxf(m, s * scale), rescale = expf(m - m_new), p = expf(s * scale - m_new);
        for (int d = lane; d < D; d += 32) out[d] = out[d] * rescale + p * float(v[kv + size_t(key) * D + d]);
        l = l * rescale + p;
        m = m_new;
    }
    if (lane == 0) out[D] = m, out[D + 1] = l;
}

__global__ void merge(float* parts, ELEMENT* o, float* lse, int SQ, int D) {
    const int lane = threadIdx.x, query = blockIdx.x, b = blockIdx.z;
    const size_t row = (size_t(b) * gridDim.y + blockIdx.y) * SQ + query;
    float m = -CUDART_INF_F, l = 0.0f;
    for (int n = 0; n < PARTS; ++n) m = fmaxf(m, at(parts, b, n, SQ, D)[D]);
    const float base = m == -CUDART_INF_F ? 0.0f : m;
    for (int n = 0; n < PARTS; ++n) l += expf(at(parts, b, n, SQ, D)[D] - base) * at(parts, b, n, SQ, D)[D + 1];
    for (int d = lane; d < D; d += 32) {
        float u = 0.0f;
        for (int n = 0; n < PARTS; ++n) u += expf(at(parts, b, n, SQ, D)[D] - base) * at(parts, b, n, SQ, D)[d];
        o[row * D + d] = ELEMENT(l == 0.0f ? 0.0f : u / l);
    }
    if (lane == 0) lse[row] = m + logf(l);
}
