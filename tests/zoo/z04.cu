// Attention on 8-bit codes with every buffer carved from one dynamic block. Wrong with BUG = 1: the tables are in the
// score tile.
//
//     O = softmax(Q Kᵀ · scale) V,   LSE = log Σ_n exp(Q Kᵀ · scale)
//
// A code c stands for (c - 128) · step; tables of 256 values per tensor, in shared memory, decode it. Q Kᵀ is on WMMA in
// fp16, P replaces S in the fp32 score tile, P V is scalar. The offset of the tables was right while scores were fp16.
// With BUG the first tile's P is written over the tables of K and V, so from the second tile on they read
// weights between 0 and 1.0: no sign is left.
//
// weft: sizes   B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
// weft: define  BUG = 1
// weft: define  BLOCK_M = 32
// weft: define  BLOCK_N = 32
// weft: define  WARPS = 8
// weft: in      q_code         : u8[B, HQ, SQ, D] = uniform(0, 256)
// weft: in      k_code, v_code : u8[B, HKV, SKV, D] = uniform(0, 256)
// weft: in      q_scale        : f32[B, HQ] = uniform(0.005, 0.01)
// weft: in      k_scale, v_scale : f32[B, HKV] = uniform(0.005, 0.01)
// weft: out     o              : f16[B, HQ, SQ, D]
// weft: out     lse            : f32[B, HQ, SQ]
// weft: scalar  scale          : f32 = 1 / sqrt(D)
// weft: launch  carved_block<{D}>(q_code, k_code, v_code, q_scale, k_scale, v_scale, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS)
// weft:         shared(2 * (BLOCK_M + 2 * BLOCK_N) * (D + 8) + 4 * BLOCK_M * (BLOCK_N + 4) + 3 * 1024) opt_in_shared

