// Fused attention on 8-bit codes with both products on tensor cores in fp16 ("stage C").
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      uint8 Q, K, V become fp16 when they are stored to shared memory; the rest is `wmma`, with score tiles of
//           32×32, 4 warps, and U, m and l in shared memory. A code c means x = number · step, where step is the same
//           for an entire head, whose scale is absmax / 448:
//               sim_fp8   number = c - 128, step = scale · 448 / 127
//               e4m3      number = the E4M3 value whose bits c is, step = scale
//           Then, per tile of keys,
//               S = Q Kᵀ · scale,   m' = max(m, max_n S),   P = exp(S - m'),   r = exp(m - m'),
//               l' = l · r + Σ_n P,   U' = U · r + P V,   and after the last tile O = U / l
// History   `fp8_scalar` is the baseline it must agree with. A version with the tables and the score tile in one
//           shared block had a wrong offset: scores overwrote the tables, which then read 1.0. Here every buffer
//           is a separate variable.
// Levers    DEQUANT: `lut` looks x up in a table of 256 per tensor in shared memory, `direct` computes it. Both round
//           the same product once, so the result has the same bits. A look-up is a shared-memory access with random
//           bank conflicts; computing is a conversion, a product and a rounding. BLOCK_M, BLOCK_N, WARPS as in `wmma`.
// Supports  codes u8, ENCODING 0 sim_fp8, 1 e4m3; scales f32 per head, absmax ≤ 65504 (fp16's range); ELEMENT, the type
//           of O: float, half, __nv_bfloat16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf.
//           Generated E4M3 codes are the positive ones, 0 … 126: the full range contains NaN.
//
// weft: sizes   B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  DEQUANT = "lut"
// weft: define  ENCODING = 0
// weft: define  CAUSAL = 0
// weft: define  BLOCK_M = 32
// weft: define  BLOCK_N = 32
// weft: define  WARPS = 4
// weft: in      q_code         : u8[B, HQ, SQ, D] = uniform(0, 256 - 129 * ENCODING)
// weft: in      k_code, v_code : u8[B, HKV, SKV, D] = uniform(0, 256 - 129 * ENCODING)
// weft: in      q_scale        : f32[B, HQ] = uniform(0.005, 0.01)
// weft: in      k_scale, v_scale : f32[B, HKV] = uniform(0.005, 0.01)
// weft: out     o              : ELEMENT[B, HQ, SQ, D]
// weft: out     lse            : f32[B, HQ, SQ]
// weft: scalar  scale          : f32 = 1 / sqrt(D)
// weft: launch  fp8_wmma_attention<{D}>(q_code, k_code, v_code, q_scale, k_scale, v_scale, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

using Code = unsigned char;

enum class Dequant { lut, direct };
constexpr bool TABLES = Dequant::DEQUANT == Dequant::lut;

constexpr bool E4M3 = ENCODING == 1;
constexpr int MIDPOINT = 128;                          // sim_fp8: the code of zero
constexpr float STEP = E4M3 ? 1.0f : 448.0f / 127.0f;  // the value of the number 1, in units of the head's scale
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int FRAG = 16;                     // a fragment is 16×16
constexpr int THREADS = 32 * WARPS;
constexpr int PAD_HALF = 8;                  // 16 bytes: rows start in different banks, 16 of them stay 32-byte aligned
constexpr int PAD_FLOAT = 4;
constexpr int S_STRIDE = BLOCK_N + PAD_FLOAT;
constexpr int P_STRIDE = BLOCK_N + PAD_HALF;

static_assert(ENCODING == 0 || ENCODING == 1, "ENCODING is 0 (sim_fp8) or 1 (e4m3)");
static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");
static_assert(BLOCK_M % FRAG == 0 && BLOCK_N % 32 == 0, "tiles are whole fragments, score rows whole warps");

