// All-FP8 attention for Hopper (sm_90a): TMA loads E4M3 tiles, a warp transposes V, warpgroups multiply by wgmma of E4M3.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      The recipe of `fp8_mma` in the pipeline of `hopper_tma`. The recipe: E4M3 with a step (largest magnitude / 448)
//           per BLOCK_M queries, per BLOCK_N keys less their mean, per channel of V; P × 2⁸; the tensor core sums 64 keys,
//           fp32 the rest. Three launches write codes, the fourth multiplies them. Its warps have three kinds of work:
//
//               producer: one thread             transposers: three warps       consumers: a warpgroup per 64 queries
//               wait for `empty`                 ◀───────────────────────────   arrive at `empty`: K and Vᵀ are read
//               TMA: K → stage                   ───────────────────────────▶   wait for `k_full`: S = Q Kᵀ
//               TMA: V → stage                   ▶ wait for `v_full`                               P = softmax(S)
//                                                  V → Vᵀ, fence, arrive     ▶  wait for `vt_full`: U += P V
//
//           Why V is transposed: a 16-bit wgmma reads B in either order, an 8-bit one only with k contiguous. k is the
//           channel in Q Kᵀ and the key in P V, but V's keys are rows. So bytes change places in shared memory, four rows
//           of four bytes at a time. wgmma reads through the asynchronous proxy, as TMA writes: what threads have stored
//           is visible to it only after `fence.proxy.async`.
//           Why P is not shuffled: a lane of a quad has S of keys 2t, 2t + 1 of every 8 in its accumulator, and an A
//           operand of k = 32 takes four k in a row from it. The order of k is free as long as P and V agree, so Vᵀ has
//           its keys in the order in which the lanes have P.
//           A row of every tile has 128 bytes, and its eight chunks of 16 are XORed with row % 8 (the 128-byte swizzle).
//           TMA fills what is outside a tensor with zeros: columns from D on and rows beyond the sequence.
// History   `fp8_pipelined` runs the recipe on mma.sync, which Hopper's tensor cores do not have for FP8: ptxas writes
//           f16 products for it. Only wgmma multiplies E4M3 there, twice as fast as fp16. It adds 32 products at once and
//           keeps 13 fraction bits (Ada: 16 at once), so its sums still end after 64 keys. FUSED_PRODUCTS declares
//           that to the judge, which emulates the tensor core.
//           Faster kernels transpose by ldmatrix and stmatrix, load the next S during this softmax, and quantise in the
//           kernel that makes Q, K and V.
// Levers    BLOCK_M: queries of a CTA, 64 per consumer warpgroup; BLOCK_N: keys of a tile; STAGES: tiles in the ring.
// Supports  ELEMENT float, half, __nv_bfloat16 on sm_90a; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped
//           queries); CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf. A block whose largest magnitude is below 448 · 2⁻¹²⁶
//           counts as zero.
//
// weft: gpu       h100
// weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=200 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    FUSED_PRODUCTS = 32
// weft: define    BLOCK_M = 128
// weft: define    BLOCK_N = 128
// weft: define    STAGES = 2
// weft: require   HQ % HKV == 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: workspace k_sum, v_max : f32[B, HKV, cdiv(SKV, 128), D]
// weft: workspace q_code : u8[B, HQ, SQ, cdiv(D, 16) * 16]
// weft: workspace k_code, v_code : u8[B, HKV, SKV, cdiv(D, 16) * 16]
// weft: workspace q_step : f32[B, HQ, cdiv(SQ, BLOCK_M)]
// weft: workspace k_step : f32[B, HKV, cdiv(SKV, BLOCK_N)]
// weft: workspace k_mean, v_step : f32[B, HKV, D]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    survey<{D}>(k, v, k_sum, v_max, SKV)
// weft:           grid(cdiv(SKV, 128), HKV, B) block(D)
// weft: launch    quantise_kv<{D}>(k, v, k_sum, v_max, k_code, v_code, k_step, k_mean, v_step, SKV)
// weft:           grid(cdiv(SKV, BLOCK_N), HKV, B) block(128)
// weft: launch    quantise_q<{D}>(q, q_code, q_step, SQ)
// weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(128)
// weft: launch    fp8_hopper_attention<{D}>(tensormap(q_code, box=(1, 1, 64, 128), swizzle=128),
// weft:               tensormap(k_code, box=(1, 1, BLOCK_N, 128), swizzle=128),
// weft:               tensormap(v_code, box=(1, 1, BLOCK_N, 128), swizzle=128),
// weft:               q, q_step, k_step, k_mean, v_step, o, lse, HKV, SQ, SKV, scale)
// weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(2 * BLOCK_M + 128)
// weft:           shared(128 * (BLOCK_M + STAGES * (2 * BLOCK_N + 64 * cdiv(D, 64)))) opt_in_shared

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using Code = unsigned char;

