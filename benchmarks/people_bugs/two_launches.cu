// Softmax in two launches. The first finds each row's maximum and sum of weights, the second computes the scores again
// and adds up P V with the final maximum. Eight threads share a row, a CTA has 16 rows and 16 keys at a time.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: require   D <= 128
// weft: in        Q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        K, V : ELEMENT[B, HKV, SKV, D] = normal
// weft: workspace stats : f32[B, HQ, SQ, 2]
// weft: out       O    : ELEMENT[B, HQ, SQ, D]
// weft: out       LSE  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    softmax_stats<{D}>(Q, K, stats, LSE, HKV, SQ, SKV, scale) grid(cdiv(SQ, 16), HQ, B) block(128)
// weft: launch    weighted_sum<{D}>(Q, K, V, stats, O, HKV, SQ, SKV, scale) grid(cdiv(SQ, 16), HQ, B) block(128)
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int ROWS = 16, KEYS = 16, PER_ROW = 8, THREADS = ROWS * PER_ROW;

// Rows beyond the end are filled with zeros.
template <int D>
__device__ void load_tile(float (*tile)[D + 1], const ELEMENT* head, int first, int rows) {
    for (int i = threadIdx.x; i < 16 * D; i += THREADS) {
        const int r = i / D, d = i % D;
        tile[r][d] = first + r < rows ? float(head[(size_t)(first + r) * D + d]) : 0.0f;
    }
}

template <int D>
__device__ float dot(const float* a, const float* b) {
    float sum = 0.0f;
    for (int d = 0; d < D; ++d) sum += a[d] * b[d];
    return sum;
}

__device__ int keys_seen_by(int row, int Nq, int Nk) {
    if (CAUSAL == 0) return Nk;
    const int last = CAUSAL == 1 ? row : row + Nk - Nq;
    return min(last + 1, Nk);
}

template <int D>
__global__ void softmax_stats(const ELEMENT* Q, const ELEMENT* K, float* stats, float* LSE, int Hkv, int Nq, int Nk,
                              float scale) {
    __shared__ float q_tile[ROWS][D + 1], k_tile[KEYS][D + 1];
    const int r = threadIdx.x / PER_ROW, t = threadIdx.x % PER_ROW, row = blockIdx.x * ROWS + r;
    const int Hq = gridDim.y, q_head = blockIdx.z * Hq + blockIdx.y;
    const int kv_head = blockIdx.z * Hkv + blockIdx.y / (Hq / Hkv);
    const ELEMENT* keys = K + (size_t)kv_head * Nk * D;

    load_tile<D>(q_tile, Q + (size_t)q_head * Nq * D, blockIdx.x * ROWS, Nq);
    const int seen = keys_seen_by(row, Nq, Nk);

    float m = -INFINITY, l = 0.0f;
    for (int k0 = 0; k0 < Nk; k0 += KEYS) {
        __syncthreads();
        load_tile<D>(k_tile, keys, k0, Nk);
        __syncthreads();
        for (int j = t; j < KEYS; j += PER_ROW) {
            if (k0 + j >= seen) break;
            const float s = dot<D>(q_tile[r], k_tile[j]) * scale;
            if (s > m) {
                l *= expf(m - s);
                m = s;
            }
            l += expf(s - m);
        }
    }

    // The eight threads of a row are neighbours in a warp.
    for (int step = 1; step < PER_ROW; step *= 2) {
        const float m_other = __shfl_xor_sync(0xffffffffu, m, step);
        const float l_other = __shfl_xor_sync(0xffffffffu, l, step);
        const float m_both = fmaxf(m, m_other);
        if (m_both > -INFINITY) {
            l = l * expf(m - m_both) + l_other * expf(m_other - m_both);
            m = m_both;
        }
    }
    if (t == 0 && row < Nq) {
        const size_t at = (size_t)q_head * Nq + row;
        stats[at * 2] = m;
        stats[at * 2 + 1] = l;
        LSE[at] = l > 0.0f ? m + logf(l) : -INFINITY;
    }
}

template <int D>
__global__ void weighted_sum(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, const float* stats, ELEMENT* O,
                             int Hkv, int Nq, int Nk, float scale) {
    __shared__ float q_tile[ROWS][D + 1], k_tile[KEYS][D + 1], v_tile[KEYS][D + 1], p_tile[ROWS][KEYS];
    const int r = threadIdx.x / PER_ROW, t = threadIdx.x % PER_ROW, row = blockIdx.x * ROWS + r;
    const int Hq = gridDim.y, q_head = blockIdx.z * Hq + blockIdx.y;
    const int kv_head = blockIdx.z * Hkv + blockIdx.y / (Hq / Hkv);
    const ELEMENT* keys = K + (size_t)kv_head * Nk * D;
    const ELEMENT* values = V + (size_t)kv_head * Nk * D;

    load_tile<D>(q_tile, Q + (size_t)q_head * Nq * D, blockIdx.x * ROWS, Nq);
    const int seen = row < Nq ? keys_seen_by(row, Nq, Nk) : 0;
    const size_t at = (size_t)q_head * Nq + min(row, Nq - 1);
    const float m = stats[at * 2], l = stats[at * 2 + 1];

    float acc[(D + PER_ROW - 1) / PER_ROW] = {};
    for (int k0 = 0; k0 < Nk; k0 += KEYS) {
        __syncthreads();
        load_tile<D>(k_tile, keys, k0, Nk);
        load_tile<D>(v_tile, values, k0, Nk);
        __syncthreads();
        for (int j = t; j < KEYS; j += PER_ROW) {
            const float s = dot<D>(q_tile[r], k_tile[j]) * scale;
            p_tile[r][j] = k0 + j < seen ? expf(s - m) : 0.0f;
        }
        __syncwarp();
        for (int j = 0; j < KEYS; ++j)
            for (int d = t; d < D; d += PER_ROW) acc[d / PER_ROW] += p_tile[r][j] * v_tile[j][d];
    }
    if (row < Nq)
        for (int d = t; d < D; d += PER_ROW) O[at * D + d] = ELEMENT(l > 0.0f ? acc[d / PER_ROW] / l : 0.0f);
}
