// Fused attention with both products on tensor cores, in WMMA fragments of 16×16×16 with fp32 accumulation.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      A CTA owns BLOCK_M queries and iterates over the keys in tiles of BLOCK_N. A WMMA fragment is opaque: code
//           cannot know which lane holds which element. So S, P and the unnormalised output U are in shared memory,
//           and the softmax between the two products is ordinary code there, one warp per row:
//               S = Q Kᵀ · scale,   m' = max(m, max_n S),   P = exp(S - m'),   r = exp(m - m'),
//               l' = l · r + Σ_n P,   U' = U · r + P V,   and after the last tile O = U / l
//           Partial tiles are complete tiles padded with zeros: rows beyond the sequence, columns from D to the next
//           multiple of 16.
// History   `wmma_qk` left P V, half of the work, on CUDA cores. The cost of moving it: P is rounded to ELEMENT for its
//           fragment (l sums the unrounded P), and U is stored to and loaded from shared memory in every tile.
// Levers    BLOCK_M and BLOCK_N, if the tiles fit 48 KB of shared memory; WARPS.
// Supports  ELEMENT half, __nv_bfloat16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf.
//
// weft: sizes   B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  BLOCK_M = 32
// weft: define  BLOCK_N = 32
// weft: define  WARPS = 4
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  wmma_attention<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

using T = ELEMENT;

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int FRAG = 16;       // a fragment is 16×16, and so is every piece of work a warp takes
constexpr int THREADS = 32 * WARPS;
constexpr int PAD_T = 8;       // 16 bytes: rows start in different banks, and 16 of them stay 32-byte aligned
constexpr int PAD_FLOAT = 4;
constexpr int S_STRIDE = BLOCK_N + PAD_FLOAT;
constexpr int P_STRIDE = BLOCK_N + PAD_T;

static_assert(sizeof(T) == 2, "WMMA 16×16×16 takes half or __nv_bfloat16");
static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");
static_assert(BLOCK_M % FRAG == 0 && BLOCK_N % 32 == 0, "tiles are whole fragments, score rows whole warps");

// The head dimension as the tile sees it: complete fragments, columns from D on are zero.
template <int D>
struct Head {
    static constexpr int COLUMNS = (D + FRAG - 1) / FRAG * FRAG;
    static constexpr int STRIDE = COLUMNS + PAD_T;
    static constexpr int U_STRIDE = COLUMNS + PAD_FLOAT;
    static constexpr int VECTOR = D % 8 == 0 ? 8 : 1;  // elements per access: 16 bytes where rows are aligned to it
    struct alignas(VECTOR * sizeof(T)) Vector { T at[VECTOR]; };
};

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

// tile[r][d] = head[first + r][d]; rows from `rows` on and columns from D on become zero. Zero rows of K only save a
// check, those of V are needed: P is 0 there, and 0 · NaN is NaN.
template <int D, int TILE_ROWS>
__device__ void load_tile(T (*tile)[Head<D>::STRIDE], const T* __restrict__ head, int first, int rows) {
    using H = Head<D>;
    constexpr int VECTORS = H::COLUMNS / H::VECTOR;
    // A constant number of rounds, so that all their loads are in flight at once.
#pragma unroll
    for (int round = 0; round < TILE_ROWS * VECTORS; round += THREADS) {
        const int i = round + threadIdx.x;
        if (i >= TILE_ROWS * VECTORS) break;
        const int row = i / VECTORS, column = i % VECTORS * H::VECTOR;
        typename H::Vector value = {};
        if (first + row < rows && column < D)
            value = *reinterpret_cast<const typename H::Vector*>(head + size_t(first + row) * D + column);
        *reinterpret_cast<typename H::Vector*>(&tile[row][column]) = value;
    }
}

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

