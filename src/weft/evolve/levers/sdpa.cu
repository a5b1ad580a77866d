// Fused attention of the family sdpa.cu: from the `wmma` rung to a pipeline of asynchronous copies around mma.sync.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      A CTA owns BLOCK_M queries and walks the keys in tiles of BLOCK_N. K and V of the tiles pass one after the
//           other (K₀ V₀ K₁ V₁ …) through a ring of STAGES buffers in shared memory:
//               S = Q Kᵀ · scale,   m' = max(m, max_n S),   P = exp(S - m'),   r = exp(m - m'),
//               l' = l · r + Σ_n P,   U' = U · r + P V,   and after the last tile O = U / l
//           In sdpa.cu every combination of levers that its `require` lines allow computes this.
// Supports  ELEMENT half, __nv_bfloat16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ); scale > 0.
//           A query that sees no key gets O = 0 and LSE = -inf.
//
// weft: sizes   B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
// weft: require HQ % HKV == 0 : query heads share K and V in groups
// weft: require D <= 128 : complete tiles of a head must fit in shared memory
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
//
// weft: lever   PRODUCT = wmma in wmma, mma : fragments of WMMA, with S, P and U in shared memory; or mma.sync, all in registers
// weft: lever   BLOCK_M = 32 in 16, 32, 48, 64, 80, 96, 128 : queries of a CTA
// weft: lever   BLOCK_N = 32 in 32, 64, 128 : keys of a tile
// weft: lever   WARPS = 4 in 1, 2, 3, 4, 5, 6, 8 : warps of a CTA
// weft: lever   COPY = plain in plain, async : how a tile is copied to shared memory: through registers, or by cp.async
// weft: lever   STAGES = 1 in 1, 2, 3, 4 : buffers of the ring
// weft: lever   LAYOUT = padded in plain, padded, swizzled : a tile's rows: end to end, 16 bytes apart, or chunks exchanged by XOR
// weft: lever   Q_AT = shared in shared, registers : whether Q's fragments are read for every tile, or once
// weft: lever   EXP = exp in exp, exp2, fused : exp(S · scale - m), a power of 2, or that in one multiply-add per score
// weft: lever   RESCALE = always in always, moved, lazy : U times r always, if a maximum moved, if it moved by more than 2⁸
// weft: lever   TAIL = every in every, edge : which tiles are compared with the mask
//
// weft: require LAYOUT_swizzled == 0 when PRODUCT_wmma : a WMMA fragment is loaded by one stride
// weft: require Q_AT_registers == 0 when PRODUCT_wmma : the fragments of a warp are of several rows of tiles
// weft: require BLOCK_M % (16 * cdiv(BLOCK_M, 16 * WARPS)) == 0 when PRODUCT_mma : every warp that owns queries owns as many pieces of 16
// weft: require BLOCK_M <= 32 * WARPS when PRODUCT_mma : the registers of a warp hold two pieces of 16 queries
//
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: require scale > 0 : maxima are taken before it is multiplied
// weft: scalar  columns : i32 = 16 * cdiv(D, 16)
// weft: scalar  padding : i32 = 8 * LAYOUT_padded + LAYOUT_swizzled * (16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64)) - columns)
// weft: scalar  tiles : i32 = 2 * (BLOCK_M + STAGES * BLOCK_N) * (columns + padding)
// weft: scalar  fragments : i32 = PRODUCT_wmma * BLOCK_M * (4 * (BLOCK_N + 4) + 2 * (BLOCK_N + 8) + 4 * (columns + 4) + 8)
// weft: launch  attention<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS) shared(tiles + fragments) opt_in_shared
// weft: require 2 * (BLOCK_M + STAGES * BLOCK_N) * (128 + 8 * LAYOUT_padded) + PRODUCT_wmma * BLOCK_M * (6 * BLOCK_N + 568) <= 99 * 1024 : shared memory of a CTA on sm_89, at D = 128

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>
#if PRODUCT_wmma
#include <mma.h>

