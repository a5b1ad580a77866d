// Fused attention, scalar fp32 arithmetic on fp16 arrays: O = softmax(Q Kᵀ · scale) V in one pass over the keys.
//
// Every thread owns one query. A CTA walks the keys in tiles that it shares; each new key rescales what was
// summed so far (online softmax):
//     m' = max(m, s),   l' = l · exp(m - m') + exp(s - m'),   o' = o · exp(m - m') + exp(s - m') · v
// S need not be a multiple of anything: the last tile is short.
//
// weft: sizes   B=1 H=2 S=77 D=32 causal=1
// weft: define  TILE = 32
// weft: in      q, k, v : f16[B, H, S, D] = normal
// weft: out     o       : f16[B, H, S, D]
// weft: scalar  scale   : f32 = 1 / sqrt(D)
// weft: launch  attention<{D}, {causal == 1}>(q, k, v, o, S, scale)
// weft:         grid(cdiv(S, TILE), H, B) block(TILE) shared(2 * TILE * D * 2)

#include <cuda_fp16.h>
#include <math_constants.h>

template <int D, bool CAUSAL>
__global__ void __launch_bounds__(TILE)
attention(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
          half* __restrict__ o, int S, float scale) {
    extern __shared__ half tiles[];
    half* const k_tile = tiles;
    half* const v_tile = tiles + TILE * D;

    const size_t head = (size_t(blockIdx.z) * gridDim.y + blockIdx.y) * S * D;
    const int query = blockIdx.x * TILE + threadIdx.x;

    float q_row[D], o_row[D];
    for (int d = 0; d < D; ++d) {
        q_row[d] = query < S ? __half2float(q[head + size_t(query) * D + d]) * scale : 0.0f;
        o_row[d] = 0.0f;
    }
    float m = -CUDART_INF_F, l = 0.0f;

    const int end = CAUSAL ? min(S, int(blockIdx.x + 1) * TILE) : S;
    for (int first = 0; first < end; first += TILE) {
        const int keys = min(TILE, S - first);
        __syncthreads();  // everybody is done with the tile before
        for (int i = threadIdx.x; i < keys * D; i += TILE) {
            k_tile[i] = k[head + size_t(first) * D + i];
            v_tile[i] = v[head + size_t(first) * D + i];
        }
        __syncthreads();
        for (int j = 0; j < keys; ++j) {
            if (CAUSAL && first + j > query) break;
            float s = 0.0f;
            for (int d = 0; d < D; ++d) s += q_row[d] * __half2float(k_tile[j * D + d]);
            const float m_new = fmaxf(m, s);
            const float rescale = expf(m - m_new), p = expf(s - m_new);
            for (int d = 0; d < D; ++d) o_row[d] = o_row[d] * rescale + p * __half2float(v_tile[j * D + d]);
            l = l * rescale + p;
            m = m_new;
        }
    }
    if (query < S)
        for (int d = 0; d < D; ++d) o[head + size_t(query) * D + d] = __float2half(o_row[d] / l);
}
