// The plainest attention in fp32: Q, K, V, O are (heads, S, D), contiguous; grid.y is the head.

#include <math_constants.h>

// One thread per query: online softmax with the output row in registers.
template <int D>
__global__ void attention_per_row(const float* __restrict__ q, const float* __restrict__ k,
                                  const float* __restrict__ v, float* __restrict__ o, int S, float scale,
                                  bool causal) {
    const int query = blockIdx.x * blockDim.x + threadIdx.x;
    if (query >= S) return;
    const size_t head = static_cast<size_t>(blockIdx.y) * S * D;

    float q_row[D];
    float out[D];
    for (int d = 0; d < D; ++d) {
        q_row[d] = q[head + static_cast<size_t>(query) * D + d];
        out[d] = 0.0f;
    }
    float m = -CUDART_INF_F;
    float l = 0.0f;
    const int keys = causal ? query + 1 : S;
    for (int key = 0; key < keys; ++key) {
        const float* const k_row = k + head + static_cast<size_t>(key) * D;
        const float* const v_row = v + head + static_cast<size_t>(key) * D;
        float score = 0.0f;
        for (int d = 0; d < D; ++d) score += q_row[d] * k_row[d];
        score *= scale;
        const float m_new = fmaxf(m, score);
        const float rescale = expf(m - m_new);
        const float p = expf(score - m_new);
        for (int d = 0; d < D; ++d) out[d] = out[d] * rescale + p * v_row[d];
        l = l * rescale + p;
        m = m_new;
    }
    for (int d = 0; d < D; ++d) o[head + static_cast<size_t>(query) * D + d] = out[d] / l;
}

// One thread per element of O, any D: the scores are computed twice, once for the maximum and once for the sum.
__global__ void attention_per_element(const float* __restrict__ q, const float* __restrict__ k,
                                      const float* __restrict__ v, float* __restrict__ o, int S, int D,
                                      float scale) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int query = blockIdx.z * blockDim.y + threadIdx.y;
    if (column >= D || query >= S) return;
    const size_t head = static_cast<size_t>(blockIdx.y) * S * D;
    const float* const q_row = q + head + static_cast<size_t>(query) * D;

    float maximum = -CUDART_INF_F;
    for (int key = 0; key < S; ++key) {
        float score = 0.0f;
        for (int d = 0; d < D; ++d) score += q_row[d] * k[head + static_cast<size_t>(key) * D + d];
        maximum = fmaxf(maximum, score * scale);
    }
    float sum = 0.0f;
    float out = 0.0f;
    for (int key = 0; key < S; ++key) {
        float score = 0.0f;
        for (int d = 0; d < D; ++d) score += q_row[d] * k[head + static_cast<size_t>(key) * D + d];
        const float p = expf(score * scale - maximum);
        sum += p;
        out += p * v[head + static_cast<size_t>(key) * D + column];
    }
    o[head + static_cast<size_t>(query) * D + column] = out / sum;
}