namespace wmma = nvcuda::wmma;
#endif

using T = ELEMENT;

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;
constexpr int THREADS = 32 * WARPS;
constexpr int CHUNK = 8;  // elements of 16 bytes
#if PRODUCT_mma
constexpr int PIECES = (BLOCK_M + 16 * WARPS - 1) / (16 * WARPS);  // of 16 queries, that a warp owns
constexpr int OWNERS = BLOCK_M / (16 * PIECES);                    // warps that own some; the others copy only
#else
constexpr int FRAG = 16;  // a fragment is 16×16, and so is every piece of work a warp takes
constexpr int S_STRIDE = BLOCK_N + 4;
constexpr int P_STRIDE = BLOCK_N + 8;
#endif

static_assert(sizeof(T) == 2, "tensor cores take half or __nv_bfloat16");
static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");

// A row of a tile: D columns, filled up with zeros to whole pieces of 16.
template <int D>
struct Row {
    static constexpr int COLUMNS = (D + 15) / 16 * 16;
#if LAYOUT_plain
    static constexpr int STRIDE = COLUMNS;
#elif LAYOUT_padded
    static constexpr int STRIDE = COLUMNS + CHUNK;  // rows start in different banks
#else
    static constexpr int CHUNKS = D <= 16 ? 2 : D <= 32 ? 4 : D <= 64 ? 8 : 16;
    static constexpr int STRIDE = CHUNKS * CHUNK;
    static constexpr int PHASES = CHUNKS < 8 ? CHUNKS : 8;  // chunks that eight banks-of-four can tell apart
#endif

    // Where element (row, column) lies.
    static __device__ __forceinline__ int at(int row, int column) {
#if LAYOUT_swizzled
        // 8 / PHASES rows share 128 bytes, and with them what their chunks are exchanged by.
        return row * STRIDE + (column / CHUNK ^ row / (8 / PHASES) % PHASES) * CHUNK + column % CHUNK;
#else
        return row * STRIDE + column;
#endif
    }

    // From a place in columns 0 to 15 to the same row in columns 16 · d to 16 · d + 15.
    static __device__ __forceinline__ int across(int place, int d) {
#if LAYOUT_swizzled
        return (place ^ d % 4 * 16) + d / 4 * 64;  // ⊕ reaches eight chunks, the second eight follow
#else
        return place + d * 16;
#endif
    }
};

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last key in sight; may lie outside
    return max(0, min(SKV, diagonal + 1));
}

#if PRODUCT_mma || COPY_async
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

#endif
#if COPY_plain
// 16 bytes to shared memory, or 16 zero bytes.
__device__ __forceinline__ void copy_chunk(T* destination, const T* source, bool inside) {
    *reinterpret_cast<uint4*>(destination) = inside ? *reinterpret_cast<const uint4*>(source) : uint4{};
}
#else
// 16 bytes to shared memory without passing a register, or 16 zero bytes; nothing is read then.
__device__ __forceinline__ void copy_chunk(T* destination, const T* source, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(destination)), "l"(source),
                 "r"(inside ? 16 : 0)
                 : "memory");
}
#endif

// What is copied up to here is one group.
__device__ __forceinline__ void commit_copies() {
#if COPY_async
    asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

// Until at most PENDING of this thread's latest groups are still on their way.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
#if COPY_async
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
#endif
}

