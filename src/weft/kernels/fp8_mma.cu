// All-FP8 attention: Q, K, V are quantised to E4M3 when they are loaded, and both products run on FP8 tensor cores.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      mma.m16n8k32 multiplies E4M3 by E4M3, twice as fast as fp16. x ≈ code · step, where a step is shared by
//               Q   BLOCK_M queries     K   BLOCK_N keys, after K's mean over all keys was subtracted
//               V   all keys of a channel
//           and is absmax / 448, so that the largest becomes E4M3's largest. Subtracting the mean k̄ removes q·k̄
//           from every score of a row. That changes only LSE, where it is added again. Per tile of keys,
//               S = Q Kᵀ · (step_q · step_k · scale · log₂e),   m' = max(m, max_n S),   P = 2^(S - m'),   r = 2^(m - m')
//               l' = l · r + Σ_n P,   U' = U · r + e4m3(2⁸ · P) V,   and after the last tile O = U / l · step_v / 2⁸
//           P ≤ 1 times 2⁸ uses E4M3's range, and 2⁸ is exact.
//           Three launches: sums of K and largest magnitudes of V by chunk; codes; attention, which quantises Q itself.
// History   `fp8_wmma` converts 8-bit inputs to fp16 first; this rung multiplies FP8. On Ada an FP8 mma keeps 13
//           fraction bits of its sum, for every accumulator type: a sum over thousands of keys stops growing. So
//           the tensor core sums FLUSH keys at most, and an fp32 addition adds that to U.
//           mma gives S with keys 2t, 2t + 1 of every 8 in lane t of a quad, and takes P with four keys in a row there.
//           No shuffle is needed: V's codes are stored in the order in which the lanes have P.
// Levers    FLUSH: 64, or 0 to leave the entire sum to the tensor core (docs/fp8.md shows why not). SMOOTH: 1, or
//           0 to keep K's mean. BLOCK_M: queries of a CTA, 16 per warp. BLOCK_N: keys of a tile.
// Supports  ELEMENT float, half, __nv_bfloat16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf. A block whose largest magnitude is below 448 · 2⁻¹²⁶
//           counts as zero.
//
// weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    FLUSH = 64
// weft: define    SMOOTH = 1
// weft: define    BLOCK_M = 64
// weft: define    BLOCK_N = 64
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: workspace k_sum, v_max : f32[B, HKV, cdiv(SKV, 128), D]
// weft: workspace k_code : u8[B, HKV, cdiv(SKV, BLOCK_N) * BLOCK_N, cdiv(D, 32) * 32]
// weft: workspace v_code : u8[B, HKV, cdiv(D, 32) * 32, cdiv(SKV, BLOCK_N) * BLOCK_N]
// weft: workspace k_step : f32[B, HKV, cdiv(SKV, BLOCK_N)]
// weft: workspace k_mean, v_step : f32[B, HKV, D]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    survey<{D}>(k, v, k_sum, v_max, SKV)
// weft:           grid(cdiv(SKV, 128), HKV, B) block(D)
// weft: launch    quantise<{D}>(k, v, k_sum, v_max, k_code, v_code, k_step, k_mean, v_step, SKV)
// weft:           grid(cdiv(SKV, BLOCK_N), HKV, B) block(128)
// weft: launch    fp8_mma_attention<{D}>(q, k_code, v_code, k_step, k_mean, v_step, o, lse, HKV, SQ, SKV, scale)
// weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(2 * BLOCK_M)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using Code = unsigned char;

constexpr int CHUNK = 128;       // keys surveyed by one CTA
constexpr int QUANTISERS = 128;  // threads of `quantise`; every tile is a multiple of them, and of THREADS
constexpr int WARPS = BLOCK_M / 16, THREADS = 32 * WARPS;
constexpr int PAD = 16;  // bytes: the eight rows of a fragment start in different banks
constexpr float LARGEST = 448.0f;
constexpr float P_SCALE = 256.0f;
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;
constexpr unsigned ALL_LANES = 0xffffffffu;

