// 40 CTAs walk all work items, which are blocks of 16 queries of a head; four threads share a query.
//
// wrong 1 state_kept: from a CTA's second work item on (more than 40), m and l start from what the first left (seen at B=1 HQ=1 HKV=1 SQ=700 SKV=4 D=16 f16 none unit_normal)
// wrong 2 q_kept: Q is not read again for a work item of the same head, which happens from 641 queries on (seen at B=1 HQ=1 HKV=1 SQ=700 SKV=4 D=16 f16 none unit_normal)
// wrong 3 tail_of_round_two: from the second work item on, rows after the last query are stored too (seen at B=1 HQ=1 HKV=1 SQ=650 SKV=4 D=16 f16 none unit_normal)
// wrong 4 third_round: the batch of a work item is right for the first two rounds only (seen at B=3 HQ=30 HKV=30 SQ=1 SKV=4 D=16 f16 none unit_normal)
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
// weft: launch  persistent<{D}>(q, k, v, o, lse, {B, HQ, HKV, SQ, SKV}, scale) grid(40) block(64)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

struct Sizes {
    int B, HQ, HKV, SQ, SKV;
};

template <int D>
__global__ void persistent(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, Sizes of,
                           float scale) {
    constexpr int COLUMNS = (D + 3) / 4;  // of a thread: part, part + 4, part + 8 …
    const int part = threadIdx.x % 4, blocks = (of.SQ + 15) / 16, items = blocks * of.HQ * of.B;
    float q_part[COLUMNS], u[COLUMNS], m = -CUDART_INF_F, l = 0.0f;
    int head_before = -1, round = 0;
    for (int item = blockIdx.x; item < items; item += gridDim.x, ++round) {
        const int query = item % blocks * 16 + threadIdx.x / 4, head = item / blocks, h = head % of.HQ;
        const int b = WRONG == 4 && round >= 2 ? 0 : head / of.HQ;
        const size_t row = size_t(head) * of.SQ + min(query, of.SQ - 1);
        const size_t kv = (size_t(b) * of.HKV + h / (of.HQ / of.HKV)) * of.SKV * D;
        int end = of.SKV;
        if (CAUSAL) end = max(0, min(of.SKV, (CAUSAL == 1 ? query : query + of.SKV - of.SQ) + 1));
        if (WRONG != 2 || head != head_before)
            for (int i = 0; i < COLUMNS; ++i) q_part[i] = i * 4 + part < D ? float(q[row * D + i * 4 + part]) : 0.0f;
        head_before = head;
        for (int i = 0; i < COLUMNS; ++i) u[i] = 0.0f;
        if (WRONG != 1) m = -CUDART_INF_F, l = 0.0f;
        for (int key = 0; key < of.SKV; ++key) {  // a warp's queries go together: their shuffles need all lanes
            const ELEMENT* const k_row = k + kv + size_t(key) * D;
            float s = 0.0f;
            for (int i = 0; i < COLUMNS; ++i)
                if (i * 4 + part < D) s += q_part[i] * float(k_row[i * 4 + part]);
            s += __shfl_xor_sync(~0u, s, 1);
            s = (s + __shfl_xor_sync(~0u, s, 2)) * scale;
            if (key >= end) continue;
            const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
            for (int i = 0; i < COLUMNS; ++i)
                if (i * 4 + part < D) u[i] = u[i] * rescale + p * float(v[kv + size_t(key) * D + i * 4 + part]);
            l = l * rescale + p;
            m = m_new;
        }
        const bool inside = query < of.SQ || (WRONG == 3 && round > 0);
        const size_t out = WRONG == 3 ? size_t(head) * of.SQ + query : row;
        if (inside) {
            for (int i = 0; i < COLUMNS; ++i)
                if (i * 4 + part < D) o[out * D + i * 4 + part] = ELEMENT(end == 0 ? 0.0f : u[i] / l);
            if (part == 0) lse[out] = m + logf(l);
        }
    }
}