// tile[r][d] = from[r][d] for TILE_ROWS rows; rows from `rows` on and columns from D on become zero.
// Zero rows of V are needed: P is 0 there, and 0 · NaN is NaN.
// A thread copies one chunk of every STEP-th row: the distance is a constant, so no address is computed again.
template <int D, int TILE_ROWS, bool WHOLE>
__device__ __forceinline__ void copy_rows(T* tile, const T* __restrict__ from, int rows) {
    using R = Row<D>;
    constexpr int CHUNKS = R::COLUMNS / CHUNK, STEP = THREADS / CHUNKS;
    const int first = threadIdx.x / CHUNKS, column = threadIdx.x % CHUNKS * CHUNK;
    if (THREADS % CHUNKS != 0 && first >= STEP) return;
    from += first * D + column;
#pragma unroll
    for (int r = 0; r < TILE_ROWS; r += STEP) {
        const int row = first + r;
        if (r + STEP > TILE_ROWS && row >= TILE_ROWS) break;
#if LAYOUT_swizzled
        T* const to = tile + (STEP % 8 == 0 ? R::at(first, column) + r * R::STRIDE : R::at(row, column));
#else
        T* const to = tile + R::at(first, column) + r * R::STRIDE;
#endif
        const bool inside = (WHOLE || row < rows) && (D % 16 == 0 || column < D);
        if constexpr (D % CHUNK == 0) {
            copy_chunk(to, from + r * D, inside);
        } else {  // rows that start anywhere: element by element
#pragma unroll
            for (int j = 0; j < CHUNK; ++j) to[j] = inside && column + j < D ? from[r * D + j] : T(0.0f);
        }
    }
}

template <int D, int TILE_ROWS>
__device__ __forceinline__ void copy_tile(T* tile, const T* __restrict__ head, int first, int rows) {
    const T* const from = head + size_t(first) * D;
#if TAIL_edge
    if (D % 16 == 0 && first + TILE_ROWS <= rows) return copy_rows<D, TILE_ROWS, true>(tile, from, TILE_ROWS);
#endif
    copy_rows<D, TILE_ROWS, false>(tile, from, rows - first);
}

// The ring: step 2i is K of tile i, step 2i + 1 its V; a step lies in the buffer of its number modulo STAGES.
// Fetches step 2 · tile + OFFSET, if the CTA has it.
template <int D, int OFFSET>
__device__ __forceinline__ void fetch(T* ring, const T* k_head, const T* v_head, int tile, int end, int SKV) {
    const int first_key = (tile + OFFSET / 2) * BLOCK_N;
    const unsigned slot = (2u * tile + OFFSET) % STAGES;
    if (first_key < end)
        copy_tile<D, BLOCK_N>(ring + slot * (BLOCK_N * Row<D>::STRIDE), OFFSET % 2 ? v_head : k_head, first_key, SKV);
    commit_copies();
}

#if EXP_exp2 || EXP_fused
__device__ __forceinline__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
// The online softmax of one row: its maximum m and what follows from it.
struct Softmax {
    float factor;

    __device__ __forceinline__ explicit Softmax(float scale) {
#if EXP_exp
        factor = scale;
#else
        factor = scale * LOG2_E;
#endif
    }

    // A score in the units of m.
    __device__ __forceinline__ float score(float product) const {
#if EXP_fused
        return product;  // `weight` multiplies
#else
        return product * factor;
#endif
    }

    __device__ __forceinline__ float next_maximum(float m, float tile_maximum) const {
#if RESCALE_lazy
        // A maximum may lag behind: P stays below 2⁸, which is as exact, and U need not be multiplied.
#if EXP_exp
        return tile_maximum - m > 8 * LN_2 ? tile_maximum : m;
#elif EXP_exp2
        return tile_maximum - m > 8.0f ? tile_maximum : m;
#else
        return (tile_maximum - m) * factor > 8.0f ? tile_maximum : m;
#endif
#else
        return fmaxf(m, tile_maximum);
#endif
    }

    // The exponent of m. Rounded here, once: all weights of a row must use the same value.
    __device__ __forceinline__ float exponent(float m) const {
#if EXP_fused
        return __fmul_rn(m, factor);
#else
        return m;
#endif
    }

    // A row that has seen no key yet has m = -inf, and exp(-inf - (-inf)) is NaN. With 0 in its place every exponential is
    // exp(-inf) = 0: P, l and U stay 0.
    __device__ __forceinline__ float base(float m) const { return m == -CUDART_INF_F ? 0.0f : exponent(m); }