// The head dimension as the tile sees it: complete fragments, columns from D on are zero.
template <int D>
struct Head {
    static constexpr int COLUMNS = (D + FRAG - 1) / FRAG * FRAG;
    static constexpr int STRIDE = COLUMNS + PAD_HALF;
    static constexpr int U_STRIDE = COLUMNS + PAD_FLOAT;
    static constexpr int VECTOR = D % 8 == 0 ? 8 : 1;  // elements per access: 8 bytes of codes, 16 of values
    struct alignas(VECTOR * sizeof(Code)) Codes { Code at[VECTOR]; };
    struct alignas(VECTOR * sizeof(half)) Values { half at[VECTOR]; };
};

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

// E4M3 is s eeee mmm with the exponent biased by 7; a half is s eeeee mmmmmmmmmm with 15. So the bits of the
// first, moved to those of the second, are its value / 2⁸ (also denormals). 0x7F and 0xFF would be ±480 and are NaN.
__device__ __forceinline__ float e4m3(int code) {
    const half bits = __ushort_as_half(static_cast<unsigned short>((code & 0x80) << 8 | (code & 0x7f) << 7));
    return (code & 0x7f) == 0x7f ? CUDART_NAN_F : __half2float(bits) * 256.0f;
}

// x = number · step, rounded once in fp32 and once to fp16: the only definition, for both values of DEQUANT.
__device__ half decode(int code, float step) {
    return __float2half_rn((E4M3 ? e4m3(code) : float(code - MIDPOINT)) * step);
}

