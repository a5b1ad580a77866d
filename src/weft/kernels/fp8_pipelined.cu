// All-FP8 attention fed by a pipeline of asynchronous copies, without bank conflicts at D = 32, 64 and 128.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      The recipe is that of `fp8_mma`, and so is every bit of the result: E4M3 with a step per BLOCK_M queries, per
//           BLOCK_N keys less their mean, per channel of V; P × 2⁸; the tensor core sums 64 keys, fp32 the rest.
//           The difference is how the codes reach the tensor cores. cp.async loads tile i + 1 while tile i is
//           multiplied, into the other of two buffers. A row is 2, 4 or 8 chunks of 16 bytes, and chunk c of row r is
//           at c ⊕ f(r): the eight rows of an ldmatrix phase and the eight chunks of a copy phase use all 32 banks once.
//           ldmatrix, made for 16-bit matrices, moves 8 rows of 16 bytes, and lane 4g + t receives bytes 4t … 4t + 3 of
//           row g: that is B of mma.m16n8k32, and for Q it is A. So one ldmatrix of a warp reads 16 keys.
//           Tiles that every query of the CTA sees entirely are not masked; tiles that none sees are not read.
//           An address is one register that a constant moves from tile to tile: apart from mma the loop contains only
//           softmax, and Q and K stay in registers between finding their step and dividing by it.
// History   `fp8_mma` waits for every tile and reads fragments word by word.
// Levers    BLOCK_M: queries of a CTA, 16 per warp. BLOCK_N: keys of a tile.
// Supports  as `fp8_mma`: ELEMENT float, half, __nv_bfloat16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV;
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf. A block whose largest magnitude is below 448 · 2⁻¹²⁶
//           counts as zero.
//
// weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
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
// weft: launch    fp8_pipelined_attention<{D}>(q, k_code, v_code, k_step, k_mean, v_step, o, lse, HKV, SQ, SKV, scale)
// weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(2 * BLOCK_M)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using Code = unsigned char;

constexpr int CHUNK = 128;       // keys surveyed by one CTA
constexpr int QUANTISERS = 128;  // threads of `quantise`; every tile is a multiple of them, and of THREADS
constexpr int WARPS = BLOCK_M / 16, THREADS = 32 * WARPS;
constexpr int FLUSH_KEYS = 64;   // summed by the tensor core, which keeps 13 fraction bits; fp32 sums the rest
constexpr int CHUNK_BYTES = 16;  // of one cp.async, and of one row of an ldmatrix
constexpr float LARGEST = 448.0f;
constexpr float P_SCALE = 256.0f;
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;
constexpr unsigned ALL_LANES = 0xffffffffu;

static_assert(BLOCK_M % 16 == 0 && BLOCK_M <= 512, "a warp takes 16 queries");
static_assert(BLOCK_N % 64 == 0 && BLOCK_N <= 128, "BLOCK_N is 64 or 128");
static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");

// The head dimension as mma sees it: complete steps of 32, codes from D on are zero.
template <int D>
struct Head {
    static_assert(1 <= D && D <= 128, "D is 1 to 128");
    static constexpr int COLUMNS = (D + 31) / 32 * 32;
};

// A row of a tile in shared memory: `BYTES` bytes in a power of two of chunks.
template <int BYTES>
struct Row {
    static constexpr int CHUNKS = BYTES <= 32 ? 2 : BYTES <= 64 ? 4 : 8;
    static constexpr int STRIDE = CHUNKS * CHUNK_BYTES;

    // Where chunk c of a row begins. 8 / CHUNKS rows share 128 bytes, and with them f(row).
    static __device__ __forceinline__ unsigned at(unsigned row, unsigned chunk) {
        return row * STRIDE + (chunk ^ row / (8 / CHUNKS) % CHUNKS) * CHUNK_BYTES;
    }
};

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

// Two elements of a row from an even column d on; columns from D on are zero.
template <int D, typename X>
__device__ __forceinline__ float2 two(const X* __restrict__ row, int d) {
    struct alignas(2 * sizeof(X)) Pair { X at[2]; };
    if constexpr (D % 2 == 0) {
        if (d >= D) return make_float2(0.0f, 0.0f);
        const Pair pair = *reinterpret_cast<const Pair*>(row + d);
        return make_float2(float(pair.at[0]), float(pair.at[1]));
    }
    return make_float2(d < D ? float(row[d]) : 0.0f, d + 1 < D ? float(row[d + 1]) : 0.0f);
}

