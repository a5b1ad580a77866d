// Short rows are done by one launch; from 512 keys on the keys are cut into parts of 256 and a second launch merges them.
//
// wrong 1 fifth_part: the merge takes at most four parts, so keys beyond 1,024 are lost (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=1100 D=16 f16 none unit_normal)
// wrong 2 merged_lse: from 512 keys on the LSE has l in the place of log l (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=520 D=16 f16 none unit_normal)
// wrong 3 merge_base: the merge weighs parts by powers of 2, not of e (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=520 D=16 f16 none logits_8)
// wrong 4 split_alignment: in parts, bottom_right is taken for top_left (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=520 D=16 f16 bottom_right unit_normal)
// wrong 5 last_key_of_part: a part of exactly 256 keys leaves out its last (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=520 D=16 f16 none sorted_keys)
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    WRONG = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: scalar    parts : i32 = cdiv(SKV, 256)
// weft: workspace u    : f32[parts, B, HQ, SQ, D]
// weft: workspace ml   : f32[parts, B, HQ, SQ, 2]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: launch    short_rows<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(SQ, HQ, B) block(32) when(SKV < 512)
// weft: launch    part<{D}>(q, k, v, u, ml, B, HKV, SQ, SKV, scale) grid(SQ, HQ, B * parts) block(32) when(SKV >= 512)
// weft: launch    merge<{D}>(u, ml, o, lse, SQ, parts) grid(SQ, HQ, B) block(32) when(SKV >= 512)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

template <int D>
struct Walk {
    float u[(D + 31) / 32] = {}, m = -CUDART_INF_F, l = 0.0f;

    // The keys [begin, end); the lanes share the columns.
    __device__ void over(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, int begin, int end, float scale) {
        const int lane = threadIdx.x;
        for (int key = begin; key < end; ++key) {
            float s = 0.0f;
            for (int d = lane; d < D; d += 32) s += float(q[d]) * float(k[size_t(key) * D + d]);
            for (int offset = 16; offset > 0; offset /= 2) s += __shfl_xor_sync(~0u, s, offset);
            const float m_new = fmaxf(m, s * scale), rescale = expf(m - m_new), p = expf(s * scale - m_new);
            for (int d = lane; d < D; d += 32) u[d / 32] = u[d / 32] * rescale + p * float(v[size_t(key) * D + d]);
            l = l * rescale + p;
            m = m_new;
        }
    }
};

__device__ int visible_keys(int offset, int SKV) {
    return CAUSAL ? max(0, min(SKV, int(blockIdx.x) + (CAUSAL == 1 ? 0 : offset) + 1)) : SKV;
}

template <int D>
__global__ void short_rows(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int HKV, int SQ,
                           int SKV, float scale) {
    const size_t row = (size_t(blockIdx.z) * gridDim.y + blockIdx.y) * SQ + blockIdx.x;
    const size_t kv = (size_t(blockIdx.z) * HKV + blockIdx.y / (gridDim.y / HKV)) * SKV * D;
    Walk<D> walk;
    walk.over(q + row * D, k + kv, v + kv, 0, visible_keys(SKV - SQ, SKV), scale);
    for (int d = threadIdx.x; d < D; d += 32) o[row * D + d] = ELEMENT(walk.l == 0.0f ? 0.0f : walk.u[d / 32] / walk.l);
    if (threadIdx.x == 0) lse[row] = walk.m + logf(walk.l);
}

template <int D>
__global__ void part(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, float* u, float* ml, int B, int HKV, int SQ,
                     int SKV, float scale) {
    const int b = blockIdx.z % B, n = blockIdx.z / B;
    const size_t row = (size_t(b) * gridDim.y + blockIdx.y) * SQ + blockIdx.x;
    const size_t kv = (size_t(b) * HKV + blockIdx.y / (gridDim.y / HKV)) * SKV * D;
    const int visible = visible_keys(WRONG == 4 ? 0 : SKV - SQ, SKV);
    Walk<D> walk;
    walk.over(q + row * D, k + kv, v + kv, n * 256, min(visible, n * 256 + (WRONG == 5 ? 255 : 256)), scale);
    const size_t out = (size_t(n) * B * gridDim.y * SQ) + row;
    for (int d = threadIdx.x; d < D; d += 32) u[out * D + d] = walk.u[d / 32];
    if (threadIdx.x == 0) ml[out * 2] = walk.m, ml[out * 2 + 1] = walk.l;
}

template <int D>
__global__ void merge(const float* u, const float* ml, ELEMENT* o, float* lse, int SQ, int parts) {
    const size_t row = (size_t(blockIdx.z) * gridDim.y + blockIdx.y) * SQ + blockIdx.x;
    const size_t rows = size_t(gridDim.z) * gridDim.y * SQ;
    if (WRONG == 1) parts = min(parts, 4);
    float m = -CUDART_INF_F, l = 0.0f, sums[(D + 31) / 32] = {};
    for (int n = 0; n < parts; ++n) m = fmaxf(m, ml[(n * rows + row) * 2]);
    for (int n = 0; n < parts && m > -CUDART_INF_F; ++n) {
        const float apart = ml[(n * rows + row) * 2] - m, weight = WRONG == 3 ? exp2f(apart) : expf(apart);
        l += weight * ml[(n * rows + row) * 2 + 1];
        for (int d = threadIdx.x; d < D; d += 32) sums[d / 32] += weight * u[(n * rows + row) * D + d];
    }
    for (int d = threadIdx.x; d < D; d += 32) o[row * D + d] = ELEMENT(l == 0.0f ? 0.0f : sums[d / 32] / l);
    if (threadIdx.x == 0) lse[row] = m + (WRONG == 2 ? l : logf(l));
}