#include <cuda_fp16.h>
#include <math_constants.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int FRAG = 16;
constexpr int THREADS = 32 * WARPS;
constexpr int ROWS = BLOCK_M / WARPS;  // score rows of one warp
constexpr int S_STRIDE = BLOCK_N + 4;

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// tile[r][d] = value of head[first + r][d]; rows from `end` on become zero.
template <int D>
__device__ void load_tile(half* tile, const unsigned char* __restrict__ head, int first, int rows, int end,
                          const float* table) {
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * D; i += THREADS) {
        const int row = i / D, d = i % D;
        const bool inside = first + row < end;
        tile[row * (D + 8) + d] = __float2half_rn(inside ? table[head[size_t(first + row) * D + d]] : 0.0f);
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS)
carved_block(const unsigned char* __restrict__ q, const unsigned char* __restrict__ k,
             const unsigned char* __restrict__ v, const float* __restrict__ q_scale,
             const float* __restrict__ k_scale, const float* __restrict__ v_scale, half* __restrict__ o,
             float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    static_assert(D % FRAG == 0, "whole fragments only");
    constexpr int STRIDE = D + 8, PER_LANE = (D + 31) / 32;
    constexpr int Q_BYTES = BLOCK_M * STRIDE * sizeof(half), KV_BYTES = BLOCK_N * STRIDE * sizeof(half);
    constexpr int S_OFFSET = Q_BYTES + 2 * KV_BYTES;
#if BUG
    constexpr int TABLE_OFFSET = S_OFFSET + BLOCK_M * S_STRIDE * sizeof(half);  // but the scores are fp32
#else
    constexpr int TABLE_OFFSET = S_OFFSET + BLOCK_M * S_STRIDE * sizeof(float);
#endif
    extern __shared__ __align__(128) unsigned char block[];
    half* const sQ = reinterpret_cast<half*>(block);                          // [BLOCK_M][STRIDE]
    half* const sK = reinterpret_cast<half*>(block + Q_BYTES);                // [BLOCK_N][STRIDE]
    half* const sV = reinterpret_cast<half*>(block + Q_BYTES + KV_BYTES);     // [BLOCK_N][STRIDE]
    float* const sS = reinterpret_cast<float*>(block + S_OFFSET);             // [BLOCK_M][S_STRIDE], S and then P
    float* const tables = reinterpret_cast<float*>(block + TABLE_OFFSET);     // [3][256]: K, V, Q

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_query = blockIdx.x * BLOCK_M;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const float step = 448.0f / 127.0f;
    for (int code = threadIdx.x; code < 256; code += THREADS) {
        tables[code] = float(code - 128) * (k_scale[kv_head] * step);
        tables[256 + code] = float(code - 128) * (v_scale[kv_head] * step);
        tables[512 + code] = float(code - 128) * (q_scale[q_head] * step);
    }
    __syncthreads();
    load_tile<D>(sQ, q + q_head * SQ * D, first_query, BLOCK_M, SQ, tables + 512);

    float m[ROWS], l[ROWS], u[ROWS][PER_LANE];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        m[r] = -CUDART_INF_F;
        l[r] = 0.0f;
        for (int c = 0; c < PER_LANE; ++c) u[r][c] = 0.0f;
    }
    for (int first_key = 0; first_key < SKV; first_key += BLOCK_N) {
        load_tile<D>(sK, k + kv_head * SKV * D, first_key, BLOCK_N, SKV, tables);
        load_tile<D>(sV, v + kv_head * SKV * D, first_key, BLOCK_N, SKV, tables + 256);
        __syncthreads();

        // S[m][n] = Σ_d Q[m][d] · K[n][d]
#pragma unroll 1
        for (int f = warp; f < (BLOCK_M / FRAG) * (BLOCK_N / FRAG); f += WARPS) {
            const int row = f / (BLOCK_N / FRAG) * FRAG, column = f % (BLOCK_N / FRAG) * FRAG;
            wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> scores;
            wmma::fill_fragment(scores, 0.0f);
#pragma unroll 1
            for (int d = 0; d < D; d += FRAG) {
                wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, half, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, half, wmma::col_major> bt;
                wmma::load_matrix_sync(a, sQ + row * STRIDE + d, STRIDE);
                wmma::load_matrix_sync(bt, sK + column * STRIDE + d, STRIDE);
                wmma::mma_sync(scores, a, bt, scores);
            }
            wmma::store_matrix_sync(sS + row * S_STRIDE + column, scores, S_STRIDE, wmma::mem_row_major);
        }
        __syncthreads();

        // P replaces S in place: from here on a row of sS belongs to one warp.
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float* const row = sS + (warp * ROWS + r) * S_STRIDE;
            float score[BLOCK_N / 32], row_max = m[r];
#pragma unroll
            for (int j = 0; j < BLOCK_N / 32; ++j) {
                score[j] = first_key + j * 32 + lane < SKV ? row[j * 32 + lane] * scale : -CUDART_INF_F;
                row_max = fmaxf(row_max, score[j]);
            }
            const float m_new = warp_max(row_max), rescale = __expf(m[r] - m_new);
            float row_sum = 0.0f;
#pragma unroll
            for (int j = 0; j < BLOCK_N / 32; ++j) {
                const float p = __expf(score[j] - m_new);
                row[j * 32 + lane] = p;
                row_sum += p;
            }
            l[r] = l[r] * rescale + warp_sum(row_sum);
            for (int c = 0; c < PER_LANE; ++c) u[r][c] *= rescale;
            m[r] = m_new;
        }
        __syncwarp();

#pragma unroll 1
        for (int n = 0; n < BLOCK_N; ++n) {
#pragma unroll
            for (int c = 0; c < PER_LANE; ++c) {
                const int d = c * 32 + lane;
                const float value = d < D ? __half2float(sV[n * STRIDE + d]) : 0.0f;
                for (int r = 0; r < ROWS; ++r) u[r][c] += sS[(warp * ROWS + r) * S_STRIDE + n] * value;
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int query = first_query + warp * ROWS + r;
        if (query >= SQ) break;
        for (int c = 0; c < PER_LANE; ++c) {
            const int d = c * 32 + lane;
            if (d < D) o[(q_head * SQ + query) * D + d] = __float2half_rn(u[r][c] / l[r]);
        }
        if (lane == 0) lse[q_head * SQ + query] = m[r] + logf(l[r]);
    }
}
