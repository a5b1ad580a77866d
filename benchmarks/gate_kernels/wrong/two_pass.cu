// Two launches: the first leaves the LSE of every row, the second sums exp(s - LSE) · V, which needs no rescaling. Few
// CTAs walk all rows, and few slices of the grid all heads.
//
// wrong 1 second_round: where a warp takes a second row (more than 640 rows), m and l go on from the first (seen at B=1 HQ=1 HKV=1 SQ=700 SKV=4 D=16 f16 none unit_normal)
// wrong 2 third_batch: the second launch takes K and V of batch 0 or 1, whatever the batch (seen at B=3 HQ=1 HKV=1 SQ=4 SKV=20 D=32 f16 none unit_normal)
// wrong 3 ninth_head: where a CTA takes a second head (from HQ = 9 on), its K and V are those of the first (seen at B=1 HQ=12 HKV=12 SQ=4 SKV=20 D=32 f16 none unit_normal)
// wrong 4 q_offset_in_ints: the offset of a row of Q is a product of ints, which overflows from 2^31 elements on [overflow]
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
// weft: launch  sums<{D}>(q, k, lse, {B, HQ, HKV, SQ, SKV}, scale) grid(min(cdiv(B * HQ * SQ, 4), 160)) block(128)
// weft: launch  outputs<{D}>(q, k, v, lse, o, {B, HQ, HKV, SQ, SKV}, scale) grid(SQ, min(HQ, 8), B) block(32)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

struct Sizes {
    int B, HQ, HKV, SQ, SKV;
};

__device__ int visible_keys(int query, Sizes of) {
    if (CAUSAL == 0) return of.SKV;
    return max(0, min(of.SKV, (CAUSAL == 1 ? query : query + of.SKV - of.SQ) + 1));
}

// The lanes share the columns; every lane gets the score.
template <int D>
__device__ float score(const ELEMENT* q, const ELEMENT* k, float scale) {
    float s = 0.0f;
    for (int d = threadIdx.x % 32; d < D; d += 32) s += float(q[d]) * float(k[d]);
    for (int offset = 16; offset > 0; offset /= 2) s += __shfl_xor_sync(~0u, s, offset);
    return s * scale;
}

template <int D>
__global__ void sums(const ELEMENT* q, const ELEMENT* k, float* lse, Sizes of, float scale) {
    const size_t rows = size_t(of.B) * of.HQ * of.SQ;
    float m = -CUDART_INF_F, l = 0.0f;
    for (size_t row = blockIdx.x * 4 + threadIdx.x / 32; row < rows; row += gridDim.x * 4) {
        const int query = row % of.SQ, h = row / of.SQ % of.HQ, b = row / (size_t(of.SQ) * of.HQ);
        const ELEMENT* const k_head = k + (size_t(b) * of.HKV + h / (of.HQ / of.HKV)) * of.SKV * D;
        if (WRONG != 1) m = -CUDART_INF_F, l = 0.0f;
        for (int key = 0; key < visible_keys(query, of); ++key) {
            const float s = score<D>(q + row * D, k_head + size_t(key) * D, scale), m_new = fmaxf(m, s);
            l = l * expf(m - m_new) + expf(s - m_new);
            m = m_new;
        }
        if (threadIdx.x % 32 == 0) lse[row] = m + logf(l);
    }
}

template <int D>
__global__ void outputs(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, const float* lse, ELEMENT* o, Sizes of,
                        float scale) {
    constexpr int COLUMNS = (D + 31) / 32;
    const int query = blockIdx.x, b = blockIdx.z, lane = threadIdx.x;
    for (int h = blockIdx.y; h < of.HQ; h += gridDim.y) {
        const size_t row = (size_t(b) * of.HQ + h) * of.SQ + query, at = WRONG == 4 ? int(row) * D : row * D;
        const int kv_head = (WRONG == 3 ? blockIdx.y : h) / (of.HQ / of.HKV);
        const size_t kv = (size_t(WRONG == 2 ? b % 2 : b) * of.HKV + kv_head) * of.SKV * D;
        float u[COLUMNS] = {};
        for (int key = 0; key < visible_keys(query, of); ++key) {
            const float p = expf(score<D>(q + at, k + kv + size_t(key) * D, scale) - lse[row]);
            for (int i = 0; i < COLUMNS; ++i)
                if (i * 32 + lane < D) u[i] += p * float(v[kv + size_t(key) * D + i * 32 + lane]);
        }
        for (int i = 0; i < COLUMNS; ++i)
            if (i * 32 + lane < D) o[at + i * 32 + lane] = ELEMENT(u[i]);
    }
}