    __device__ __forceinline__ float weight(float score, float base) const {
#if EXP_exp
        return __expf(score - base);
#elif EXP_exp2
        return power_of_2(score - base);
#else
        return power_of_2(fmaf(score, factor, -base));
#endif
    }

    // r: what U and l are multiplied with when m moves to `base`.
    __device__ __forceinline__ float rescale(float m, float base) const {
#if EXP_exp
        return __expf(exponent(m) - base);
#else
        return power_of_2(exponent(m) - base);
#endif
    }

    // l = 0 means no key in sight; a NaN is not 0, and stays visible.
    __device__ __forceinline__ float lse(float m, float l) const {
        if (l == 0.0f) return -CUDART_INF_F;
#if EXP_exp
        return m + logf(l);
#else
        return exponent(m) * LN_2 + logf(l);
#endif
    }
};

#if PRODUCT_mma
// Four 8×8 matrices, each lane naming one of their rows; lane 4g + t receives elements 2t and 2t + 1 of row g.
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const T* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&r)[4], const T* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// What differs between the two types: two floats in one register, and c[16×8] += a[16×16] b[16×8].
template <typename E>
struct Element;

template <>
struct Element<half> {
    static __device__ __forceinline__ unsigned pack(float low, float high) {
        const half2 pair = __floats2half2_rn(low, high);
        return *reinterpret_cast<const unsigned*>(&pair);
    }
    static __device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};\n"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

template <>
struct Element<__nv_bfloat16> {
    static __device__ __forceinline__ unsigned pack(float low, float high) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *reinterpret_cast<const unsigned*>(&pair);
    }
    static __device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};\n"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

// A row of an accumulator lies in the four lanes of a quad.
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}

__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}
#else
// A row of scores is spread over the warp.
__device__ __forceinline__ float row_max(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}

__device__ __forceinline__ float row_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}
#endif

