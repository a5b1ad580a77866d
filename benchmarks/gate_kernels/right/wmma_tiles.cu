// WMMA 16x16x16: one warp owns 16 queries and walks 16 keys at a time; S, P and U pass through shared memory between
// the fragments, and tiles are padded with zeros.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    CAUSAL = 0
// weft: require   D <= 256
// weft: in        q    : f16[B, HQ, SQ, D] = normal
// weft: in        k, v : f16[B, HKV, SKV, D] = normal
// weft: out       o    : f16[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    wmma_tiles<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 16), HQ, B) block(32)
#include <cuda_fp16.h>
#include <mma.h>
#include <math_constants.h>

using T = half;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

namespace wmma = nvcuda::wmma;

template <int D>
__device__ void load_tile(T* tile, const T* head, int first, int rows) {  // 16 rows of C columns
    constexpr int C = (D + 15) / 16 * 16;
    for (int i = threadIdx.x; i < 16 * C; i += 32)
        tile[i] = first + i / C < rows && i % C < D ? head[size_t(first + i / C) * D + i % C] : T(0.0f);
}

template <int D>
__global__ void __launch_bounds__(32)
wmma_tiles(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int C = (D + 15) / 16 * 16;  // columns, padded
    __shared__ alignas(32) T sQ[16 * C], sK[16 * C], sV[16 * C], sP[256];
    __shared__ alignas(32) float sS[256], sU[16 * C], sRescale[16];
    const int lane = threadIdx.x, first_query = blockIdx.x * 16, row = lane / 2, part = lane % 2;  // two lanes per row
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    load_tile<D>(sQ, q + q_head * SQ * D, first_query, SQ);
    for (int i = lane; i < 16 * C; i += 32) sU[i] = 0.0f;
    float m = -CUDART_INF_F, l = 0.0f;
    const int visible = visible_keys(first_query + row, SQ, SKV);
    const int end = visible_keys(min(first_query + 16, SQ) - 1, SQ, SKV);
    for (int first = 0; first < end; first += 16) {
        load_tile<D>(sK, k + kv_head * SKV * D, first, SKV);
        load_tile<D>(sV, v + kv_head * SKV * D, first, SKV);
        __syncwarp();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
        wmma::fill_fragment(c, 0.0f);
        for (int d = 0; d < C; d += 16) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> b_t;
            wmma::load_matrix_sync(a, sQ + d, C);
            wmma::load_matrix_sync(b_t, sK + d, C);
            wmma::mma_sync(c, a, b_t, c);
        }
        wmma::store_matrix_sync(sS, c, 16, wmma::mem_row_major);
        __syncwarp();
        float s[8], top = -CUDART_INF_F, sum = 0.0f;
        for (int j = 0; j < 8; ++j) {
            s[j] = first + part * 8 + j < visible ? sS[row * 16 + part * 8 + j] * scale : -CUDART_INF_F;
            top = fmaxf(top, s[j]);
        }
        const float m_new = fmaxf(m, fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1)));
        const float shift = m_new == -CUDART_INF_F ? 0.0f : m_new, rescale = expf(m - shift);
        for (int j = 0; j < 8; ++j) {
            const float p = expf(s[j] - shift);
            sP[row * 16 + part * 8 + j] = T(p);
            sum += p;
        }
        l = l * rescale + sum + __shfl_xor_sync(0xffffffffu, sum, 1);
        m = m_new;
        for (int d = part; d < C; d += 2) sU[row * C + d] *= rescale;
        __syncwarp();
        wmma::load_matrix_sync(a, sP, 16);
        for (int d = 0; d < C; d += 16) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> b_v;
            wmma::load_matrix_sync(c, sU + d, C, wmma::mem_row_major);
            wmma::load_matrix_sync(b_v, sV + d, C);
            wmma::mma_sync(c, a, b_v, c);
            wmma::store_matrix_sync(sU + d, c, C, wmma::mem_row_major);
        }
        __syncwarp();
    }
    __syncwarp();
    if (first_query + row >= SQ) return;
    const size_t at = q_head * SQ + first_query + row;
    for (int d = part; d < D; d += 2) o[at * D + d] = T(l > 0.0f ? sU[row * C + d] / l : 0.0f);
    if (part == 0) lse[at] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
