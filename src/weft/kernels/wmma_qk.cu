// Fused attention with Q Kᵀ on tensor cores and P V still on CUDA cores.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      From `fa1` to `wmma` one product at a time, so that a wrong result shows the product. The opaque WMMA
//           fragments store the scores to shared memory. From then on a warp owns entire rows and its lanes own columns
//           of the output, so m, l and U stay in registers:
//               S = Q Kᵀ · scale,   m' = max(m, max_n S),   P = exp(S - m'),   r = exp(m - m'),
//               l' = l · r + Σ_n P,   U' = U · r + P V,   and after the last tile O = U / l
//           P stays fp32: the remaining error is that of Q Kᵀ and the rounding of O.
// History   The product needs K[n][d] as an operand [d][n]. Loaded as a row-major fragment it is Q K, which is wrong
//           and still looks like scores. The lever K_TRANSPOSE selects one of two correct ways.
// Levers    K_TRANSPOSE: `fragment` keeps [n][d] in shared memory and loads it as a column-major fragment; `copy`
//           transposes while storing, which costs bank conflicts in the stores. BLOCK_M and BLOCK_N, if the tiles fit
//           48 KB of shared memory; WARPS.
// Supports  fp16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf.
//
// weft: sizes   B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
// weft: define  CAUSAL = 0
// weft: define  K_TRANSPOSE = "fragment"
// weft: define  BLOCK_M = 32
// weft: define  BLOCK_N = 32
// weft: define  WARPS = 4
// weft: in      q    : f16[B, HQ, SQ, D] = normal
// weft: in      k, v : f16[B, HKV, SKV, D] = normal
// weft: out     o    : f16[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  wmma_qk_attention<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS)

#include <assert.h>
#include <cuda_fp16.h>
#include <math_constants.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

enum class KTranspose { fragment, copy };
constexpr bool TRANSPOSED_COPY = KTranspose::K_TRANSPOSE == KTranspose::copy;

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int FRAG = 16;        // a fragment is 16×16
constexpr int THREADS = 32 * WARPS;
constexpr int ROWS = BLOCK_M / WARPS;  // score rows of one warp
constexpr int PAD_HALF = 8;     // 16 bytes: rows start in different banks, and 16 of them stay 32-byte aligned
constexpr int PAD_FLOAT = 4;
constexpr int S_STRIDE = BLOCK_N + PAD_FLOAT;

static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");
static_assert(BLOCK_M % FRAG == 0 && BLOCK_N % 32 == 0, "tiles are whole fragments, score rows whole warps");
static_assert(BLOCK_M % WARPS == 0, "every warp owns as many rows");

// The head dimension as the tile sees it: complete fragments, columns from D on are zero.
template <int D>
struct Head {
    static constexpr int COLUMNS = (D + FRAG - 1) / FRAG * FRAG;
    static constexpr int STRIDE = COLUMNS + PAD_HALF;
    static constexpr int PER_LANE = (D + 31) / 32;     // columns of the output that one lane owns
    static constexpr int VECTOR = D % 8 == 0 ? 8 : 1;  // elements per access: 16 bytes where rows are aligned to it
    struct alignas(VECTOR * sizeof(half)) Vector { half at[VECTOR]; };
};

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