template <int D>
__global__ void __launch_bounds__(THREADS)
attention(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ o,
          float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    static_assert(1 <= D && D <= 128, "D is 1 to 128");
    using R = Row<D>;
    constexpr int COLUMNS = R::COLUMNS;
    constexpr int TILE = BLOCK_N * R::STRIDE;
    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    T* const sQ = reinterpret_cast<T*>(dynamic_shared);  // [BLOCK_M][row]
    T* const ring = sQ + BLOCK_M * R::STRIDE;            // [STAGES][BLOCK_N][row]
#if PRODUCT_wmma
    constexpr int U_STRIDE = COLUMNS + 4;
    float* const sS = reinterpret_cast<float*>(ring + STAGES * TILE);  // [BLOCK_M][S_STRIDE]
    float* const sU = sS + BLOCK_M * S_STRIDE;                         // [BLOCK_M][U_STRIDE]
    float* const sM = sU + BLOCK_M * U_STRIDE;                         // [BLOCK_M]
    float* const sL = sM + BLOCK_M;                                    // [BLOCK_M]
    T* const sP = reinterpret_cast<T*>(sL + BLOCK_M);                  // [BLOCK_M][P_STRIDE]
#endif

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_query = blockIdx.x * BLOCK_M;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    const size_t q_head = size_t(b) * HQ + h;                 // [b, h]
    const size_t kv_head = size_t(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const T* const k_head = k + kv_head * SKV * D;
    const T* const v_head = v + kv_head * SKV * D;
    const Softmax softmax(scale);

    // The last query of the CTA sees the most keys.
    const int end = visible_keys(min(first_query + BLOCK_M, SQ) - 1, SQ, SKV);
    if (end > 0) copy_tile<D, BLOCK_M>(sQ, q + q_head * SQ * D, first_query, SQ);
#if STAGES >= 2
    fetch<D, 0>(ring, k_head, v_head, 0, end, SKV);
#endif
#if STAGES >= 3
    fetch<D, 1>(ring, k_head, v_head, 0, end, SKV);
#endif
#if STAGES >= 4
    fetch<D, 2>(ring, k_head, v_head, 0, end, SKV);
#endif

#if PRODUCT_mma
    const int group = lane / 4, member = lane % 4;  // an accumulator's rows group and group + 8, columns 2 · member + {0, 1}
    const bool owner = OWNERS == WARPS || warp < OWNERS;
    const int warp_row = warp * 16 * PIECES, warp_query = first_query + warp_row;
    // What this lane names to ldmatrix, in columns 0 to 15 and the first rows; 16 rows further is a constant more.
    const int q_place = R::at(warp_row + lane % 16, lane / 16 * 8);
    const int k_place = R::at(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
    const int v_place = R::at(lane % 16, lane / 16 * 8);
    float u[PIECES][COLUMNS / 8][4] = {};
    float m[PIECES][2], l[PIECES][2];  // of rows group and group + 8; l is this lane's share of the sum
#pragma unroll
    for (int r = 0; r < PIECES; ++r) {
        m[r][0] = m[r][1] = -CUDART_INF_F;
        l[r][0] = l[r][1] = 0.0f;
    }
#if Q_AT_registers
    unsigned q_fragment[PIECES][COLUMNS / 16][4];
#endif
#if TAIL_edge
    const int all_see = visible_keys(warp_query, SQ, SKV);  // the fewest keys of the warp's queries
#endif
#else
    for (int i = threadIdx.x; i < BLOCK_M * COLUMNS; i += THREADS) sU[i / COLUMNS * U_STRIDE + i % COLUMNS] = 0.0f;
    for (int i = threadIdx.x; i < BLOCK_M; i += THREADS) {
        sM[i] = -CUDART_INF_F;
        sL[i] = 0.0f;
    }
#if TAIL_edge
    const int all_see = visible_keys(first_query, SQ, SKV);  // the fewest keys of the CTA's queries
#endif
#endif

    for (int tile = 0; tile * BLOCK_N < end; ++tile) {
        const int first_key = tile * BLOCK_N;
#if STAGES == 1
        if (tile > 0) __syncthreads();  // every warp is past the product with V
        fetch<D, 0>(ring, k_head, v_head, tile, end, SKV);
        wait_copies<0>();
        __syncthreads();
#else
        wait_copies<STAGES - 2>();
        __syncthreads();  // K of this tile is here, and every warp is past the product before
        fetch<D, STAGES - 1>(ring, k_head, v_head, tile, end, SKV);
#endif
        const T* const k_tile = ring + 2u * tile % STAGES * TILE;

#if PRODUCT_mma
        float s[PIECES][BLOCK_N / 8][4] = {};
        if (owner) {
#if Q_AT_registers
            if (tile == 0) {
#pragma unroll
                for (int r = 0; r < PIECES; ++r) {
#pragma unroll
                    for (int d = 0; d < COLUMNS / 16; ++d)
                        load_matrices(q_fragment[r][d], sQ + R::across(q_place, d) + r * 16 * R::STRIDE);
                }
            }
#endif
            // S[m][n] = Σ_d Q[m][d] · K[n][d]
#pragma unroll
            for (int d = 0; d < COLUMNS / 16; ++d) {
#if Q_AT_shared
                unsigned q_column[PIECES][4];
#pragma unroll
                for (int r = 0; r < PIECES; ++r)
                    load_matrices(q_column[r], sQ + R::across(q_place, d) + r * 16 * R::STRIDE);
#endif
#pragma unroll
                for (int n = 0; n < BLOCK_N / 16; ++n) {
                    unsigned kt[4];  // keys n · 16 + {0, 8} × columns d · 16 + {0, 8}, columns first
                    load_matrices(kt, k_tile + R::across(k_place, d) + n * 16 * R::STRIDE);
#pragma unroll
                    for (int r = 0; r < PIECES; ++r) {
#if Q_AT_registers
                        Element<T>::mma(s[r][2 * n], q_fragment[r][d], kt[0], kt[1]);
                        Element<T>::mma(s[r][2 * n + 1], q_fragment[r][d], kt[2], kt[3]);
#else
                        Element<T>::mma(s[r][2 * n], q_column[r], kt[0], kt[1]);
                        Element<T>::mma(s[r][2 * n + 1], q_column[r], kt[2], kt[3]);
#endif
                    }
                }
            }
        }
#if STAGES == 1
        __syncthreads();  // every warp is past the product with K
        fetch<D, 1>(ring, k_head, v_head, tile, end, SKV);
#endif

#if TAIL_every
        const bool masked = true;
#else
        const bool masked = first_key + BLOCK_N > all_see;  // some query of the warp does not see the whole tile
#endif
        if (owner) {
            float m_new[PIECES][2];
#pragma unroll
            for (int r = 0; r < PIECES; ++r) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
#pragma unroll
                    for (int n = 0; n < BLOCK_N / 8; ++n) {
                        s[r][n][2 * i] = softmax.score(s[r][n][2 * i]);
                        s[r][n][2 * i + 1] = softmax.score(s[r][n][2 * i + 1]);
                    }
                    if (masked) {
                        const int query = warp_query + r * 16 + i * 8 + group;
                        const int visible = visible_keys(query, SQ, SKV) - first_key - member * 2;  // of this lane's columns
#pragma unroll
                        for (int n = 0; n < BLOCK_N / 8; ++n) {
                            if (n * 8 >= visible) s[r][n][2 * i] = -CUDART_INF_F;
                            if (n * 8 + 1 >= visible) s[r][n][2 * i + 1] = -CUDART_INF_F;
                        }
                    }
                    float largest = fmaxf(s[r][0][2 * i], s[r][0][2 * i + 1]);
#pragma unroll
                    for (int n = 1; n < BLOCK_N / 8; ++n)
                        largest = fmaxf(largest, fmaxf(s[r][n][2 * i], s[r][n][2 * i + 1]));
                    m_new[r][i] = softmax.next_maximum(m[r][i], row_max(largest));
                }
            }

#if RESCALE_moved || RESCALE_lazy
            bool moved = false;
#pragma unroll
            for (int r = 0; r < PIECES; ++r) moved = moved || m_new[r][0] != m[r][0] || m_new[r][1] != m[r][1];
            if (__any_sync(ALL_LANES, moved)) {
#else
            {
#endif
#pragma unroll
                for (int r = 0; r < PIECES; ++r) {
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const float rescale = softmax.rescale(m[r][i], softmax.base(m_new[r][i]));
                        m[r][i] = m_new[r][i];
                        l[r][i] *= rescale;
#pragma unroll
                        for (int d = 0; d < COLUMNS / 8; ++d) {
                            u[r][d][2 * i] *= rescale;
                            u[r][d][2 * i + 1] *= rescale;
                        }
                    }
                }
            }

#pragma unroll
            for (int r = 0; r < PIECES; ++r) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const float base = softmax.base(m[r][i]);
#pragma unroll
                    for (int n = 0; n < BLOCK_N / 8; ++n) {
#pragma unroll
                        for (int e = 2 * i; e < 2 * i + 2; ++e) {
                            s[r][n][e] = softmax.weight(s[r][n][e], base);
                            l[r][i] += s[r][n][e];
                        }
                    }
                }
            }
        }