// tile[r][d] = value of head[first + r][d]. Rows from `rows` on and columns from D on become the value zero, which in
// sim_fp8 is code 128, not code 0.
template <int D, int TILE_ROWS>
__device__ void load_tile(half (*tile)[Head<D>::STRIDE], const Code* __restrict__ head, int first, int rows,
                          float step, const half* table) {
    using H = Head<D>;
    constexpr int VECTORS = H::COLUMNS / H::VECTOR;
    // A constant number of rounds, so that all their loads are in flight at once.
#pragma unroll
    for (int round = 0; round < TILE_ROWS * VECTORS; round += THREADS) {
        const int i = round + threadIdx.x;
        if (i >= TILE_ROWS * VECTORS) break;
        const int row = i / VECTORS, column = i % VECTORS * H::VECTOR;
        typename H::Values values = {};
        if (first + row < rows && column < D) {
            const auto codes = *reinterpret_cast<const typename H::Codes*>(head + size_t(first + row) * D + column);
#pragma unroll
            for (int j = 0; j < H::VECTOR; ++j)
                values.at[j] = TABLES ? table[codes.at[j]] : decode(codes.at[j], step);
        }
        *reinterpret_cast<typename H::Values*>(&tile[row][column]) = values;
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
fp8_wmma_attention(const Code* __restrict__ q, const Code* __restrict__ k, const Code* __restrict__ v,
                   const float* __restrict__ q_scale, const float* __restrict__ k_scale,
                   const float* __restrict__ v_scale, ELEMENT* __restrict__ o, float* __restrict__ lse,
                   int HKV, int SQ, int SKV, float scale) {
    static_assert(1 <= D && D <= 128, "D is 1 to 128");
    using H = Head<D>;
    __shared__ __align__(128) half sQ[BLOCK_M][H::STRIDE];
    __shared__ __align__(128) half sKV[BLOCK_N][H::STRIDE];  // K and V in turn
    __shared__ __align__(128) float sS[BLOCK_M][S_STRIDE];
    __shared__ __align__(128) half sP[BLOCK_M][P_STRIDE];
    __shared__ __align__(128) float sU[BLOCK_M][H::U_STRIDE];
    __shared__ float sM[BLOCK_M], sL[BLOCK_M];
    __shared__ half sTableQ[TABLES ? 256 : 1], sTableK[TABLES ? 256 : 1], sTableV[TABLES ? 256 : 1];
    static_assert(sizeof(sQ) + sizeof(sKV) + sizeof(sS) + sizeof(sP) + sizeof(sU) + sizeof(sM) + sizeof(sL) +
                      3 * sizeof(sTableQ) <= 48 * 1024,
                  "the tiles exceed 48 KB of shared memory; reduce BLOCK_M or BLOCK_N");

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_query = blockIdx.x * BLOCK_M;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    assert(HQ % HKV == 0);
    const size_t q_head = size_t(b) * HQ + h;                 // [b, h]
    const size_t kv_head = size_t(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const Code* const k_head = k + kv_head * SKV * D;
    const Code* const v_head = v + kv_head * SKV * D;
    const float q_step = q_scale[q_head] * STEP, k_step = k_scale[kv_head] * STEP, v_step = v_scale[kv_head] * STEP;

    if constexpr (TABLES) {
        for (int code = threadIdx.x; code < 256; code += THREADS) {
            sTableQ[code] = decode(code, q_step);
            sTableK[code] = decode(code, k_step);
            sTableV[code] = decode(code, v_step);
        }
        __syncthreads();
    }
    load_tile<D, BLOCK_M>(sQ, q + q_head * SQ * D, first_query, SQ, q_step, sTableQ);
    for (int i = threadIdx.x; i < BLOCK_M * H::COLUMNS; i += THREADS) sU[i / H::COLUMNS][i % H::COLUMNS] = 0.0f;
    for (int i = threadIdx.x; i < BLOCK_M; i += THREADS) {
        sM[i] = -CUDART_INF_F;
        sL[i] = 0.0f;
    }

    // The last query of the CTA sees the most keys.
    const int end = visible_keys(min(first_query + BLOCK_M, SQ) - 1, SQ, SKV);
    for (int first_key = 0; first_key < end; first_key += BLOCK_N) {
        load_tile<D, BLOCK_N>(sKV, k_head, first_key, SKV, k_step, sTableK);
        __syncthreads();

        // S[m][n] = Σ_d Q[m][d] · K[n][d]: sKV is [n][d], and its column-major view is Kᵀ.
#pragma unroll 1  // a warp takes one fragment or a few: four copies would only cost registers
        for (int f = warp; f < (BLOCK_M / FRAG) * (BLOCK_N / FRAG); f += WARPS) {
            const int row = f / (BLOCK_N / FRAG) * FRAG, column = f % (BLOCK_N / FRAG) * FRAG;
            wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> scores;
            wmma::fill_fragment(scores, 0.0f);
            for (int d = 0; d < H::COLUMNS; d += FRAG) {
                wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, half, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, half, wmma::col_major> b;
                wmma::load_matrix_sync(a, &sQ[row][d], H::STRIDE);
                wmma::load_matrix_sync(b, &sKV[column][d], H::STRIDE);
                wmma::mma_sync(scores, a, b, scores);
            }
            wmma::store_matrix_sync(&sS[row][column], scores, S_STRIDE, wmma::mem_row_major);
        }
        __syncthreads();

        load_tile<D, BLOCK_N>(sKV, v_head, first_key, SKV, v_step, sTableV);  // the product above is done

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
                sP[row][j * 32 + lane] = __float2half_rn(p);
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
                wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, half, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, half, wmma::row_major> b;
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
    for (int i = threadIdx.x; i < BLOCK_M * D; i += THREADS) {
        const int row = i / D, d = i % D;
        if (first_query + row >= SQ) break;  // so are all later ones
        const float inverse = sL[row] == 0.0f ? 0.0f : 1.0f / sL[row];
        o[(q_head * SQ + first_query + row) * D + d] = ELEMENT(sU[row][d] * inverse);
    }
    for (int row = threadIdx.x; row < BLOCK_M && first_query + row < SQ; row += THREADS)
        lse[q_head * SQ + first_query + row] = sL[row] == 0.0f ? -CUDART_INF_F : sM[row] + logf(sL[row]);
}