static_assert(BLOCK_M % 16 == 0 && BLOCK_M <= 512, "a warp takes 16 queries");
static_assert(BLOCK_N % 64 == 0 && BLOCK_N <= 128, "BLOCK_N is 64 or 128");
static_assert(FLUSH == 0 || FLUSH == 64, "FLUSH is 64 keys or 0 (never)");
static_assert(SMOOTH == 0 || SMOOTH == 1, "SMOOTH is 0 or 1");
static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");

// The head dimension as mma sees it: complete steps of 32, codes from D on are zero.
template <int D>
struct Head {
    static_assert(1 <= D && D <= 128, "D is 1 to 128");
    static constexpr int COLUMNS = (D + 31) / 32 * 32;
    static constexpr int STRIDE = COLUMNS + PAD;
};
constexpr int V_STRIDE = BLOCK_N + PAD;

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

// Four elements of a row from column d on; all are zero if the row is not `inside`; columns from D on are always zero.
template <int D>
__device__ __forceinline__ float4 four(const ELEMENT* __restrict__ row, int d, bool inside) {
    if constexpr (D % 4 == 0) {
        struct alignas(4 * sizeof(ELEMENT)) Four { ELEMENT at[4]; };
        if (!inside || d >= D) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const Four x = *reinterpret_cast<const Four*>(row + d);
        return make_float4(float(x.at[0]), float(x.at[1]), float(x.at[2]), float(x.at[3]));
    }
    const auto one = [&](int i) { return inside && d + i < D ? float(row[d + i]) : 0.0f; };
    return make_float4(one(0), one(1), one(2), one(3));
}

// absmax / 448, or 1 for what counts as zero, so that it and its inverse are normal numbers.
__device__ __forceinline__ float step_of(float absmax) {
    return absmax < LARGEST * 0x1p-126f ? 1.0f : absmax / LARGEST;
}

// Four codes, x in the lowest byte; rounded to nearest even; larger values become 448.
__device__ __forceinline__ unsigned four_codes(float x, float y, float z, float w) {
    unsigned short low, high;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(y), "f"(x));
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(w), "f"(z));
    return unsigned(high) << 16 | low;
}

__device__ __forceinline__ float largest_of(float4 x) {
    return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

// The largest x of a CTA of `threads`, in every thread.
template <int threads>
__device__ float block_max(float x, float* scratch) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    for (int warp = 0; warp < threads / 32; ++warp) x = fmaxf(x, scratch[warp]);
    return x;
}

// k_sum[chunk][d] = Σ_n k[n][d], v_max[chunk][d] = max_n |v[n][d]| over the chunk's keys. One thread per channel.
template <int D>
__global__ void __launch_bounds__(D)
survey(const ELEMENT* __restrict__ k, const ELEMENT* __restrict__ v, float* __restrict__ k_sum,
       float* __restrict__ v_max, int SKV) {
    const int d = threadIdx.x, chunk = blockIdx.x;
    const size_t kv_head = size_t(blockIdx.z) * gridDim.y + blockIdx.y;  // [b, kv head]
    float sum = 0.0f, largest = 0.0f;
#pragma unroll 8
    for (int key = chunk * CHUNK; key < min(SKV, (chunk + 1) * CHUNK); ++key) {
        const size_t at = (kv_head * SKV + key) * D + d;
        if (SMOOTH) sum += float(k[at]);
        largest = fmaxf(largest, fabsf(float(v[at])));
    }
    const size_t to = (kv_head * gridDim.x + chunk) * D + d;
    k_sum[to] = sum;
    v_max[to] = largest;
}

