// One warp per query row. The lanes take 32 keys for the scores and the columns for P V. Everything is in base 2:
// scale * log2(e) is folded into Q when it is loaded.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: in      Q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      K, V : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     O    : ELEMENT[B, HQ, SQ, D]
// weft: out     LSE  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  warp_row<{D}>(Q, K, V, O, LSE, HQ, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), B * HQ) block(128)
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define FULL_MASK 0xffffffffu
#define WARPS_PER_BLOCK 4

template <int D>
__global__ void warp_row(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O, float* LSE,
                         int Hq, int Hkv, int Nq, int Nk, float scale) {
    constexpr int COLS_PER_LANE = (D + 31) / 32;
    __shared__ float q_s[WARPS_PER_BLOCK][D];

    const int warp_id = threadIdx.x >> 5;
    const int lane_id = threadIdx.x & 31;
    const int row = blockIdx.x * WARPS_PER_BLOCK + warp_id;
    if (row >= Nq) return;

    const int batch = blockIdx.y / Hq;
    const int head = blockIdx.y % Hq;
    const int kv_head = head / (Hq / Hkv);
    const size_t q_offset = ((size_t)(batch * Hq + head) * Nq + row) * D;
    const ELEMENT* k_head = K + (size_t)(batch * Hkv + kv_head) * Nk * D;
    const ELEMENT* v_head = V + (size_t)(batch * Hkv + kv_head) * Nk * D;

    const float qk_scale = scale * 1.4426950408889634f;
    for (int d = lane_id; d < D; d += 32) q_s[warp_id][d] = float(Q[q_offset + d]) * qk_scale;
    __syncwarp();

    int n_keys = Nk;
    if (CAUSAL == 1) n_keys = min(Nk, row + 1);
    if (CAUSAL == 2) n_keys = min(Nk, max(0, row + (Nk - Nq) + 1));

    float acc[COLS_PER_LANE];
    for (int c = 0; c < COLS_PER_LANE; ++c) acc[c] = 0.f;
    float m_i = -INFINITY;
    float l_i = 0.f;

    for (int start = 0; start < n_keys; start += 32) {
        const int key = start + lane_id;
        float s = -INFINITY;
        if (key < n_keys) {
            const ELEMENT* k_row = k_head + (size_t)key * D;
            s = 0.f;
            for (int d = 0; d < D; ++d) s += q_s[warp_id][d] * float(k_row[d]);
        }

        float tile_max = s;
        for (int off = 16; off > 0; off >>= 1) tile_max = fmaxf(tile_max, __shfl_xor_sync(FULL_MASK, tile_max, off));

        const float m_new = fmaxf(m_i, tile_max);
        const float alpha = exp2f(m_i - m_new);
        const float p = exp2f(s - m_new);
        m_i = m_new;

        float tile_sum = p;
        for (int off = 16; off > 0; off >>= 1) tile_sum += __shfl_xor_sync(FULL_MASK, tile_sum, off);
        l_i = l_i * alpha + tile_sum;

        for (int c = 0; c < COLS_PER_LANE; ++c) acc[c] *= alpha;
        const int in_tile = min(32, n_keys - start);
        for (int j = 0; j < in_tile; ++j) {
            const float p_j = __shfl_sync(FULL_MASK, p, j);
            const ELEMENT* v_row = v_head + (size_t)(start + j) * D;
            for (int c = 0; c < COLS_PER_LANE; ++c) {
                const int d = c * 32 + lane_id;
                if (d < D) acc[c] += p_j * float(v_row[d]);
            }
        }
    }

    const float inv_l = l_i > 0.f ? 1.f / l_i : 0.f;
    for (int c = 0; c < COLS_PER_LANE; ++c) {
        const int d = c * 32 + lane_id;
        if (d < D) O[q_offset + d] = ELEMENT(acc[c] * inv_l);
    }
    if (lane_id == 0) LSE[q_offset / D] = l_i > 0.f ? m_i * 0.6931471805599453f + logf(l_i) : -INFINITY;
}