template <int D>
__device__ __forceinline__ void store_two(ELEMENT* __restrict__ row, int d, float x, float y) {
    struct alignas(2 * sizeof(ELEMENT)) Pair { ELEMENT at[2]; };
    if constexpr (D % 2 == 0) {
        if (d < D) *reinterpret_cast<Pair*>(row + d) = {ELEMENT(x), ELEMENT(y)};
    } else {
        if (d < D) row[d] = ELEMENT(x);
        if (d + 1 < D) row[d + 1] = ELEMENT(y);
    }
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
        sum += float(k[at]);
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

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's latest groups are in flight.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// A thread's share of a tile of rows of BYTES bytes: chunk `chunk` of row `row`, and of every STEP-th row below.
template <int BYTES>
struct Share {
    static constexpr int STEP = THREADS / Row<BYTES>::CHUNKS;
    const unsigned row = threadIdx.x / Row<BYTES>::CHUNKS, chunk = threadIdx.x % Row<BYTES>::CHUNKS;
};

// tile[r] = row r of the source, where rows are `pitch` bytes apart. `to` and `from` are this thread's first chunk.
template <int TILE_ROWS, int BYTES>
__device__ __forceinline__ void copy_tile(unsigned to, const Code* __restrict__ from, size_t pitch) {
    using R = Row<BYTES>;
    constexpr int STEP = Share<BYTES>::STEP;
    const Share<BYTES> share;
    if (share.chunk * CHUNK_BYTES >= BYTES) return;
#pragma unroll
    for (int r = 0; r < TILE_ROWS; r += STEP) {
        if (TILE_ROWS % STEP != 0 && share.row + r >= TILE_ROWS) break;
        const unsigned down = STEP % 8 == 0 ? r * R::STRIDE  // f(row) is the same again
                                            : R::at(share.row + r, share.chunk) - R::at(share.row, share.chunk);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + down), "l"(from + r * pitch) : "memory");
    }
}