constexpr int CHUNK = 128;               // keys surveyed by one CTA
constexpr int QUANTISERS = 128;          // threads of `quantise_kv` and `quantise_q`; every tile is a multiple of them
constexpr int CONSUMERS = BLOCK_M / 64;  // warpgroups
constexpr int TRANSPOSERS = 3;           // warps
constexpr int WARPGROUP = 128;           // threads
constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
constexpr int ROW_BYTES = 128;  // of every tile in shared memory: the width of the swizzle
constexpr int FLUSH_KEYS = 64;  // summed by the tensor core, which keeps 13 fraction bits; fp32 sums the rest
constexpr float LARGEST = 448.0f;
constexpr float P_SCALE = 256.0f;
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;
constexpr unsigned ALL_LANES = 0xffffffffu;

static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");
static_assert(FUSED_PRODUCTS == 32, "wgmma of E4M3 adds 32 products at once");
static_assert(BLOCK_M == 64 || BLOCK_M == 128, "a CTA has one or two consumer warpgroups");
static_assert(BLOCK_N == 64 || BLOCK_N == 128, "a row of V transposed has at most 128 keys");
static_assert(STAGES >= 2, "with one stage nothing is loaded during a product");

template <int D>
struct Head {
    static_assert(1 <= D && D <= 128, "D is 1 to 128");
    static constexpr int COLUMNS = (D + 15) / 16 * 16;  // of codes in global memory: TMA copies chunks of 16 bytes
    static constexpr int GROUPS = COLUMNS / 4;
    static constexpr int PANELS = (D + 63) / 64;  // of 64 columns of U, each the result of one product
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

// Writes the codes of `rows` ≤ TILE_ROWS rows and returns their common step. `element(row, d)` are four values from
// column d on; they stay in registers between finding the step and dividing by it.
template <int D, int TILE_ROWS, typename Element>
__device__ __forceinline__ float quantise_rows(Element element, int rows, Code* __restrict__ to) {
    constexpr int GROUPS = Head<D>::GROUPS, ROUNDS = TILE_ROWS * GROUPS / QUANTISERS;
    __shared__ float sMax[QUANTISERS / 32];
    float4 x[ROUNDS];
    float largest = 0.0f;
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
        const int i = round * QUANTISERS + threadIdx.x;
        x[round] = element(i / GROUPS, i % GROUPS * 4);
        largest = fmaxf(largest, largest_of(x[round]));
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, offset));
    if (threadIdx.x % 32 == 0) sMax[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int warp = 0; warp < QUANTISERS / 32; ++warp) largest = fmaxf(largest, sMax[warp]);

    const float step = step_of(largest), inverse = 1.0f / step;
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
        const int i = round * QUANTISERS + threadIdx.x;
        if (i / GROUPS < rows)
            *reinterpret_cast<unsigned*>(to + i * 4) = four_codes(x[round].x * inverse, x[round].y * inverse,
                                                                  x[round].z * inverse, x[round].w * inverse);
    }
    return step;
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
quantise_kv(const ELEMENT* __restrict__ k, const ELEMENT* __restrict__ v, const float* __restrict__ k_sum,
            const float* __restrict__ v_max, Code* __restrict__ k_code, Code* __restrict__ v_code,
            float* __restrict__ k_step, float* __restrict__ k_mean, float* __restrict__ v_step, int SKV) {
    using H = Head<D>;
    __shared__ __align__(16) float sMean[H::COLUMNS], sInverse[H::COLUMNS];
    const int block = blockIdx.x, first_key = block * BLOCK_N, keys = min(BLOCK_N, SKV - first_key);
    const int chunks = (SKV + CHUNK - 1) / CHUNK;
    const size_t kv_head = size_t(blockIdx.z) * gridDim.y + blockIdx.y;  // [b, kv head]
    // The block's own rows: from here on 32 bits hold every index.
    const ELEMENT* const k_rows = k + (kv_head * SKV + first_key) * D;
    const ELEMENT* const v_rows = v + (kv_head * SKV + first_key) * D;
    Code* const k_to = k_code + (kv_head * SKV + first_key) * H::COLUMNS;
    Code* const v_to = v_code + (kv_head * SKV + first_key) * H::COLUMNS;

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

    const auto centred = [&](int key, int d) {
        const float4 x = four<D>(k_rows + key * D, d, key < keys);
        const float4 mean = *reinterpret_cast<const float4*>(&sMean[d]);
        return key < keys ? make_float4(x.x - mean.x, x.y - mean.y, x.z - mean.z, x.w - mean.w) : x;
    };
    const float step = quantise_rows<D, BLOCK_N>(centred, keys, k_to);
    if (threadIdx.x == 0) k_step[kv_head * gridDim.x + block] = step;

    for (int i = threadIdx.x; i < keys * H::GROUPS; i += QUANTISERS) {
        const int key = i / H::GROUPS, d = i % H::GROUPS * 4;
        const float4 x = four<D>(v_rows + key * D, d, true);
        const float4 inverse = *reinterpret_cast<const float4*>(&sInverse[d]);
        *reinterpret_cast<unsigned*>(v_to + i * 4) =
            four_codes(x.x * inverse.x, x.y * inverse.y, x.z * inverse.z, x.w * inverse.w);
    }
}