// Codes of BLOCK_N keys. K's mean is rounded to bf16 before it is subtracted: any vector is valid, and this one does
// not depend on the order of the sum.
template <int D>
__global__ void __launch_bounds__(QUANTISERS)
quantise(const ELEMENT* __restrict__ k, const ELEMENT* __restrict__ v, const float* __restrict__ k_sum,
         const float* __restrict__ v_max, Code* __restrict__ k_code, Code* __restrict__ v_code,
         float* __restrict__ k_step, float* __restrict__ k_mean, float* __restrict__ v_step, int SKV) {
    using H = Head<D>;
    constexpr int GROUPS = H::COLUMNS / 4, WORDS = BLOCK_N / 4;
    __shared__ __align__(16) float sMean[H::COLUMNS];
    __shared__ float sInverse[H::COLUMNS], sMax[QUANTISERS / 32];
    __shared__ unsigned sV[H::COLUMNS][WORDS];
    // Word w of channel d is at w ⊕ f(d): one word of 32 channels, and all words of one or two, use all banks once.
    const auto at = [](unsigned d, unsigned word) { return word ^ d / (32 / WORDS) % WORDS; };

    const int block = blockIdx.x, first_key = block * BLOCK_N, padded = gridDim.x * BLOCK_N;
    const int chunks = (SKV + CHUNK - 1) / CHUNK;
    const size_t kv_head = size_t(blockIdx.z) * gridDim.y + blockIdx.y;  // [b, kv head]
    // The block's own rows: from here on 32 bits hold every index.
    const ELEMENT* const k_rows = k + (kv_head * SKV + first_key) * D;
    const ELEMENT* const v_rows = v + (kv_head * SKV + first_key) * D;
    Code* const k_to = k_code + (kv_head * padded + first_key) * H::COLUMNS;
    Code* const v_to = v_code + kv_head * H::COLUMNS * padded + first_key;
    const int keys = SKV - first_key;

    if (threadIdx.x < H::COLUMNS) {
        const int d = threadIdx.x;
        float sum = 0.0f, largest = 0.0f;
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const size_t from = (kv_head * chunks + chunk) * D + d;
            sum += d < D ? k_sum[from] : 0.0f;
            largest = fmaxf(largest, d < D ? v_max[from] : 0.0f);
        }
        const float mean = __bfloat162float(__float2bfloat16_rn(sum / float(SKV))), step = step_of(largest);
        sMean[d] = mean;
        sInverse[d] = 1.0f / step;
        if (block == 0 && d < D) {
            k_mean[kv_head * D + d] = mean;
            v_step[kv_head * D + d] = step;
        }
    }
    __syncthreads();

    // K[n][d] - k̄[d], four columns at a time; keys and channels beyond the end are zero. It stays in registers.
    constexpr int ROUNDS = BLOCK_N * GROUPS / QUANTISERS;
    float4 x[ROUNDS];
    float largest = 0.0f;
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
        const unsigned i = round * QUANTISERS + threadIdx.x;
        const int key = i / GROUPS, d = i % GROUPS * 4;
        x[round] = four<D>(k_rows + key * D, d, key < keys);
        const float4 mean = *reinterpret_cast<const float4*>(&sMean[d]);
        if (key < keys)
            x[round] = make_float4(x[round].x - mean.x, x[round].y - mean.y, x[round].z - mean.z, x[round].w - mean.w);
        largest = fmaxf(largest, largest_of(x[round]));
    }
    const float step = step_of(block_max<QUANTISERS>(largest, sMax)), inverse = 1.0f / step;
    if (threadIdx.x == 0) k_step[kv_head * gridDim.x + block] = step;
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round)
        *reinterpret_cast<unsigned*>(k_to + (round * QUANTISERS + threadIdx.x) * 4) = four_codes(
            x[round].x * inverse, x[round].y * inverse, x[round].z * inverse, x[round].w * inverse);

    // Vᵀ[d][n], where bytes 4t … 4t + 3 of every 16 are keys 2t, 2t + 1, 2t + 8 and 2t + 9 of them.
    // A thread takes 16 keys of a channel at a time.