// Four pieces of 8 rows × 16 bytes; each lane addresses one row; lane 4g + t receives bytes 4t … 4t + 3 of row g.
__device__ __forceinline__ void load_pieces(unsigned (&r)[4], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

// B of k = 32 for rows 8j … 8j + 15 of a tile: r[0], r[1] for the first eight, r[2], r[3] for the others. `lane_row` is
// the lane's address for i = j = 0: chunks 2i further are ⊕ 2i, and eight rows further f(row) is the same again.
template <int BYTES>
__device__ __forceinline__ void load_b(unsigned (&r)[4], unsigned lane_row, int j, int i) {
    load_pieces(r, (lane_row ^ 2 * i * CHUNK_BYTES) + 8 * j * Row<BYTES>::STRIDE);
}

template <int D>
__global__ void __launch_bounds__(THREADS, THREADS < 256 ? 256 / THREADS : 1)
fp8_pipelined_attention(const ELEMENT* __restrict__ q, const Code* __restrict__ k_code,
                        const Code* __restrict__ v_code, const float* __restrict__ k_step,
                        const float* __restrict__ k_mean, const float* __restrict__ v_step, ELEMENT* __restrict__ o,
                        float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    using H = Head<D>;
    using RowOfK = Row<H::COLUMNS>;
    using RowOfV = Row<BLOCK_N>;
    constexpr int GROUPS = H::COLUMNS / 4;
    constexpr int K_TILE = BLOCK_N * RowOfK::STRIDE, V_TILE = H::COLUMNS * RowOfV::STRIDE;
    __shared__ __align__(128) Code sQ[BLOCK_M * RowOfK::STRIDE];
    __shared__ __align__(128) Code sKV[2][K_TILE + V_TILE];
    __shared__ float sMax[WARPS];
    static_assert(sizeof(sQ) + sizeof(sKV) + sizeof(sMax) <= 48 * 1024,
                  "the tiles exceed 48 KB of shared memory; reduce BLOCK_M or BLOCK_N");

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first_query = blockIdx.x * BLOCK_M;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    assert(HQ % HKV == 0);
    const size_t q_head = size_t(b) * HQ + h;                 // [b, h]
    const size_t kv_head = size_t(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const int blocks = (SKV + BLOCK_N - 1) / BLOCK_N, padded = blocks * BLOCK_N;
    const ELEMENT* const q_rows = q + q_head * SQ * D;

    // The last query of the CTA sees the most keys, the first the fewest.
    const int end = visible_keys(min(first_query + BLOCK_M, SQ) - 1, SQ, SKV);
    const int seen_by_all = visible_keys(first_query, SQ, SKV);

    // Addresses that move by a constant from tile to tile: this thread's copies, and this lane's ldmatrix rows.
    const Share<H::COLUMNS> k_share;
    const Share<BLOCK_N> v_share;
    const Code* k_from = k_code + (kv_head * padded + k_share.row) * H::COLUMNS + k_share.chunk * CHUNK_BYTES;
    const Code* v_from = v_code + (kv_head * H::COLUMNS + v_share.row) * padded + v_share.chunk * CHUNK_BYTES;
    unsigned k_to = shared_address(sKV) + RowOfK::at(k_share.row, k_share.chunk);
    unsigned v_to = shared_address(sKV) + K_TILE + RowOfV::at(v_share.row, v_share.chunk);
    unsigned k_lane = shared_address(sKV) + RowOfK::at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    unsigned v_lane = shared_address(sKV) + K_TILE + RowOfV::at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const float* k_step_from = k_step + kv_head * blocks;
    int other_buffer = K_TILE + V_TILE;  // + and - in turn

    const auto bring = [&] {
        copy_tile<BLOCK_N, H::COLUMNS>(k_to, k_from, H::COLUMNS);
        copy_tile<H::COLUMNS, BLOCK_N>(v_to, v_from, padded);
    };
    if (end > 0) bring();
    commit_copies();

    // Q's codes, on one step for the CTA.
    constexpr int ROUNDS = BLOCK_M * GROUPS / THREADS;
    float4 x[ROUNDS];
    float largest = 0.0f;
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
        const unsigned i = round * THREADS + threadIdx.x;
        const int row = i / GROUPS;
        x[round] = four<D>(q_rows + size_t(first_query + row) * D, i % GROUPS * 4, first_query + row < SQ);
        largest = fmaxf(largest, largest_of(x[round]));
    }
    const float q_step = step_of(block_max<THREADS>(largest, sMax)), inverse_q = 1.0f / q_step;
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
        const unsigned i = round * THREADS + threadIdx.x, group = i % GROUPS;
        *reinterpret_cast<unsigned*>(sQ + RowOfK::at(i / GROUPS, group / 4) + group % 4 * 4) = four_codes(
            x[round].x * inverse_q, x[round].y * inverse_q, x[round].z * inverse_q, x[round].w * inverse_q);
    }
    __syncthreads();

    // This lane's rows of the tile are warp · 16 + g and the eighth after it.
    unsigned a_q[H::COLUMNS / 32][4];
#pragma unroll
    for (int i = 0; i < H::COLUMNS / 32; ++i)
        load_pieces(a_q[i], shared_address(sQ) + RowOfK::at(warp * 16 + lane % 16, 2 * i + lane / 16));
    const int query[2] = {first_query + warp * 16 + g, first_query + warp * 16 + g + 8};
    const int visible[2] = {visible_keys(query[0], SQ, SKV), visible_keys(query[1], SQ, SKV)};

    float u[H::COLUMNS / 8][4] = {}, m[2] = {-CUDART_INF_F, -CUDART_INF_F}, l[2] = {};
    for (int first_key = 0; first_key < end; first_key += BLOCK_N) {
        k_from += BLOCK_N * H::COLUMNS;
        v_from += BLOCK_N;
        k_to += other_buffer;
        v_to += other_buffer;
        if (first_key + BLOCK_N < end) bring();
        commit_copies();
        const float factor = q_step * *k_step_from++ * (scale * LOG2_E);
        wait_copies<1>();  // this tile is loaded, the next may be in flight
        __syncthreads();

        // S[m][n] = Σ_d Q[m][d] · K[n][d] · factor; a lane has keys 8j + 2t and 8j + 2t + 1 of both rows.
        float s[BLOCK_N / 8][4] = {};
#pragma unroll
        for (int j = 0; j < BLOCK_N / 8; j += 2)
#pragma unroll
            for (int i = 0; i < H::COLUMNS / 32; ++i) {
                unsigned b_k[4];
                load_b<H::COLUMNS>(b_k, k_lane, j, i);
                mma(s[j], a_q[i], b_k[0], b_k[1]);
                mma(s[j + 1], a_q[i], b_k[2], b_k[3]);
            }
#pragma unroll
        for (int j = 0; j < BLOCK_N / 8; ++j)
#pragma unroll
            for (int c = 0; c < 4; ++c) s[j][c] = __fmul_rn(s[j][c], factor);
        if (first_key + BLOCK_N > seen_by_all)  // the same for the entire CTA
#pragma unroll
            for (int j = 0; j < BLOCK_N / 8; ++j)
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    s[j][c] = first_key + 8 * j + 2 * t + c % 2 < visible[c / 2] ? s[j][c] : -CUDART_INF_F;

        float shift[2], rescale[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float row_max = -CUDART_INF_F;
#pragma unroll
            for (int j = 0; j < BLOCK_N / 8; ++j) row_max = fmaxf(row_max, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
#pragma unroll
            for (int offset = 1; offset < 4; offset *= 2)  // a row is in the four lanes of a quad
                row_max = fmaxf(row_max, __shfl_xor_sync(ALL_LANES, row_max, offset));
            const float m_new = fmaxf(m[r], row_max);
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

        // U[m][d] = U[m][d] · r + Σ_n P[m][n] · V[n][d], summed by the tensor core over 64 keys.
#pragma unroll
        for (int j = 0; j < H::COLUMNS / 8; ++j)
#pragma unroll
            for (int c = 0; c < 4; ++c) u[j][c] *= rescale[c / 2];
#pragma unroll
        for (int first = 0; first < BLOCK_N; first += FLUSH_KEYS)
#pragma unroll
            for (int j = 0; j < H::COLUMNS / 8; j += 2) {
                float left[4] = {}, right[4] = {};
#pragma unroll
                for (int i = first / 32; i < (first + FLUSH_KEYS) / 32; ++i) {
                    unsigned b_v[4];
                    load_b<BLOCK_N>(b_v, v_lane, j, i);
                    mma(left, a_p[i], b_v[0], b_v[1]);
                    mma(right, a_p[i], b_v[2], b_v[3]);
                }
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    u[j][c] = __fadd_rn(u[j][c], left[c]);
                    u[j + 1][c] = __fadd_rn(u[j + 1][c], right[c]);
                }
            }
        k_lane += other_buffer;
        v_lane += other_buffer;
        other_buffer = -other_buffer;
        __syncthreads();  // this tile is read: its buffer takes the one after the next
    }

    // O = U / l · step_v / 2⁸, LSE = (m + log₂ l) · ln 2 + q·k̄ · scale. l = 0 means that no key is visible.
    float mean_score[2] = {}, inverse[2];
#pragma unroll
    for (int j = 0; j < H::COLUMNS / 8; ++j) {
        const float2 mean = two<D>(k_mean + kv_head * D, 8 * j + 2 * t);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float2 x = two<D>(q_rows + size_t(min(query[r], SQ - 1)) * D, 8 * j + 2 * t);
            mean_score[r] += x.x * mean.x;
            mean_score[r] += x.y * mean.y;
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int offset = 1; offset < 4; offset *= 2) {
            l[r] += __shfl_xor_sync(ALL_LANES, l[r], offset);
            mean_score[r] += __shfl_xor_sync(ALL_LANES, mean_score[r], offset);
        }
        inverse[r] = l[r] == 0.0f ? 0.0f : 1.0f / (l[r] * P_SCALE);
        if (query[r] < SQ && t == 0)
            lse[q_head * SQ + query[r]] =
                l[r] == 0.0f ? -CUDART_INF_F : (m[r] + log2f(l[r])) * LN_2 + mean_score[r] * scale;
    }
#pragma unroll
    for (int j = 0; j < H::COLUMNS / 8; ++j) {
        const float2 step = two<D>(v_step + kv_head * D, 8 * j + 2 * t);
#pragma unroll
        for (int r = 0; r < 2; ++r)
            if (query[r] < SQ)
                store_two<D>(o + (q_head * SQ + query[r]) * D, 8 * j + 2 * t, u[j][2 * r] * inverse[r] * step.x,
                             u[j][2 * r + 1] * inverse[r] * step.y);
    }
}