// Codes of BLOCK_M queries.
template <int D>
__global__ void __launch_bounds__(QUANTISERS)
quantise_q(const ELEMENT* __restrict__ q, Code* __restrict__ q_code, float* __restrict__ q_step, int SQ) {
    const int first_query = blockIdx.x * BLOCK_M, queries = min(BLOCK_M, SQ - first_query);
    const size_t q_head = size_t(blockIdx.z) * gridDim.y + blockIdx.y;  // [b, h]
    const ELEMENT* const rows = q + (q_head * SQ + first_query) * D;
    const auto element = [&](int query, int d) { return four<D>(rows + query * D, d, query < queries); };
    const float step =
        quantise_rows<D, BLOCK_M>(element, queries, q_code + (q_head * SQ + first_query) * Head<D>::COLUMNS);
    if (threadIdx.x == 0) q_step[q_head * gridDim.x + blockIdx.x] = step;
}

// 128 opaque bytes that cuTensorMapEncodeTiled fills: address, sizes, strides, box and swizzle of a tensor.
struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// An mbarrier is a counter in shared memory. A phase ends when `count` threads have arrived and all expected bytes are here.
struct Barrier {
    unsigned long long word;

    __device__ __forceinline__ void init(int count) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(this)), "r"(count) : "memory");
    }
    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(this)) : "memory");
    }
    // Arrives, and lets this phase wait for so many bytes of TMA.
    __device__ __forceinline__ void arrive_expecting(int bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(this)), "r"(bytes)
                     : "memory");
    }
    // Waits for the end of a phase of this parity: phases 0, 2, 4 … have parity 0. Before the first phase ends, a wait for
    // parity 1 returns at once.
    __device__ __forceinline__ void wait(int parity) {
        int over;
        do {
            asm volatile(
                "{\n"
                ".reg .pred p;\n"
                "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                "selp.b32 %0, 1, 0, p;\n"
                "}\n"
                : "=r"(over)
                : "r"(shared_address(this)), "r"(parity)
                : "memory");
        } while (!over);
    }
};

// Starts the copy of one box, from [batch][head][row][0] of the tensor on, to shared memory; `full` counts its bytes.
__device__ __forceinline__ void load_rows(const Code* to, const TensorMap& map, int row, int head, int batch,
                                          Barrier& full) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {0, %2, %3, %4}], "
        "[%5];\n" ::"r"(shared_address(to)),
        "l"(&map), "r"(row), "r"(head), "r"(batch), "r"(shared_address(&full))
        : "memory");
}

// The word at byte `byte` of row `row` of a tile, where the swizzle puts it.
__device__ __forceinline__ unsigned& word_at(Code* tile, int row, int byte) {
    return *reinterpret_cast<unsigned*>(tile + row * ROW_BYTES + (byte ^ row % 8 * 16));
}

