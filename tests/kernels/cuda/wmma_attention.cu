// O = softmax(Q · Kᵀ · scale) · V on WMMA 16x16x16 fragments, fp16 in and out, fp32 accumulate.
//
// Q, K, V, O are (B, H, S, 64), contiguous; grid (ceil(S / BM), H, B); block 32 * WARPS.
// A CTA owns BM queries and walks the keys in tiles of BN. WMMA fragments are opaque, so the softmax state
// (scores, m, l) and the unnormalised output live in shared memory. K and V take turns in one buffer, which
// keeps every instantiation below 48 KB of static shared memory.
#include <cuda_fp16.h>
#include <math_constants.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr int D = 64;
constexpr int FRAG = 16;
constexpr int PAD_HALF = 8;   // 16 bytes: rows start in different banks, and stay aligned for WMMA
constexpr int PAD_FLOAT = 4;
constexpr int D_PAD = D + PAD_HALF;
constexpr int O_PAD = D + PAD_FLOAT;
constexpr int VECTOR = 8;     // halves per 16-byte load

// Rows [first, first + ROWS) of one head into shared memory; rows from S on become zero.
template <int ROWS, int THREADS>
__device__ void load_tile(half (*tile)[D_PAD], const half* __restrict__ head, int first, int S) {
    constexpr int VECTORS_PER_ROW = D / VECTOR;
    for (int i = threadIdx.x; i < ROWS * VECTORS_PER_ROW; i += THREADS) {
        const int row = i / VECTORS_PER_ROW;
        const int column = i % VECTORS_PER_ROW * VECTOR;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (first + row < S) {
            value = *reinterpret_cast<const uint4*>(head + static_cast<size_t>(first + row) * D + column);
        }
        *reinterpret_cast<uint4*>(&tile[row][column]) = value;
    }
}

__device__ float warp_max(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

__device__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

template <int BM, int BN, int WARPS>
__global__ void __launch_bounds__(32 * WARPS)
wmma_attention(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
               half* __restrict__ o, int S, float scale) {
    static_assert(BM % FRAG == 0 && BN % 32 == 0 && BM % WARPS == 0, "tiles are whole fragments and whole warps");
    constexpr int THREADS = 32 * WARPS;
    constexpr int S_PAD = BN + PAD_FLOAT;
    constexpr int P_PAD = BN + PAD_HALF;

    __shared__ __align__(128) half sQ[BM][D_PAD];
    __shared__ __align__(128) half sKV[BN][D_PAD];
    __shared__ __align__(128) float sS[BM][S_PAD];
    __shared__ __align__(128) half sP[BM][P_PAD];
    __shared__ __align__(128) float sO[BM][O_PAD];
    __shared__ float sM[BM];
    __shared__ float sL[BM];

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int first_query = blockIdx.x * BM;
    const size_t head = (static_cast<size_t>(blockIdx.z) * gridDim.y + blockIdx.y) * S * D;

    load_tile<BM, THREADS>(sQ, q + head, first_query, S);
    for (int i = threadIdx.x; i < BM * D; i += THREADS) sO[i / D][i % D] = 0.0f;
    for (int i = threadIdx.x; i < BM; i += THREADS) {
        sM[i] = -CUDART_INF_F;
        sL[i] = 0.0f;
    }

    for (int first_key = 0; first_key < S; first_key += BN) {
        load_tile<BN, THREADS>(sKV, k + head, first_key, S);
        __syncthreads();

        // S = Q · Kᵀ: sKV is [key][d], so the column-major view of it is Kᵀ.
        for (int f = warp; f < (BM / FRAG) * (BN / FRAG); f += WARPS) {
            const int row = f / (BN / FRAG) * FRAG;
            const int column = f % (BN / FRAG) * FRAG;
            wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> scores;
            wmma::fill_fragment(scores, 0.0f);
            for (int d = 0; d < D; d += FRAG) {
                wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, half, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, half, wmma::col_major> b;
                wmma::load_matrix_sync(a, &sQ[row][d], D_PAD);
                wmma::load_matrix_sync(b, &sKV[column][d], D_PAD);
                wmma::mma_sync(scores, a, b, scores);
            }
            wmma::store_matrix_sync(&sS[row][column], scores, S_PAD, wmma::mem_row_major);
        }
        __syncthreads();

        // V replaces K: every warp has left the product above.
        load_tile<BN, THREADS>(sKV, v + head, first_key, S);

        // One warp per row: m_new, P = exp(S - m_new), l, and the old output times exp(m_old - m_new).
        // The first key of a tile is always inside, so m_new is finite.
        for (int row = warp; row < BM; row += WARPS) {
            float score[BN / 32];
            float row_max = -CUDART_INF_F;
#pragma unroll
            for (int j = 0; j < BN / 32; ++j) {
                const int column = j * 32 + lane;
                score[j] = first_key + column < S ? sS[row][column] * scale : -CUDART_INF_F;
                row_max = fmaxf(row_max, score[j]);
            }
            const float m_old = sM[row];
            const float m_new = fmaxf(m_old, warp_max(row_max));
            float row_sum = 0.0f;
#pragma unroll
            for (int j = 0; j < BN / 32; ++j) {
                const float p = __expf(score[j] - m_new);
                sP[row][j * 32 + lane] = __float2half_rn(p);
                row_sum += p;
            }
            row_sum = warp_sum(row_sum);
            const float rescale = __expf(m_old - m_new);
            for (int column = lane; column < D; column += 32) sO[row][column] *= rescale;
            __syncwarp();  // every lane has read sM[row]
            if (lane == 0) {
                sM[row] = m_new;
                sL[row] = sL[row] * rescale + row_sum;
            }
        }
        __syncthreads();

        // O += P · V
        for (int f = warp; f < (BM / FRAG) * (D / FRAG); f += WARPS) {
            const int row = f / (D / FRAG) * FRAG;
            const int column = f % (D / FRAG) * FRAG;
            wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> out;
            wmma::load_matrix_sync(out, &sO[row][column], O_PAD, wmma::mem_row_major);
            for (int n = 0; n < BN; n += FRAG) {
                wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, half, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, half, wmma::row_major> b;
                wmma::load_matrix_sync(a, &sP[row][n], P_PAD);
                wmma::load_matrix_sync(b, &sKV[n][column], D_PAD);
                wmma::mma_sync(out, a, b, out);
            }
            wmma::store_matrix_sync(&sO[row][column], out, O_PAD, wmma::mem_row_major);
        }
        __syncthreads();  // sKV, sP and sO are free for the next tile
    }

    for (int i = threadIdx.x; i < BM * D / 2; i += THREADS) {
        const int row = i / (D / 2);
        const int column = i % (D / 2) * 2;
        if (first_query + row < S) {
            const float inverse = 1.0f / sL[row];
            const half2 pair = __floats2half2_rn(sO[row][column] * inverse, sO[row][column + 1] * inverse);
            *reinterpret_cast<half2*>(o + head + static_cast<size_t>(first_query + row) * D + column) = pair;
        }
    }
}
