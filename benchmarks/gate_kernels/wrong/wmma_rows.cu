// f16 only. One warp has 16 queries and multiplies on tensor cores, 16 keys at a time; columns are padded to 16 with zeros.
// U is in shared memory; wide rows are rescaled in two halves.
//
// wrong 1 padding: where D is no multiple of 16, the padding of Q and K is left as it was found (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=20 D=40 f16 none unit_normal)
// wrong 2 wide_rescale: for D > 96 only the first half of the columns is rescaled (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=40 D=128 f16 none sorted_keys)
// wrong 3 rest_of_16: a last tile of one key, SKV % 16 = 1, is left out (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=17 D=32 f16 none unit_normal)
// wrong 4 blind_rows: a block of 16 queries of which some see no key (SQ - SKV no multiple of 16) divides 0 by 0 (seen at B=1 HQ=1 HKV=1 SQ=21 SKV=16 D=32 f16 bottom_right unit_normal)
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
// weft: define  CAUSAL = 0
// weft: define  WRONG = 0
// weft: in      q    : f16[B, HQ, SQ, D] = normal
// weft: in      k, v : f16[B, HKV, SKV, D] = normal
// weft: out     o    : f16[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  wmma_rows<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 16), HQ, B) block(32)

#include <cuda_fp16.h>
#include <math_constants.h>
#include <mma.h>

using namespace nvcuda::wmma;

// 16 rows of x into shared memory; rows after the last and columns from D on are zero.
template <int D, int PADDED>
__device__ void fill(half* tile, const half* x, int rows, bool pad) {
    for (int i = threadIdx.x; i < 16 * PADDED; i += 32) {
        const int r = i / PADDED, d = i % PADDED;
        if (d < D) tile[i] = r < rows ? x[size_t(r) * D + d] : __float2half(0.0f);
        else if (pad) tile[i] = __float2half(0.0f);
    }
}

template <int D>
__global__ void wmma_rows(const half* q, const half* k, const half* v, half* o, float* lse, int HKV, int SQ, int SKV,
                          float scale) {
    constexpr int PADDED = (D + 15) / 16 * 16;
    __shared__ __align__(32) half q_tile[16 * PADDED], tile[16 * PADDED], p_tile[256];
    __shared__ __align__(32) float s_tile[256], u[16 * PADDED], factors[16];
    const int lane = threadIdx.x, first_query = blockIdx.x * 16, h = blockIdx.y, b = blockIdx.z;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + first_query;
    const size_t kv = (size_t(b) * HKV + h / (gridDim.y / HKV)) * SKV * D;
    const int query = first_query + lane % 16;
    const int visible = CAUSAL ? max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1)) : SKV;
    const int block_sees = __shfl_sync(~0u, visible, 15);
    fill<D, PADDED>(q_tile, q + row * D, SQ - first_query, WRONG != 1);
    for (int i = lane; i < 16 * PADDED; i += 32) u[i] = 0.0f;
    float m = -CUDART_INF_F, l = 0.0f;
    const int tiles = (SKV + (WRONG == 3 ? 14 : 15)) / 16;
    for (int t = 0; t < tiles && t * 16 < block_sees; ++t) {
        fill<D, PADDED>(tile, k + kv + size_t(t) * 16 * D, SKV - t * 16, WRONG != 1);
        __syncwarp();
        fragment<accumulator, 16, 16, 16, float> sums;
        fragment<matrix_a, 16, 16, 16, half, row_major> a;
        fill_fragment(sums, 0.0f);
        for (int c = 0; c < PADDED; c += 16) {
            fragment<matrix_b, 16, 16, 16, half, col_major> k_t;
            load_matrix_sync(a, q_tile + c, PADDED);
            load_matrix_sync(k_t, tile + c, PADDED);
            mma_sync(sums, a, k_t, sums);
        }
        store_matrix_sync(s_tile, sums, 16, mem_row_major);
        __syncwarp();
        fill<D, PADDED>(tile, v + kv + size_t(t) * 16 * D, SKV - t * 16, true);
        if (lane < 16) {
            float m_new = m, sum = 0.0f;
            const int keys = min(16, visible - t * 16);
            for (int i = 0; i < keys; ++i) m_new = fmaxf(m_new, s_tile[lane * 16 + i] * scale);
            const float base = m_new == -CUDART_INF_F && WRONG != 4 ? 0.0f : m_new;
            for (int i = 0; i < 16; ++i) {
                const float p = i < keys ? expf(s_tile[lane * 16 + i] * scale - base) : 0.0f;
                p_tile[lane * 16 + i] = __float2half(p);
                sum += p;
            }
            factors[lane] = expf(m - base);
            l = l * factors[lane] + sum;
            m = m_new;
        }
        __syncwarp();
        constexpr int HALF = PADDED > 96 ? PADDED / 2 : PADDED;
        for (int i = lane; i < 16 * HALF; i += 32) u[i / HALF * PADDED + i % HALF] *= factors[i / HALF];
        if constexpr (HALF < PADDED && WRONG != 2)
            for (int i = lane; i < 16 * HALF; i += 32) u[i / HALF * PADDED + HALF + i % HALF] *= factors[i / HALF];
        __syncwarp();
        load_matrix_sync(a, p_tile, 16);
        for (int c = 0; c < PADDED; c += 16) {
            fragment<matrix_b, 16, 16, 16, half, row_major> values;
            load_matrix_sync(sums, u + c, PADDED, mem_row_major);
            load_matrix_sync(values, tile + c, PADDED);
            mma_sync(sums, a, values, sums);
            store_matrix_sync(u + c, sums, PADDED, mem_row_major);
        }
        __syncwarp();
    }
    if (lane < 16) factors[lane] = l == 0.0f ? 0.0f : 1.0f / l;
    if (lane < 16 && query < SQ) lse[row + lane] = m + logf(l);
    __syncwarp();
    for (int i = lane; i < 16 * PADDED; i += 32) {
        const int r = i / PADDED, d = i % PADDED;
        if (first_query + r < SQ && d < D) o[(row + r) * D + d] = __float2half(u[i] * factors[r]);
    }
}