#else
        // S[m][n] = Σ_d Q[m][d] · K[n][d]: the tile is [n][d], and its column-major view is Kᵀ.
#pragma unroll 1  // a warp takes one fragment or a few: not worth four copies and their registers
        for (int f = warp; f < (BLOCK_M / FRAG) * (BLOCK_N / FRAG); f += WARPS) {
            const int row = f / (BLOCK_N / FRAG) * FRAG, column = f % (BLOCK_N / FRAG) * FRAG;
            wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> scores;
            wmma::fill_fragment(scores, 0.0f);
            for (int d = 0; d < COLUMNS; d += FRAG) {
                wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, T, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, T, wmma::col_major> b;
                wmma::load_matrix_sync(a, sQ + R::at(row, d), R::STRIDE);
                wmma::load_matrix_sync(b, k_tile + R::at(column, d), R::STRIDE);
                wmma::mma_sync(scores, a, b, scores);
            }
            wmma::store_matrix_sync(sS + row * S_STRIDE + column, scores, S_STRIDE, wmma::mem_row_major);
        }
        __syncthreads();
#if STAGES == 1
        fetch<D, 1>(ring, k_head, v_head, tile, end, SKV);  // every warp is past the product with K
#endif

#if TAIL_edge
        const bool masked = first_key + BLOCK_N > all_see;  // some query of the CTA does not see the whole tile