#pragma unroll
    for (int round = 0; round < BLOCK_N / 16 * H::COLUMNS; round += QUANTISERS) {
        const unsigned i = round + threadIdx.x, strip = i / H::COLUMNS, d = i % H::COLUMNS;
        const ELEMENT* const from = v_rows + strip * 16 * D + d;
        const int left = d < D ? keys - int(strip) * 16 : 0;
        const float inverse_v = sInverse[d];
        const auto scaled = [&](int key) { return key < left ? float(from[key * D]) * inverse_v : 0.0f; };
#pragma unroll
        for (int w = 0; w < 4; ++w)
            sV[d][at(d, strip * 4 + w)] =
                four_codes(scaled(2 * w), scaled(2 * w + 1), scaled(2 * w + 8), scaled(2 * w + 9));
    }
    __syncthreads();
#pragma unroll
    for (int round = 0; round < H::COLUMNS * WORDS; round += QUANTISERS) {
        const unsigned i = round + threadIdx.x, d = i / WORDS, word = i % WORDS;
        *reinterpret_cast<unsigned*>(v_to + size_t(d) * padded + word * 4) = sV[d][at(d, word)];
    }
}

// C[16×8] += A[16×32] · B[32×8]. With g = lane / 4 and t = lane % 4, a lane has
//     a: A[g][4t …], A[g + 8][4t …], A[g][16 + 4t …], A[g + 8][16 + 4t …], four codes each
//     b: B[4t …][g], B[16 + 4t …][g]      c: C[g][2t], C[g][2t + 1], C[g + 8][2t], C[g + 8][2t + 1]
__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ unsigned word_at(const Code* p) { return *reinterpret_cast<const unsigned*>(p); }