// vt[d][n] = v[n][d], where bytes 4t … 4t + 3 of every 16 are keys 2t, 2t + 1, 2t + 8 and 2t + 9 of them: P's order.
// A lane takes four channels of these four keys; a warp takes 32 channels of 16 keys at a time.
template <int CHANNELS>
__device__ __forceinline__ void transpose(Code* vt, Code* v, int warp, int lane) {
    constexpr int STRIPS = BLOCK_N / 16, PARTS = CHANNELS / 32;
    const int t = lane % 4;
    for (int block = warp; block < STRIPS * PARTS; block += TRANSPOSERS) {
        const int strip = block / PARTS * 16, channel = block % PARTS * 32 + lane / 4 * 4, key = strip + 2 * t;
        const unsigned k0 = word_at(v, key, channel), k1 = word_at(v, key + 1, channel);
        const unsigned k8 = word_at(v, key + 8, channel), k9 = word_at(v, key + 9, channel);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            // Lanes begin with another of their channels, so that a warp stores to eight different rows % 8: to all banks.
            const int c = (i + lane / 8) % 4;
            const unsigned pick = c | (c + 4) << 4;  // byte c of the first word, byte c of the second
            word_at(vt, channel + c, strip + 4 * t) =
                __byte_perm(__byte_perm(k0, k1, pick), __byte_perm(k8, k9, pick), 0x5410);
        }
    }
}

// wgmma reads through the asynchronous proxy: it sees what this thread has stored only after a fence between the proxies.
__device__ __forceinline__ void show_stores_to_wgmma() {
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// An operand of wgmma in shared memory, k contiguous: bits 0-13 address / 16, 32-45 bytes from 8 rows to the next 8 / 16,
// 62-63 swizzle (1: 128 bytes). 32 values of k further: + 32 bytes.
__device__ __forceinline__ unsigned long long descriptor(const Code* tile) {
    return (unsigned long long)(shared_address(tile) >> 4 & 0x3fff) | (unsigned long long)(8 * ROW_BYTES >> 4) << 32 |
           1ull << 62;
}

#define ACCUMULATOR                                                                                            \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define FOUR(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ALL(d) FOUR(d, 0), FOUR(d, 4), FOUR(d, 8), FOUR(d, 12), FOUR(d, 16), FOUR(d, 20), FOUR(d, 24), FOUR(d, 28)

// d[64×64] += a[64×32] · b[64×32]ᵀ, both in shared memory. In lane 4g + t of warp w, d[4j …] are columns 8j + 2t and
// 8j + 2t + 1 of row 16w + g, then of row 16w + g + 8.
__device__ __forceinline__ void multiply(float* d, unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 " ACCUMULATOR ", %32, %33, 1, 1, 1;\n"
                 : ALL(d)
                 : "l"(a), "l"(b)
                 : "memory");
}

// The same with a in registers: of rows 16w + g and 16w + g + 8 columns 4t … 4t + 3, then 16 + 4t … 16 + 4t + 3.
__device__ __forceinline__ void multiply(float* d, const unsigned (&a)[4], unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 " ACCUMULATOR
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1;\n"
                 : ALL(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
                 : "memory");
}

// Products are in flight between begin_products and end_products: nothing else may touch their registers, so the
// accumulators are operands of both.
template <int N>
__device__ __forceinline__ void settle(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i)
        asm volatile("" : "+f"(d[i])::"memory");
}