#else
        const bool masked = true;
#endif
        for (int row = warp; row < BLOCK_M; row += WARPS) {
            float score[BLOCK_N / 32], largest = -CUDART_INF_F;
#pragma unroll
            for (int j = 0; j < BLOCK_N / 32; ++j) score[j] = softmax.score(sS[row * S_STRIDE + j * 32 + lane]);
            if (masked) {
                const int visible = visible_keys(first_query + row, SQ, SKV) - first_key;
#pragma unroll
                for (int j = 0; j < BLOCK_N / 32; ++j)
                    if (j * 32 + lane >= visible) score[j] = -CUDART_INF_F;
            }
#pragma unroll
            for (int j = 0; j < BLOCK_N / 32; ++j) largest = fmaxf(largest, score[j]);
            const float m = sM[row], m_new = softmax.next_maximum(m, row_max(largest));
            const float base = softmax.base(m_new);
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < BLOCK_N / 32; ++j) {
                const float p = softmax.weight(score[j], base);
                sP[row * P_STRIDE + j * 32 + lane] = T(p);
                sum += p;
            }
            sum = row_sum(sum);
#if RESCALE_always
            const float rescale = softmax.rescale(m, base);
            for (int column = lane; column < COLUMNS; column += 32) sU[row * U_STRIDE + column] *= rescale;
#else
            float rescale = 1.0f;
            if (m_new != m) {  // in all lanes or in none
                rescale = softmax.rescale(m, base);
                for (int column = lane; column < COLUMNS; column += 32) sU[row * U_STRIDE + column] *= rescale;
            }
#endif
            __syncwarp();  // every lane has read sM[row]
            if (lane == 0) {
                sM[row] = m_new;
                sL[row] = sL[row] * rescale + sum;
            }
        }
#endif

#if STAGES == 1
        wait_copies<0>();
        __syncthreads();
#else
        wait_copies<STAGES - 2>();
        __syncthreads();  // V of this tile is here, and every warp is past the product with K
        fetch<D, STAGES>(ring, k_head, v_head, tile, end, SKV);
#endif
        const T* const v_tile = ring + (2u * tile + 1) % STAGES * TILE;

#if PRODUCT_mma
        if (owner) {
            // U[m][d] += Σ_n P[m][n] · V[n][d]: two accumulators of S side by side are one A operand.
#pragma unroll
            for (int n = 0; n < BLOCK_N / 16; ++n) {
                unsigned p[PIECES][4];
#pragma unroll
                for (int r = 0; r < PIECES; ++r) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int at = 2 * n + e / 2, row = e % 2 * 2;
                        p[r][e] = Element<T>::pack(s[r][at][row], s[r][at][row + 1]);
                    }
                }