template <int D>
__global__ void __launch_bounds__(THREADS)
wmma_attention(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ o,
               float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    static_assert(1 <= D && D <= 128, "D is 1 to 128");
    using H = Head<D>;
    __shared__ __align__(128) T sQ[BLOCK_M][H::STRIDE];
    __shared__ __align__(128) T sKV[BLOCK_N][H::STRIDE];  // K and V in turn
    __shared__ __align__(128) float sS[BLOCK_M][S_STRIDE];
    __shared__ __align__(128) T sP[BLOCK_M][P_STRIDE];
    __shared__ __align__(128) float sU[BLOCK_M][H::U_STRIDE];
    __shared__ float sM[BLOCK_M], sL[BLOCK_M];
    static_assert(sizeof(sQ) + sizeof(sKV) + sizeof(sS) + sizeof(sP) + sizeof(sU) + sizeof(sM) + sizeof(sL) <= 48 * 1024,
                  "the tiles exceed 48 KB of shared memory; reduce BLOCK_M or BLOCK_N");

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_query = blockIdx.x * BLOCK_M;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    assert(HQ % HKV == 0);
    const size_t q_head = size_t(b) * HQ + h;                 // [b, h]
    const size_t kv_head = size_t(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const T* const k_head = k + kv_head * SKV * D;
    const T* const v_head = v + kv_head * SKV * D;

    load_tile<D, BLOCK_M>(sQ, q + q_head * SQ * D, first_query, SQ);
    for (int i = threadIdx.x; i < BLOCK_M * H::COLUMNS; i += THREADS) sU[i / H::COLUMNS][i % H::COLUMNS] = 0.0f;
    for (int i = threadIdx.x; i < BLOCK_M; i += THREADS) {
        sM[i] = -CUDART_INF_F;
        sL[i] = 0.0f;
    }

    // The last query of the CTA sees the most keys.
    const int end = visible_keys(min(first_query + BLOCK_M, SQ) - 1, SQ, SKV);
    for (int first_key = 0; first_key < end; first_key += BLOCK_N) {
        load_tile<D, BLOCK_N>(sKV, k_head, first_key, SKV);
        __syncthreads();

        // S[m][n] = Σ_d Q[m][d] · K[n][d]: sKV is [n][d], and its column-major view is Kᵀ.
#pragma unroll 1  // a warp takes one fragment or a few: four copies would only cost registers
        for (int f = warp; f < (BLOCK_M / FRAG) * (BLOCK_N / FRAG); f += WARPS) {
            const int row = f / (BLOCK_N / FRAG) * FRAG, column = f % (BLOCK_N / FRAG) * FRAG;
            wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> scores;
            wmma::fill_fragment(scores, 0.0f);
            for (int d = 0; d < H::COLUMNS; d += FRAG) {
                wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, T, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, T, wmma::col_major> b;
                wmma::load_matrix_sync(a, &sQ[row][d], H::STRIDE);
                wmma::load_matrix_sync(b, &sKV[column][d], H::STRIDE);
                wmma::mma_sync(scores, a, b, scores);
            }
            wmma::store_matrix_sync(&sS[row][column], scores, S_STRIDE, wmma::mem_row_major);
        }
        __syncthreads();

        load_tile<D, BLOCK_N>(sKV, v_head, first_key, SKV);  // the product above is done

        for (int row = warp; row < BLOCK_M; row += WARPS) {
            const int visible = visible_keys(first_query + row, SQ, SKV) - first_key;
            float score[BLOCK_N / 32], row_max = -CUDART_INF_F;
#pragma unroll
            for (int j = 0; j < BLOCK_N / 32; ++j) {
                const int column = j * 32 + lane;
                score[j] = column < visible ? sS[row][column] * scale : -CUDART_INF_F;
                row_max = fmaxf(row_max, score[j]);
            }
            const float m_old = sM[row], m_new = fmaxf(m_old, warp_max(row_max));
            // A row that has seen no key yet has m_new = -inf, and exp(-inf - (-inf)) is NaN. With 0 in its place
            // every exponential is exp(-inf) = 0: P, l and U stay 0.
            const float m_safe = m_new == -CUDART_INF_F ? 0.0f : m_new;
            float row_sum = 0.0f;
#pragma unroll
            for (int j = 0; j < BLOCK_N / 32; ++j) {
                const float p = __expf(score[j] - m_safe);
                sP[row][j * 32 + lane] = T(p);
                row_sum += p;
            }
            row_sum = warp_sum(row_sum);
            const float rescale = __expf(m_old - m_safe);
            for (int column = lane; column < H::COLUMNS; column += 32) sU[row][column] *= rescale;
            __syncwarp();  // every lane has read sM[row]
            if (lane == 0) {
                sM[row] = m_new;
                sL[row] = sL[row] * rescale + row_sum;
            }
        }
        __syncthreads();

        // U[m][d] += Σ_n P[m][n] · V[n][d]
#pragma unroll 1  // a warp takes one fragment or a few: four copies would only cost registers
        for (int f = warp; f < (BLOCK_M / FRAG) * (H::COLUMNS / FRAG); f += WARPS) {
            const int row = f / (H::COLUMNS / FRAG) * FRAG, column = f % (H::COLUMNS / FRAG) * FRAG;
            wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> u;
            wmma::load_matrix_sync(u, &sU[row][column], H::U_STRIDE, wmma::mem_row_major);
            for (int n = 0; n < BLOCK_N; n += FRAG) {
                wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, T, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, T, wmma::row_major> b;
                wmma::load_matrix_sync(a, &sP[row][n], P_STRIDE);
                wmma::load_matrix_sync(b, &sKV[n][column], H::STRIDE);
                wmma::mma_sync(u, a, b, u);
            }
            wmma::store_matrix_sync(&sU[row][column], u, H::U_STRIDE, wmma::mem_row_major);
        }
        __syncthreads();  // sKV, sP and sU are free for the next tile
    }
    __syncthreads();  // needed by a CTA that saw no tile: its zeros were written by other threads

    // O = U / l, LSE = m + log l. l = 0 means that no key is visible; a NaN is not 0, and remains a NaN in both.
    for (int i = threadIdx.x; i < BLOCK_M * (D / H::VECTOR); i += THREADS) {
        const int row = i / (D / H::VECTOR), column = i % (D / H::VECTOR) * H::VECTOR;
        if (first_query + row >= SQ) break;  // so are all later ones
        const float inverse = sL[row] == 0.0f ? 0.0f : 1.0f / sL[row];
        typename H::Vector value;
#pragma unroll
        for (int j = 0; j < H::VECTOR; ++j) value.at[j] = T(sU[row][column + j] * inverse);
        *reinterpret_cast<typename H::Vector*>(o + (q_head * SQ + first_query + row) * D + column) = value;
    }
    for (int row = threadIdx.x; row < BLOCK_M && first_query + row < SQ; row += THREADS)
        lse[q_head * SQ + first_query + row] = sL[row] == 0.0f ? -CUDART_INF_F : sM[row] + logf(sL[row]);
}
