// Two kernels: for one query (SQ = 1) a CTA has all heads that share a key head, a warp each; else a thread has a query.
//
// wrong 1 decode_rest: the decode path leaves out the keys after the last 32, if there are more than 32 (seen at B=1 HQ=1 HKV=1 SQ=1 SKV=70 D=32 f16 none unit_normal)
// wrong 2 fifth_head: in the decode path heads beyond the four warps, groups of 5 and more, are not computed (seen at B=1 HQ=5 HKV=1 SQ=1 SKV=20 D=32 f16 none unit_normal)
// wrong 3 decode_mask: the decode path lets the query see all keys, which under top_left it does not (seen at B=1 HQ=1 HKV=1 SQ=1 SKV=20 D=32 f16 top_left unit_normal)
// wrong 4 decode_batch: the decode path reads V of batch 0 (seen at B=2 HQ=1 HKV=1 SQ=1 SKV=20 D=32 f16 none unit_normal)
// wrong 5 decode_wide: the decode path stores 64 columns at most (seen at B=1 HQ=1 HKV=1 SQ=1 SKV=20 D=70 f16 none unit_normal)
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
// weft: launch  decode(q, k, v, o, lse, HQ // HKV, SKV, D, scale) grid(HKV, B) block(128) shared(16 * D) when(SQ == 1)
// weft: launch  prefill<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 32), HQ, B) block(32) when(SQ > 1)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

__global__ void decode(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int group, int SKV,
                       int D, float scale) {
    extern __shared__ float sums[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* const u = sums + warp * D;
    const size_t kv_head = size_t(blockIdx.y) * gridDim.x + blockIdx.x, kv = kv_head * SKV * D;
    const size_t kv_v = WRONG == 4 ? size_t(blockIdx.x) * SKV * D : kv;
    int end = CAUSAL == 1 && WRONG != 3 ? 1 : SKV;  // top_left: the first query sees the first key
    if (WRONG == 1 && end > 32) end -= end % 32;
    for (int g = warp; g < (WRONG == 2 ? min(group, 4) : group); g += 4) {
        const size_t row = kv_head * group + g;
        for (int d = lane; d < D; d += 32) u[d] = 0.0f;
        float m = -CUDART_INF_F, l = 0.0f;
        for (int first = 0; first < end; first += 32) {  // a key per lane for the scores, a column per lane for U
            const int key = first + lane;
            float s = 0.0f;
            for (int d = 0; d < D && key < end; ++d) s += float(q[row * D + d]) * float(k[kv + size_t(key) * D + d]);
            s = key < end ? s * scale : -CUDART_INF_F;
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
                for (int d = lane; d < D; d += 32) u[d] += weight * float(v[kv_v + size_t(first + i) * D + d]);
            }
        }
        for (int d = lane; d < (WRONG == 5 ? min(D, 64) : D); d += 32) o[row * D + d] = ELEMENT(u[d] / l);
        if (lane == 0) lse[row] = m + logf(l);
    }
}

template <int D>
__global__ void prefill(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int HKV, int SQ,
                        int SKV, float scale) {
    const int query = blockIdx.x * 32 + threadIdx.x, h = blockIdx.y, b = blockIdx.z;
    if (query >= SQ) return;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + query;
    const size_t kv = (size_t(b) * HKV + h / (gridDim.y / HKV)) * SKV * D;
    int end = SKV;
    if (CAUSAL) end = max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
    float u[D] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int key = 0; key < end; ++key) {
        float s = 0.0f;
        for (int d = 0; d < D; ++d) s += float(q[row * D + d]) * float(k[kv + size_t(key) * D + d]);
        const float m_new = fmaxf(m, s * scale), rescale = expf(m - m_new), p = expf(s * scale - m_new);
        for (int d = 0; d < D; ++d) u[d] = u[d] * rescale + p * float(v[kv + size_t(key) * D + d]);
        l = l * rescale + p;
        m = m_new;
    }
    for (int d = 0; d < D; ++d) o[row * D + d] = ELEMENT(end == 0 ? 0.0f : u[d] / l);
    lse[row] = m + logf(l);
}