#pragma unroll
                for (int d = 0; d < COLUMNS / 16; ++d) {
                    unsigned vt[4];  // columns d · 16 + {0, 8} × keys n · 16 + {0, 8}, keys first, each transposed
                    load_matrices_transposed(vt, v_tile + R::across(v_place, d) + n * 16 * R::STRIDE);
#pragma unroll
                    for (int r = 0; r < PIECES; ++r) {
                        Element<T>::mma(u[r][2 * d], p[r], vt[0], vt[1]);
                        Element<T>::mma(u[r][2 * d + 1], p[r], vt[2], vt[3]);
                    }
                }
            }
        }
#else
        // U[m][d] += Σ_n P[m][n] · V[n][d]
#pragma unroll 1  // a warp takes one fragment or a few: not worth four copies and their registers
        for (int f = warp; f < (BLOCK_M / FRAG) * (COLUMNS / FRAG); f += WARPS) {
            const int row = f / (COLUMNS / FRAG) * FRAG, column = f % (COLUMNS / FRAG) * FRAG;
            wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> u;
            wmma::load_matrix_sync(u, sU + row * U_STRIDE + column, U_STRIDE, wmma::mem_row_major);
            for (int n = 0; n < BLOCK_N; n += FRAG) {
                wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, T, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, T, wmma::row_major> b;
                wmma::load_matrix_sync(a, sP + row * P_STRIDE + n, P_STRIDE);
                wmma::load_matrix_sync(b, v_tile + R::at(n, column), R::STRIDE);
                wmma::mma_sync(u, a, b, u);
            }
            wmma::store_matrix_sync(sU + row * U_STRIDE + column, u, U_STRIDE, wmma::mem_row_major);
        }
#endif
    }

    constexpr int VECTOR = D % CHUNK == 0 ? CHUNK : 1;  // elements per access: 16 bytes where rows are aligned to it
    struct alignas(VECTOR * sizeof(T)) Vector { T at[VECTOR]; };
#if PRODUCT_mma
    if (!owner) return;
    // O = U / l goes back through the warp's own rows of sQ, so that it leaves in whole chunks; no other warp reads them.
#pragma unroll
    for (int r = 0; r < PIECES; ++r) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = r * 16 + i * 8 + group, query = warp_query + row;
            const float sum = row_sum(l[r][i]), inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
            for (int d = 0; d < COLUMNS / 8; ++d)
                *reinterpret_cast<unsigned*>(sQ + R::at(warp_row + row, d * 8 + member * 2)) =
                    Element<T>::pack(u[r][d][2 * i] * inverse, u[r][d][2 * i + 1] * inverse);
            if (member == 0 && query < SQ) lse[q_head * SQ + query] = softmax.lse(m[r][i], sum);
        }
    }
    __syncwarp();
    for (int i = lane; i < 16 * PIECES * (D / VECTOR); i += 32) {
        const int row = i / (D / VECTOR), column = i % (D / VECTOR) * VECTOR;
        if (warp_query + row >= SQ) break;  // so are all later ones
        *reinterpret_cast<Vector*>(o + (q_head * SQ + warp_query + row) * D + column) =
            *reinterpret_cast<const Vector*>(sQ + R::at(warp_row + row, column));
    }
#else
    __syncthreads();  // U is what other threads made
    for (int i = threadIdx.x; i < BLOCK_M * (D / VECTOR); i += THREADS) {
        const int row = i / (D / VECTOR), column = i % (D / VECTOR) * VECTOR;
        if (first_query + row >= SQ) break;  // so are all later ones
        const float inverse = sL[row] == 0.0f ? 0.0f : 1.0f / sL[row];
        Vector value;
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) value.at[j] = T(sU[row * U_STRIDE + column + j] * inverse);
        *reinterpret_cast<Vector*>(o + (q_head * SQ + first_query + row) * D + column) = value;
    }
    for (int row = threadIdx.x; row < BLOCK_M && first_query + row < SQ; row += THREADS)
        lse[q_head * SQ + first_query + row] = softmax.lse(sM[row], sL[row]);
#endif
}