// tile[r][…] = rows of `bytes` bytes, `pitch` bytes apart.
template <int TILE_ROWS, int BYTES, int STRIDE>
__device__ __forceinline__ void copy_tile(Code (*tile)[STRIDE], const Code* __restrict__ rows, size_t pitch) {
    constexpr int VECTORS = BYTES / 16;
    // Eight lanes store 128 bytes at a time: one row's, or 16 of each of eight rows, which start in different banks.
    constexpr int ROWS = VECTORS == 8 ? 1 : 8;
    // A constant number of rounds, so that all their loads are in flight at once.
#pragma unroll
    for (int round = 0; round < TILE_ROWS * VECTORS; round += THREADS) {
        const unsigned i = round + threadIdx.x, row = i / (ROWS * VECTORS) * ROWS + i % ROWS;
        const unsigned byte = i / ROWS % VECTORS * 16;
        if (TILE_ROWS * VECTORS % THREADS != 0 && i >= TILE_ROWS * VECTORS) break;
        *reinterpret_cast<uint4*>(&tile[row][byte]) = *reinterpret_cast<const uint4*>(rows + row * pitch + byte);
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS)
fp8_mma_attention(const ELEMENT* __restrict__ q, const Code* __restrict__ k_code, const Code* __restrict__ v_code,
                  const float* __restrict__ k_step, const float* __restrict__ k_mean,
                  const float* __restrict__ v_step, ELEMENT* __restrict__ o, float* __restrict__ lse, int HKV, int SQ,
                  int SKV, float scale) {
    using H = Head<D>;
    constexpr int GROUPS = H::COLUMNS / 4;
    __shared__ __align__(16) Code sQ[BLOCK_M][H::STRIDE];
    __shared__ __align__(16) Code sK[BLOCK_N][H::STRIDE];
    __shared__ __align__(16) Code sV[H::COLUMNS][V_STRIDE];
    __shared__ float sMax[WARPS];
    static_assert(sizeof(sQ) + sizeof(sK) + sizeof(sV) + sizeof(sMax) <= 48 * 1024,
                  "the tiles exceed 48 KB of shared memory; reduce BLOCK_M or BLOCK_N");

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first_query = blockIdx.x * BLOCK_M;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    assert(HQ % HKV == 0);
    const size_t q_head = size_t(b) * HQ + h;                 // [b, h]
    const size_t kv_head = size_t(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const int blocks = (SKV + BLOCK_N - 1) / BLOCK_N, padded = blocks * BLOCK_N;
    const ELEMENT* const q_rows = q + q_head * SQ * D;

    // Q's codes, on one step for the CTA.
    // A warp takes four words of eight rows at a time, which use all banks once; so do the reads below.
    const auto row_of = [](unsigned i) { return int(i / (8 * GROUPS) * 8 + i / 4 % 8); };
    const auto column_of = [](unsigned i) { return int(i / 32 % (GROUPS / 4) * 16 + i % 4 * 4); };
    const auto query_at = [&](unsigned i) {
        const int query = first_query + row_of(i);
        return four<D>(q_rows + size_t(query) * D, column_of(i), query < SQ);
    };
    float largest = 0.0f;
#pragma unroll 4
    for (int round = 0; round < BLOCK_M * GROUPS; round += THREADS)
        largest = fmaxf(largest, largest_of(query_at(round + threadIdx.x)));
    const float q_step = step_of(block_max<THREADS>(largest, sMax)), inverse_q = 1.0f / q_step;
#pragma unroll 4
    for (int round = 0; round < BLOCK_M * GROUPS; round += THREADS) {
        const int i = round + threadIdx.x;
        const float4 x = query_at(i);
        *reinterpret_cast<unsigned*>(&sQ[row_of(i)][column_of(i)]) =
            four_codes(x.x * inverse_q, x.y * inverse_q, x.z * inverse_q, x.w * inverse_q);
    }
    __syncthreads();

    const int top = warp * 16 + g;  // this lane's rows of the tile are `top` and `top + 8`
    unsigned a_q[H::COLUMNS / 32][4];
#pragma unroll
    for (int i = 0; i < H::COLUMNS / 32; ++i) {
        a_q[i][0] = word_at(&sQ[top][32 * i + 4 * t]);
        a_q[i][1] = word_at(&sQ[top + 8][32 * i + 4 * t]);
        a_q[i][2] = word_at(&sQ[top][32 * i + 16 + 4 * t]);
        a_q[i][3] = word_at(&sQ[top + 8][32 * i + 16 + 4 * t]);
    }
    const int query[2] = {first_query + top, first_query + top + 8};
    const int visible[2] = {visible_keys(query[0], SQ, SKV), visible_keys(query[1], SQ, SKV)};

    float u[H::COLUMNS / 8][4] = {}, m[2] = {-CUDART_INF_F, -CUDART_INF_F}, l[2] = {};
    // The last query of the CTA sees the most keys.
    const int end = visible_keys(min(first_query + BLOCK_M, SQ) - 1, SQ, SKV);
    for (int first_key = 0; first_key < end; first_key += BLOCK_N) {
        __syncthreads();  // the tiles before are read
        copy_tile<BLOCK_N, H::COLUMNS>(sK, k_code + (kv_head * padded + first_key) * H::COLUMNS, H::COLUMNS);
        copy_tile<H::COLUMNS, BLOCK_N>(sV, v_code + kv_head * H::COLUMNS * padded + first_key, padded);
        const float factor = q_step * k_step[kv_head * blocks + first_key / BLOCK_N] * (scale * LOG2_E);
        __syncthreads();

        // S[m][n] = Σ_d Q[m][d] · K[n][d] · factor; a lane has keys 8j + 2t and 8j + 2t + 1 of both rows.
        float s[BLOCK_N / 8][4] = {}, row_max[2] = {-CUDART_INF_F, -CUDART_INF_F};
#pragma unroll
        for (int j = 0; j < BLOCK_N / 8; ++j) {
#pragma unroll
            for (int i = 0; i < H::COLUMNS / 32; ++i)
                mma(s[j], a_q[i], word_at(&sK[8 * j + g][32 * i + 4 * t]), word_at(&sK[8 * j + g][32 * i + 16 + 4 * t]));
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int key = first_key + 8 * j + 2 * t + c % 2;
                const float score = __fmul_rn(s[j][c], factor);
                s[j][c] = key < visible[c / 2] ? score : -CUDART_INF_F;
                row_max[c / 2] = fmaxf(row_max[c / 2], s[j][c]);
            }
        }

        float shift[2], rescale[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int offset = 1; offset < 4; offset *= 2)  // a row is in the four lanes of a quad
                row_max[r] = fmaxf(row_max[r], __shfl_xor_sync(ALL_LANES, row_max[r], offset));
            const float m_new = fmaxf(m[r], row_max[r]);
            // A row that has seen no key yet has m_new = -inf. With 0 in its place every exponential is 2^-inf = 0.
            shift[r] = m_new == -CUDART_INF_F ? 0.0f : m_new;
            rescale[r] = exp2_approx(m[r] - shift[r]);
            m[r] = m_new;
            l[r] *= rescale[r];
        }
#pragma unroll
        for (int j = 0; j < BLOCK_N / 8; ++j)
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const float p = exp2_approx(s[j][c] - shift[c / 2]);
                l[c / 2] += p;  // of this lane's keys; the quad's four are added at the end
                s[j][c] = p * P_SCALE;
            }

        // P as A of k = 32: four neighbouring blocks of 8 keys.
        unsigned a_p[BLOCK_N / 32][4];
#pragma unroll
        for (int i = 0; i < BLOCK_N / 32; ++i)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float(&left)[4] = s[4 * i + part / 2 * 2], (&right)[4] = s[4 * i + part / 2 * 2 + 1];
                const int c = part % 2 * 2;
                a_p[i][part] = four_codes(left[c], left[c + 1], right[c], right[c + 1]);
            }

        // U[m][d] = U[m][d] · r + Σ_n P[m][n] · V[n][d], summed by the tensor core over FLUSH keys.
