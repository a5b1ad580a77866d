// Attention in tiles: a CTA owns BLOCK_M queries and iterates over the keys in tiles of BLOCK_N that its warps share.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      K and V are read from memory once per BLOCK_M queries instead of once per query, and the softmax advances
//           by a tile at a time, so U is rescaled once per BLOCK_N keys instead of once per key:
//               S = Q Kᵀ · scale,   m' = max(m, max_n S),   P = exp(S - m'),   r = exp(m - m'),
//               l' = l · r + Σ_n P,   U' = U · r + P V,   and after the last tile O = U / l
//           A warp owns BLOCK_M / WARPS rows. For S a lane is a key, for P V a lane is a column: lanes
//           exchange P by shuffles, so it stays in registers. K and V use one buffer in turn.
// History   FlashAttention (Dao et al. 2022) has keys in the outer loop and queries in the inner one; U, m and l are in
//           memory. Its successors have queries in the outer loop and one division at the end, and so has this rung.
// Levers    BLOCK_M, BLOCK_N, WARPS.
// Supports  ELEMENT float, half, __nv_bfloat16 (tiles, arithmetic and softmax state are fp32, O is rounded once);
//           any SQ, SKV ≥ 1; any D ≥ 1 whose tiles fit, 4 · (BLOCK_M + BLOCK_N) · (D + 1) bytes of shared memory:
//           D ≤ 512 on sm_89 with the default levers; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  BLOCK_M = 16
// weft: define  BLOCK_N = 32
// weft: define  WARPS = 4
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  fa1_attention<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS)
// weft:         shared((BLOCK_M + BLOCK_N) * (D + 1 - D % 2) * 4) opt_in_shared

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int THREADS = 32 * WARPS;
constexpr int ROWS = BLOCK_M / WARPS;  // queries per warp
constexpr int KEYS = BLOCK_N / 32;     // keys per lane and tile
static_assert(BLOCK_M % WARPS == 0, "a warp owns whole rows of the tile");
static_assert(BLOCK_N % 32 == 0, "a tile has a key for every lane");
static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}