// tile[r · row_stride + d · column_stride] = head[first + r][d]; rows from `rows` on and columns from D on become zero.
// column_stride = 1 copies, row_stride = 1 transposes.
template <int D, int TILE_ROWS, int ROW_STRIDE, int COLUMN_STRIDE>
__device__ void load_tile(half* tile, const half* __restrict__ head, int first, int rows) {
    using H = Head<D>;
    using Vector = typename H::Vector;
    constexpr int VECTORS = H::COLUMNS / H::VECTOR;
    // A constant number of rounds, so that all their loads are in flight at once.
#pragma unroll
    for (int round = 0; round < TILE_ROWS * VECTORS; round += THREADS) {
        const int i = round + threadIdx.x;
        if (i >= TILE_ROWS * VECTORS) break;
        const int row = i / VECTORS, column = i % VECTORS * H::VECTOR;
        Vector value = {};
        if (first + row < rows && column < D)
            value = *reinterpret_cast<const Vector*>(head + size_t(first + row) * D + column);
        half* const target = tile + row * ROW_STRIDE + column * COLUMN_STRIDE;
        if constexpr (COLUMN_STRIDE == 1) {
            *reinterpret_cast<Vector*>(target) = value;
        } else {
#pragma unroll
            for (int j = 0; j < H::VECTOR; ++j) target[j * COLUMN_STRIDE] = value.at[j];
        }
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
wmma_qk_attention(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                  half* __restrict__ o, float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    static_assert(1 <= D && D <= 128, "D is 1 to 128");
    using H = Head<D>;
    constexpr int KT_STRIDE = BLOCK_N + PAD_HALF;
    constexpr int K_SIZE = TRANSPOSED_COPY ? H::COLUMNS * KT_STRIDE : BLOCK_N * H::STRIDE;
    __shared__ __align__(128) half sQ[BLOCK_M * H::STRIDE];
    __shared__ __align__(128) half sK[K_SIZE];  // [n][d], or [d][n] if the copy transposes
    __shared__ __align__(128) half sV[BLOCK_N * H::STRIDE];
    __shared__ __align__(128) float sS[BLOCK_M][S_STRIDE];
    static_assert(sizeof(sQ) + sizeof(sK) + sizeof(sV) + sizeof(sS) <= 48 * 1024,
                  "the tiles exceed 48 KB of shared memory; reduce BLOCK_M or BLOCK_N");

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_query = blockIdx.x * BLOCK_M;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    assert(HQ % HKV == 0);
    const size_t q_head = size_t(b) * HQ + h;                 // [b, h]
    const size_t kv_head = size_t(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]

    load_tile<D, BLOCK_M, H::STRIDE, 1>(sQ, q + q_head * SQ * D, first_query, SQ);

    // Row r of this warp is row warp · ROWS + r of the tile; every lane has its m and l.
    float m[ROWS], l[ROWS], u[ROWS][H::PER_LANE];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        m[r] = -CUDART_INF_F;
        l[r] = 0.0f;
        for (int c = 0; c < H::PER_LANE; ++c) u[r][c] = 0.0f;
    }

    // The last query of the CTA sees the most keys.
    const int end = visible_keys(min(first_query + BLOCK_M, SQ) - 1, SQ, SKV);
    for (int first_key = 0; first_key < end; first_key += BLOCK_N) {
        if constexpr (TRANSPOSED_COPY)
            load_tile<D, BLOCK_N, 1, KT_STRIDE>(sK, k + kv_head * SKV * D, first_key, SKV);
        else
            load_tile<D, BLOCK_N, H::STRIDE, 1>(sK, k + kv_head * SKV * D, first_key, SKV);
        load_tile<D, BLOCK_N, H::STRIDE, 1>(sV, v + kv_head * SKV * D, first_key, SKV);
        __syncthreads();

        // S[m][n] = Σ_d Q[m][d] · K[n][d]
#pragma unroll 1  // a warp takes one fragment or a few: four copies would only cost registers
        for (int f = warp; f < (BLOCK_M / FRAG) * (BLOCK_N / FRAG); f += WARPS) {
            const int row = f / (BLOCK_N / FRAG) * FRAG, column = f % (BLOCK_N / FRAG) * FRAG;
            wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> scores;
            wmma::fill_fragment(scores, 0.0f);
            for (int d = 0; d < H::COLUMNS; d += FRAG) {
                wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, half, wmma::row_major> a;
                wmma::load_matrix_sync(a, sQ + row * H::STRIDE + d, H::STRIDE);
                if constexpr (TRANSPOSED_COPY) {
                    wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, half, wmma::row_major> b;  // Kᵀ[d][n], unchanged
                    wmma::load_matrix_sync(b, sK + d * KT_STRIDE + column, KT_STRIDE);
                    wmma::mma_sync(scores, a, b, scores);
                } else {
                    wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, half, wmma::col_major> b;  // K[n][d] seen as Kᵀ
                    wmma::load_matrix_sync(b, sK + column * H::STRIDE + d, H::STRIDE);
                    wmma::mma_sync(scores, a, b, scores);
                }
            }
            wmma::store_matrix_sync(&sS[row][column], scores, S_STRIDE, wmma::mem_row_major);
        }
        __syncthreads();

        // P replaces S in place: from here on a row of sS belongs to one warp.
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int row = warp * ROWS + r;
            const int visible = visible_keys(first_query + row, SQ, SKV) - first_key;
            float score[BLOCK_N / 32], row_max = -CUDART_INF_F;
#pragma unroll
            for (int j = 0; j < BLOCK_N / 32; ++j) {
                const int column = j * 32 + lane;
                score[j] = column < visible ? sS[row][column] * scale : -CUDART_INF_F;
                row_max = fmaxf(row_max, score[j]);
            }
            const float m_new = fmaxf(m[r], warp_max(row_max));
            // A row that has seen no key yet has m_new = -inf, and exp(-inf - (-inf)) is NaN. With 0 in its place
            // every exponential is exp(-inf) = 0: P, l and U stay 0.
            const float m_safe = m_new == -CUDART_INF_F ? 0.0f : m_new;
            float row_sum = 0.0f;
#pragma unroll
            for (int j = 0; j < BLOCK_N / 32; ++j) {
                const float p = __expf(score[j] - m_safe);
                sS[row][j * 32 + lane] = p;
                row_sum += p;
            }
            const float rescale = __expf(m[r] - m_safe);
            l[r] = l[r] * rescale + warp_sum(row_sum);
            for (int c = 0; c < H::PER_LANE; ++c) u[r][c] *= rescale;
            m[r] = m_new;
        }
        __syncwarp();  // P of these rows is visible to all lanes

        // U[m][d] += Σ_n P[m][n] · V[n][d]: V[n][d] is read once for all rows of the warp, P is a broadcast.
        for (int n = 0; n < BLOCK_N; ++n) {
            float value[H::PER_LANE];
#pragma unroll
            for (int c = 0; c < H::PER_LANE; ++c) {
                const int d = c * 32 + lane;
                value[c] = d < D ? __half2float(sV[n * H::STRIDE + d]) : 0.0f;
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float p = sS[warp * ROWS + r][n];
                for (int c = 0; c < H::PER_LANE; ++c) u[r][c] += p * value[c];
            }
        }
        __syncthreads();  // sK, sV and sS are free for the next tile
    }

    // O = U / l, LSE = m + log l. l = 0 means that no key is visible; a NaN is not 0, and remains a NaN in both.
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int query = first_query + warp * ROWS + r;
        if (query >= SQ) break;
        const float inverse = l[r] == 0.0f ? 0.0f : 1.0f / l[r];
        for (int c = 0; c < H::PER_LANE; ++c) {
            const int d = c * 32 + lane;
            if (d < D) o[(q_head * SQ + query) * D + d] = __float2half_rn(u[r][c] * inverse);
        }
        if (lane == 0) lse[q_head * SQ + query] = l[r] == 0.0f ? -CUDART_INF_F : m[r] + logf(l[r]);
    }
}