#pragma unroll
        for (int j = 0; j < H::COLUMNS / 8; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) u[j][c] *= rescale[c / 2];
#pragma unroll
            for (int first = 0; first < BLOCK_N / 32; first += 2) {
                float sum[4] = {};
#pragma unroll
                for (int i = first; i < first + 2; ++i)
                    mma(FLUSH ? sum : u[j], a_p[i], word_at(&sV[8 * j + g][32 * i + 4 * t]),
                        word_at(&sV[8 * j + g][32 * i + 16 + 4 * t]));
                if (FLUSH)
#pragma unroll
                    for (int c = 0; c < 4; ++c) u[j][c] = __fadd_rn(u[j][c], sum[c]);
            }
        }
    }

    // O = U / l · step_v / 2⁸, LSE = (m + log₂ l) · ln 2 + q·k̄ · scale. l = 0 means that no key is visible.
    float mean_score[2] = {};
#pragma unroll
    for (int j = 0; j < H::COLUMNS / 8; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const int d = min(8 * j + 2 * t + c, D - 1);  // columns beyond D have no weight
            const float mean = 8 * j + 2 * t + c < D ? k_mean[kv_head * D + d] : 0.0f;
#pragma unroll
            for (int r = 0; r < 2; ++r) mean_score[r] += float(q_rows[size_t(min(query[r], SQ - 1)) * D + d]) * mean;
        }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int offset = 1; offset < 4; offset *= 2) {
            l[r] += __shfl_xor_sync(ALL_LANES, l[r], offset);
            mean_score[r] += __shfl_xor_sync(ALL_LANES, mean_score[r], offset);
        }
        const float inverse = l[r] == 0.0f ? 0.0f : 1.0f / (l[r] * P_SCALE);
        const size_t row = q_head * SQ + query[r];
        if (query[r] < SQ && t == 0)
            lse[row] = l[r] == 0.0f ? -CUDART_INF_F : (m[r] + log2f(l[r])) * LN_2 + mean_score[r] * scale;
#pragma unroll
        for (int j = 0; j < H::COLUMNS / 8; ++j)
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const int d = 8 * j + 2 * t + c;
                if (query[r] < SQ && d < D) o[row * D + d] = ELEMENT(u[j][2 * r + c] * inverse * v_step[kv_head * D + d]);
            }
    }
}