// tile[row][d] = head[first + row][d] in fp32 for `rows` rows; rows from `end` on become zero.
// So does the padding: no code reads it, but the compiler may load it together with its neighbours in a vector load.
template <int D, int STRIDE>
__device__ void load_tile(float* tile, const ELEMENT* __restrict__ head, int first, int rows, int end) {
    for (int i = threadIdx.x; i < rows * STRIDE; i += THREADS) {
        const int row = first + i / STRIDE, d = i % STRIDE;
        tile[i] = row < end && d < D ? float(head[static_cast<size_t>(row) * D + d]) : 0.0f;
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS)
fa1_attention(const ELEMENT* __restrict__ q, const ELEMENT* __restrict__ k, const ELEMENT* __restrict__ v,
              ELEMENT* __restrict__ o, float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int STRIDE = D + 1 - D % 2;    // odd: 32 lanes that read one column of 32 rows use 32 banks
    constexpr int PER_LANE = (D + 31) / 32;  // a lane's columns: lane, lane + 32, lane + 64 …
    extern __shared__ float tiles[];
    float* const sQ = tiles;                      // [BLOCK_M][STRIDE]
    float* const sKV = tiles + BLOCK_M * STRIDE;  // [BLOCK_N][STRIDE], K and V in turn

    const int lane = threadIdx.x % 32;
    const int first_row = threadIdx.x / 32 * ROWS;  // of this warp, in the tile
    const int first_query = blockIdx.x * BLOCK_M;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    assert(HQ % HKV == 0);
    const size_t q_head = static_cast<size_t>(b) * HQ + h;                 // [b, h]
    const size_t kv_head = static_cast<size_t>(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const ELEMENT* const k_head = k + kv_head * SKV * D;
    const ELEMENT* const v_head = v + kv_head * SKV * D;

    load_tile<D, STRIDE>(sQ, q + q_head * SQ * D, first_query, BLOCK_M, SQ);

    int end[ROWS];  // row r sees the keys [0, end[r])
    float m[ROWS], l[ROWS], u[ROWS][PER_LANE];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int query = first_query + first_row + r;
        end[r] = query < SQ ? visible_keys(query, SQ, SKV) : 0;
        m[r] = -CUDART_INF_F;
        l[r] = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) u[r][i] = 0.0f;
    }

    const int last_query = min(first_query + BLOCK_M, SQ) - 1;  // it sees the most keys of the tile
    const int tile_end = visible_keys(last_query, SQ, SKV);
    for (int first_key = 0; first_key < tile_end; first_key += BLOCK_N) {
        __syncthreads();  // every warp is done with V of the tile before
        load_tile<D, STRIDE>(sKV, k_head, first_key, BLOCK_N, SKV);
        __syncthreads();

        // p[r][n] = S[row r][key n · 32 + lane], before the scale
        float p[ROWS][KEYS] = {};
#pragma unroll 4
        for (int d = 0; d < D; ++d) {
#pragma unroll
            for (int n = 0; n < KEYS; ++n) {
                const float k_value = sKV[(n * 32 + lane) * STRIDE + d];
#pragma unroll
                for (int r = 0; r < ROWS; ++r) p[r][n] += sQ[(first_row + r) * STRIDE + d] * k_value;
            }
        }
        __syncthreads();  // every warp is done with K
        load_tile<D, STRIDE>(sKV, v_head, first_key, BLOCK_N, SKV);

#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            // Scale and mask: S = -inf where key ≥ end[r].
            float row_max = m[r];
#pragma unroll
            for (int n = 0; n < KEYS; ++n) {
                const int key = first_key + n * 32 + lane;
                p[r][n] = key < end[r] ? p[r][n] * scale : -CUDART_INF_F;
                row_max = fmaxf(row_max, p[r][n]);
            }
            const float m_new = warp_max(row_max);
            // A row that has seen no key yet would need exp(-inf - -inf); its P and its rescale are 0 by definition.
            const float reference = m_new == -CUDART_INF_F ? 0.0f : m_new;
            const float rescale = expf(m[r] - reference);
            float row_sum = 0.0f;
#pragma unroll
            for (int n = 0; n < KEYS; ++n) {
                p[r][n] = expf(p[r][n] - reference);
                row_sum += p[r][n];
            }
            l[r] = l[r] * rescale + warp_sum(row_sum);
            m[r] = m_new;
#pragma unroll
            for (int i = 0; i < PER_LANE; ++i) u[r][i] *= rescale;
        }
        __syncthreads();  // V is there

        // u[row r][column i · 32 + lane] += Σ_j P[row r][key j] · V[key j][column]
#pragma unroll
        for (int n = 0; n < KEYS; ++n) {
#pragma unroll 4
            for (int j = 0; j < 32; ++j) {
                float v_value[PER_LANE];
#pragma unroll
                for (int i = 0; i < PER_LANE; ++i) {
                    const int d = i * 32 + lane;
                    v_value[i] = d < D ? sKV[(n * 32 + j) * STRIDE + d] : 0.0f;
                }
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    const float weight = __shfl_sync(ALL_LANES, p[r][n], j);
#pragma unroll
                    for (int i = 0; i < PER_LANE; ++i) u[r][i] += weight * v_value[i];
                }
            }
        }
    }

#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int query = first_query + first_row + r;
        if (query >= SQ) break;
        const size_t row = q_head * SQ + query;                   // [b, h, query]
        const float inverse = l[r] > 0.0f ? 1.0f / l[r] : 0.0f;  // l = 0: no visible key
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int d = i * 32 + lane;
            if (d < D) o[row * D + d] = ELEMENT(u[r][i] * inverse);
        }
        if (lane == 0) lse[row] = m[r] + logf(l[r]);  // -inf + log 0 = -inf
    }
}