template <int N>
__device__ __forceinline__ void begin_products(float (&d)[N]) {
    settle(d);
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

template <int N>
__device__ __forceinline__ void end_products(float (&d)[N]) {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
    settle(d);
}

// A row of an accumulator is in the four lanes of a quad.
__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

template <int D>
__global__ void __launch_bounds__(THREADS, 1)
fp8_hopper_attention(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                     const __grid_constant__ TensorMap v_map, const ELEMENT* __restrict__ q,
                     const float* __restrict__ q_step, const float* __restrict__ k_step,
                     const float* __restrict__ k_mean, const float* __restrict__ v_step, ELEMENT* __restrict__ o,
                     float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PANELS = Head<D>::PANELS;
    constexpr int Q_TILE = 64 * ROW_BYTES, KV_TILE = BLOCK_N * ROW_BYTES, VT_TILE = PANELS * 64 * ROW_BYTES;  // bytes
    extern __shared__ __align__(1024) Code dynamic_shared[];  // the swizzle repeats every 1024 bytes
    Code* const sQ = dynamic_shared;                          // [CONSUMERS][64][ROW_BYTES]
    Code* const sK = sQ + CONSUMERS * Q_TILE;                 // [STAGES][BLOCK_N][ROW_BYTES]
    Code* const sV = sK + STAGES * KV_TILE;                   // the same
    Code* const sVt = sV + STAGES * KV_TILE;                  // [STAGES][PANELS * 64][ROW_BYTES]: V transposed
    __shared__ Barrier q_full, k_full[STAGES], v_full[STAGES], vt_full[STAGES], empty[STAGES];

    const int warpgroup = threadIdx.x / WARPGROUP, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int HQ = gridDim.y, h = blockIdx.y, b = blockIdx.z;
    const int kv_head = h / (HQ / HKV);  // HQ / HKV query heads share it
    const int first_query = blockIdx.x * BLOCK_M;
    // The last query of the CTA sees the most keys; tiles beyond are skipped.
    const int end = visible_keys(min(first_query + BLOCK_M, SQ) - 1, SQ, SKV);

    if (threadIdx.x == 0) {
        q_full.init(1);
        for (int stage = 0; stage < STAGES; ++stage) {
            k_full[stage].init(1);
            v_full[stage].init(1);
            vt_full[stage].init(TRANSPOSERS);  // one thread of each of their warps arrives
            empty[stage].init(4 * CONSUMERS);  // here, too
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");  // TMA sees them initialised
    }
    __syncthreads();

    if (warpgroup == CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\n");
        const int transposer = warp - 4 * CONSUMERS - 1;
        if (transposer >= 0) {
            for (int tile = 0; tile * BLOCK_N < end; ++tile) {
                const int stage = tile % STAGES, round = tile / STAGES;
                // The producer fills a stage after all consumers have read it, so Vᵀ of the round before is read as well.
                v_full[stage].wait(round % 2);
                transpose<PANELS * 64>(sVt + stage * VT_TILE, sV + stage * KV_TILE, transposer, lane);
                show_stores_to_wgmma();
                __syncwarp();
                if (lane == 0) vt_full[stage].arrive();
            }
            return;
        }
        if (lane != 0 || end == 0) return;  // the producer is one thread
        q_full.arrive_expecting(CONSUMERS * Q_TILE);
        for (int i = 0; i < CONSUMERS; ++i) load_rows(sQ + i * Q_TILE, q_map, first_query + i * 64, h, b, q_full);
        for (int tile = 0; tile * BLOCK_N < end; ++tile) {
            const int stage = tile % STAGES, round = tile / STAGES;
            empty[stage].wait((round + 1) % 2);  // in round 0 there is nothing to wait for
            k_full[stage].arrive_expecting(KV_TILE);
            load_rows(sK + stage * KV_TILE, k_map, tile * BLOCK_N, kv_head, b, k_full[stage]);
            v_full[stage].arrive_expecting(KV_TILE);
            load_rows(sV + stage * KV_TILE, v_map, tile * BLOCK_N, kv_head, b, v_full[stage]);
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\n");
    const int group = lane / 4, member = lane % 4;  // an accumulator's rows group and group + 8, columns 2 · member + {0, 1}
    const int warp_query = first_query + warp * 16;
    const int warp_sees = visible_keys(warp_query, SQ, SKV);  // the fewest keys of the warp's queries
    const size_t q_row = (size_t(b) * HQ + h) * SQ;           // of [b, h, 0] in q, o and lse
    const size_t kv_head_of_all = size_t(b) * HKV + kv_head;
    const int blocks = (SKV + BLOCK_N - 1) / BLOCK_N;

    float u[32 * PANELS] = {};
    float m[2] = {-CUDART_INF_F, -CUDART_INF_F};  // of rows group and group + 8, in units of log2
    float l[2] = {0.0f, 0.0f};                    // this lane's share of their sums
    const float q_unit = q_step[(size_t(b) * HQ + h) * gridDim.x + blockIdx.x];
    if (end > 0) q_full.wait(0);

    for (int tile = 0; tile * BLOCK_N < end; ++tile) {
        const int stage = tile % STAGES, round = tile / STAGES, first_key = tile * BLOCK_N;
        const float factor = q_unit * k_step[kv_head_of_all * blocks + tile] * (scale * LOG2_E);

        // S[m][n] = Σ_d Q[m][d] · K[n][d] · factor
        float s[BLOCK_N / 2] = {};
        k_full[stage].wait(round % 2);
        begin_products(s);
#pragma unroll
        for (int d = 0; d < D; d += 32)
#pragma unroll
            for (int n = 0; n < BLOCK_N; n += 64)
                multiply(s + n / 2, descriptor(sQ + warpgroup * Q_TILE + d),
                         descriptor(sK + stage * KV_TILE + n * ROW_BYTES + d));
        end_products(s);

        const bool partial = first_key + BLOCK_N > warp_sees;  // some query of the warp does not see the entire tile
#pragma unroll
        for (int i = 0; i < BLOCK_N / 2; ++i) {
            s[i] = __fmul_rn(s[i], factor);  // rounded before m is subtracted, not fused with it
            if (partial) {
                const int query = warp_query + group + i / 2 % 2 * 8, key = first_key + i / 4 * 8 + member * 2 + i % 2;
                if (key >= visible_keys(query, SQ, SKV)) s[i] = -CUDART_INF_F;
            }
        }

        // m' = max(m, max_n S), P = 2^(S - m'), r = 2^(m - m'), l' = l · r + Σ_n P, U' = U · r
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float row_max = m[r];
#pragma unroll
            for (int i = 2 * r; i < BLOCK_N / 2; i += 4) row_max = fmaxf(row_max, fmaxf(s[i], s[i + 1]));
            row_max = quad_max(row_max);
            // A row that has seen no key yet has a maximum of -inf, and -inf - (-inf) is NaN. With 0 in its place every
            // power is 2^-inf = 0: P, l and U stay 0.
            const float safe = row_max == -CUDART_INF_F ? 0.0f : row_max;
            const float rescale = exp2_fast(m[r] - safe);
            m[r] = row_max;
            l[r] *= rescale;
#pragma unroll
            for (int i = 2 * r; i < BLOCK_N / 2; i += 4) {
#pragma unroll
                for (int e = i; e < i + 2; ++e) {
                    const float weight = exp2_fast(s[e] - safe);
                    l[r] += weight;
                    s[e] = weight * P_SCALE;  // uses E4M3's range, and 2⁸ is exact
                }
            }
#pragma unroll
            for (int i = 2 * r; i < PANELS * 32; i += 4) {
                u[i] *= rescale;
                u[i + 1] *= rescale;
            }
        }

        // P as A of 32 keys: in each half of 16, this lane's two keys of the first eight, then of the other eight.
        unsigned p[BLOCK_N / 32][4];
#pragma unroll
        for (int i = 0; i < BLOCK_N / 8; ++i) {
            const int first = i / 2 * 8 + i % 2 * 2;
            p[i / 4][i % 4] = four_codes(s[first], s[first + 1], s[first + 4], s[first + 5]);
        }

        // U[m][d] += Σ_n P[m][n] · V[n][d], summed by the tensor core over 64 keys.
        vt_full[stage].wait(round % 2);
#pragma unroll
        for (int first = 0; first < BLOCK_N; first += FLUSH_KEYS) {
            float sum[32 * PANELS] = {};
            begin_products(sum);
#pragma unroll
            for (int n = first; n < first + FLUSH_KEYS; n += 32)
#pragma unroll
                for (int panel = 0; panel < PANELS; ++panel)
                    multiply(sum + 32 * panel, p[n / 32], descriptor(sVt + stage * VT_TILE + panel * 64 * ROW_BYTES + n));
            end_products(sum);
#pragma unroll
            for (int i = 0; i < 32 * PANELS; ++i) u[i] = __fadd_rn(u[i], sum[i]);
        }
        if (lane == 0) empty[stage].arrive();
    }

    // O = U / l · step_v / 2⁸, LSE = (m + log₂ l) · ln 2 + q·k̄ · scale. l = 0 means that no key is visible; a NaN is not 0,
    // and remains a NaN in both.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int query = warp_query + group + r * 8;
        const float whole = quad_sum(l[r]), inverse = whole == 0.0f ? 0.0f : 1.0f / (whole * P_SCALE);
        float mean_score = 0.0f;
#pragma unroll
        for (int d = 2 * member; d < D; d += 8) {
            const float2 mean = two<D>(k_mean + kv_head_of_all * D, d);
            const float2 x = two<D>(q + (q_row + min(query, SQ - 1)) * D, d);
            mean_score += x.x * mean.x;
            mean_score += x.y * mean.y;
        }
        mean_score = quad_sum(mean_score);
        if (query >= SQ) continue;
        if (member == 0)
            lse[q_row + query] = whole == 0.0f ? -CUDART_INF_F : (m[r] + log2f(whole)) * LN_2 + mean_score * scale;
#pragma unroll
        for (int j = 0; j < D; j += 8) {
            const int d = j + 2 * member;
            const float2 step = two<D>(v_step + kv_head_of_all * D, d);
            store_two<D>(o + (q_row + query) * D, d, u[j / 2 + 2 * r] * inverse * step.x,
                         u[j / 2 + 2 * r + 1] * inverse * step.y);
        }
    }
}
