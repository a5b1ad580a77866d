// The backward pass of attention on tensor cores: every product is an mma.sync on registers.
//
//     P = exp(Q Kᵀ · scale - LSE),   dV = Pᵀ dO,   dP = dO Vᵀ,   delta = Σ_d dO ∘ O
//     dS = P ∘ (dP - delta),   dQ = scale · dS K,   dK = scale · dSᵀ Q
//
// Idea      The two loops of `backward` on tiles. A CTA of `backward_dq` owns BLOCK_M queries, 16 per warp, and iterates
//           over tiles of keys: S = Q Kᵀ, dP = dO Vᵀ, dQ += dS K. A CTA of `backward_dkv` owns BLOCK_N keys, 16 per warp,
//           and iterates over tiles of queries with the roles exchanged: Sᵀ = K Qᵀ, dPᵀ = V dOᵀ, dV += Pᵀ dO,
//           dK += dSᵀ Q. So in both an accumulator has the warp's own rows, and is the A operand of the next product in
//           the same layout: P and dS stay in registers, rounded to the element type, and nothing is transposed but by
//           ldmatrix. Sums are fp32. No atomics: the same bits every time.
//           Rows in shared memory are padded by 16 bytes, an odd number of 16-byte chunks: the eight rows of an ldmatrix
//           phase use all 32 banks once.
// History   `backward` reads a row of K, V, Q or dO for every score; here a tile of them serves all rows of a CTA.
//           The products are those of `backward_triton`. Kernels that make dQ in the same loop as dK and dV save two of
//           the seven and need atomics. Copies do not overlap with products: `pipelined` shows how they can.
// Levers    BLOCK_M and BLOCK_N: queries and keys of a tile. A CTA has 2 threads per row it owns.
// Supports  ELEMENT half, __nv_bfloat16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped queries: dK and dV
//           sum over the group); CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key has LSE = -inf and adds nothing.
//
// weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=100 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    BLOCK_M = 64
// weft: define    BLOCK_N = 64
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: in        o    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        lse  : f32[B, HQ, SQ] = normal
// weft: in        do   : ELEMENT[B, HQ, SQ, D] = normal
// weft: workspace delta : f32[B, HQ, SQ]
// weft: out       dq   : ELEMENT[B, HQ, SQ, D]
// weft: out       dk, dv : ELEMENT[B, HKV, SKV, D]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: scalar    row_bytes : i32 = 32 * cdiv(D, 16) + 16
// weft: launch    backward_delta<{D}>(o, do, delta, SQ)
// weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(2 * BLOCK_M)
// weft: launch    backward_dq<{D}>(q, k, v, lse, do, delta, dq, HKV, SQ, SKV, scale)
// weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(2 * BLOCK_M)
// weft:           shared(2 * (BLOCK_M + BLOCK_N) * row_bytes) opt_in_shared
// weft: launch    backward_dkv<{D}>(q, k, v, lse, do, delta, dk, dv, HQ, SQ, SKV, scale)
// weft:           grid(cdiv(SKV, BLOCK_N), HKV, B) block(2 * BLOCK_N)
// weft:           shared(2 * (BLOCK_M + BLOCK_N) * row_bytes + 8 * BLOCK_M) opt_in_shared

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using T = ELEMENT;

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int CHUNK = 8;  // elements in 16 bytes: the size of a cp.async and of a row of an 8×8 matrix
constexpr float LOG2_E = 1.4426950408889634f;

static_assert(sizeof(T) == 2, "mma.m16n8k16 takes half or __nv_bfloat16");
static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");
static_assert(BLOCK_M % 16 == 0 && BLOCK_N % 16 == 0, "tiles are whole 16×16 pieces");

// A row of a tile in shared memory: D columns, padded with zeros to a multiple of 16, and 16 bytes that no thread reads.
template <int D>
struct Row {
    static_assert(1 <= D && D <= 128, "D is 1 to 128");
    static constexpr int COLUMNS = (D + 15) / 16 * 16;
    static constexpr int BYTES = 2 * COLUMNS + 16;

    static __device__ __forceinline__ unsigned at(unsigned row, unsigned column) { return row * BYTES + column * 2; }
};

// A warp's 16 rows × N columns as accumulators of mma: lane 4g + t holds columns 8n + 2t and 8n + 2t + 1 of row g in
// [n][0] and [n][1], those of row g + 8 in [n][2] and [n][3].
template <int N>
using Accumulator = float[N / 8][4];

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

// The first query that sees a key; later ones do, too. SQ or more if none does.
__device__ __forceinline__ int first_query_of(int key, int SQ, int SKV) {
    if (CAUSAL == 0) return 0;
    return max(0, CAUSAL == 1 ? key : key - SKV + SQ);
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// 16 bytes to shared memory without passing a register, or 16 zero bytes; nothing is read then.
__device__ __forceinline__ void copy_chunk(unsigned to, const T* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;\n" ::: "memory"); }

// All copies of all threads have arrived.
__device__ __forceinline__ void finish_copies() {
    wait_for_copies();
    __syncthreads();
}

// tile[r][d] = source[r][d] for ROWS rows; rows from `rows` on and columns from D on become zero: P and dS are 0 there, and
// 0 · NaN is NaN.
template <int D, int ROWS>
__device__ __forceinline__ void copy_tile(unsigned tile, const T* __restrict__ source, int rows) {
    using R = Row<D>;
    constexpr int CHUNKS = R::COLUMNS / CHUNK;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += blockDim.x) {
        const int row = i / CHUNKS, column = i % CHUNKS * CHUNK;
        const unsigned to = tile + R::at(row, column);
        const T* const from = source + row * D + column;
        if constexpr (D % CHUNK == 0) {
            copy_chunk(to, from, row < rows && column < D);
        } else {  // rows without alignment: element by element
            T* const elements = static_cast<T*>(__cvta_shared_to_generic(to));
#pragma unroll
            for (int j = 0; j < CHUNK; ++j) elements[j] = row < rows && column + j < D ? from[j] : T(0.0f);
        }
    }
}

// Four 8×8 matrices; each lane addresses one of their rows; lane 4g + t receives elements 2t and 2t + 1 of row g.
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&r)[4], unsigned row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

// The operations that differ between the two types: two floats in one register, and c[16×8] += a[16×16] b[16×8].
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

// s[i][j] = Σ_d own[i][d] · tile[j][d]: the warp's 16 rows of a tile with every row of another.
template <int D, int ROWS>
__device__ __forceinline__ void dot_rows(Accumulator<ROWS>& s, unsigned own, unsigned tile) {
    using R = Row<D>;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned own_lane = own + R::at(warp * 16 + lane % 16, lane / 16 * 8);
    const unsigned tile_lane = tile + R::at(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
    for (int n = 0; n < ROWS / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[n][e] = 0.0f;
#pragma unroll
    for (int d = 0; d < R::COLUMNS; d += 16) {
        unsigned a[4];  // rows {0, 8} × columns d + {0, 8}, rows first
        load_matrices(a, own_lane + d * 2);
#pragma unroll
        for (int n = 0; n < ROWS / 16; ++n) {
            unsigned b[4];  // rows n · 16 + {0, 8} × columns d + {0, 8}, columns first
            load_matrices(b, tile_lane + R::at(n * 16, d));
            Element<T>::mma(s[2 * n], a, b[0], b[1]);
            Element<T>::mma(s[2 * n + 1], a, b[2], b[3]);
        }
    }
}

// sum[i][d] += Σ_j weights[i][j] · tile[j][d]: two accumulators side by side, rounded, are one A operand.
template <int D, int ROWS>
__device__ __forceinline__ void add_rows(Accumulator<Row<D>::COLUMNS>& sum, const Accumulator<ROWS>& weights,
                                         unsigned tile) {
    using R = Row<D>;
    const int lane = threadIdx.x % 32;
    const unsigned tile_lane = tile + R::at(lane % 16, lane / 16 * 8);
#pragma unroll
    for (int n = 0; n < ROWS / 16; ++n) {
        const float(&left)[4] = weights[2 * n], (&right)[4] = weights[2 * n + 1];
        const unsigned a[4] = {Element<T>::pack(left[0], left[1]), Element<T>::pack(left[2], left[3]),
                               Element<T>::pack(right[0], right[1]), Element<T>::pack(right[2], right[3])};
#pragma unroll
        for (int d = 0; d < R::COLUMNS / 16; ++d) {
            unsigned b[4];  // columns d · 16 + {0, 8} × rows n · 16 + {0, 8}, rows first, each transposed
            load_matrices_transposed(b, tile_lane + R::at(n * 16, d * 16));
            Element<T>::mma(sum[2 * d], a, b[0], b[1]);
            Element<T>::mma(sum[2 * d + 1], a, b[2], b[3]);
        }
    }
}

// to[r][d] = sum[r][d] · factor for the warp's own rows below `rows`, through its rows of `tile`, which no other warp
// reads: global memory is written in complete chunks.
template <int D>
__device__ __forceinline__ void store_rows(T* __restrict__ to, const Accumulator<Row<D>::COLUMNS>& sum, float factor,
                                           unsigned char* tile, int rows) {
    using R = Row<D>;
    const int warp_row = threadIdx.x / 32 * 16, lane = threadIdx.x % 32;
#pragma unroll
    for (int d = 0; d < R::COLUMNS / 8; ++d)
#pragma unroll
        for (int i = 0; i < 2; ++i)
            *reinterpret_cast<unsigned*>(tile + R::at(warp_row + lane / 4 + i * 8, d * 8 + lane % 4 * 2)) =
                Element<T>::pack(sum[d][2 * i] * factor, sum[d][2 * i + 1] * factor);
    __syncwarp();
    constexpr int VECTOR = D % CHUNK == 0 ? CHUNK : 1;
    struct alignas(VECTOR * sizeof(T)) Vector { T at[VECTOR]; };
    for (int i = lane; i < 16 * (D / VECTOR); i += 32) {
        const int row = warp_row + i / (D / VECTOR), column = i % (D / VECTOR) * VECTOR;
        if (row >= rows) break;  // so are all later ones
        *reinterpret_cast<Vector*>(to + row * D + column) = *reinterpret_cast<const Vector*>(tile + R::at(row, column));
    }
}

// One warp per query; the lanes share the columns.
template <int D>
__global__ void __launch_bounds__(2 * BLOCK_M)
backward_delta(const T* __restrict__ o, const T* __restrict__ d_o, float* __restrict__ delta, int SQ) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int r = warp; r < BLOCK_M; r += BLOCK_M / 16) {
        const int query = blockIdx.x * BLOCK_M + r;
        if (query >= SQ) break;
        const size_t row = (size_t(blockIdx.z) * gridDim.y + blockIdx.y) * SQ + query;  // [b, h, query]
        float sum = 0.0f;
        for (int d = lane; d < D; d += 32) sum += float(o[row * D + d]) * float(d_o[row * D + d]);
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, offset);
        if (lane == 0) delta[row] = sum;
    }
}

template <int D>
__global__ void __launch_bounds__(2 * BLOCK_M)
backward_dq(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const float* __restrict__ lse,
            const T* __restrict__ d_o, const float* __restrict__ delta, T* __restrict__ dq, int HKV, int SQ, int SKV,
            float scale) {
    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    const unsigned sQ = shared_address(dynamic_shared);  // [BLOCK_M][row]
    const unsigned sDO = sQ + BLOCK_M * Row<D>::BYTES;   // [BLOCK_M][row]
    const unsigned sK = sDO + BLOCK_M * Row<D>::BYTES;   // [BLOCK_N][row]
    const unsigned sV = sK + BLOCK_N * Row<D>::BYTES;    // [BLOCK_N][row]

    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
    const int HQ = gridDim.y, h = blockIdx.y, b = blockIdx.z;
    assert(HQ % HKV == 0);
    const size_t kv_head = size_t(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const int first_query = blockIdx.x * BLOCK_M;
    const size_t first_row = (size_t(b) * HQ + h) * SQ + first_query;  // [b, h, first query]
    const int end = visible_keys(min(first_query + BLOCK_M, SQ) - 1, SQ, SKV);  // the last query sees the most keys
    if (end > 0) {
        copy_tile<D, BLOCK_M>(sQ, q + first_row * D, SQ - first_query);
        copy_tile<D, BLOCK_M>(sDO, d_o + first_row * D, SQ - first_query);
    }

    float lse_log2[2], row_delta[2];  // of rows group and group + 8 of the warp
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = warp * 16 + group + i * 8;
        const bool inside = first_query + row < SQ;
        lse_log2[i] = inside ? lse[first_row + row] * LOG2_E : 0.0f;
        row_delta[i] = inside ? delta[first_row + row] : 0.0f;
    }

    Accumulator<Row<D>::COLUMNS> dq_sum = {};
    const float scale_log2 = scale * LOG2_E;
    for (int first_key = 0; first_key < end; first_key += BLOCK_N) {
        copy_tile<D, BLOCK_N>(sK, k + (kv_head * SKV + first_key) * D, SKV - first_key);
        copy_tile<D, BLOCK_N>(sV, v + (kv_head * SKV + first_key) * D, SKV - first_key);
        finish_copies();

        Accumulator<BLOCK_N> s, dp;
        dot_rows<D, BLOCK_N>(s, sQ, sK);
        dot_rows<D, BLOCK_N>(dp, sDO, sV);
#pragma unroll
        for (int n = 0; n < BLOCK_N / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int query = first_query + warp * 16 + group + e / 2 * 8, key = first_key + n * 8 + member * 2 + e % 2;
                const float p = exp2_fast(s[n][e] * scale_log2 - lse_log2[e / 2]);
                dp[n][e] = key < visible_keys(query, SQ, SKV) ? p * (dp[n][e] - row_delta[e / 2]) : 0.0f;  // dS
            }
        }
        add_rows<D, BLOCK_N>(dq_sum, dp, sK);
        __syncthreads();  // before the next tile, and dQ, are written to shared memory
    }
    store_rows<D>(dq + first_row * D, dq_sum, scale, dynamic_shared, SQ - first_query);
}

template <int D>
__global__ void __launch_bounds__(2 * BLOCK_N)
backward_dkv(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const float* __restrict__ lse,
             const T* __restrict__ d_o, const float* __restrict__ delta, T* __restrict__ dk, T* __restrict__ dv, int HQ,
             int SQ, int SKV, float scale) {
    constexpr int OWN_TILE = BLOCK_N * Row<D>::BYTES, TILE = BLOCK_M * Row<D>::BYTES;
    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    const unsigned sK = shared_address(dynamic_shared);  // [BLOCK_N][row]
    const unsigned sV = sK + OWN_TILE;                   // [BLOCK_N][row]
    const unsigned sQ = sV + OWN_TILE;                   // [BLOCK_M][row]
    const unsigned sDO = sQ + TILE;                      // [BLOCK_M][row]
    float* const lse_log2 = reinterpret_cast<float*>(dynamic_shared + 2 * (OWN_TILE + TILE));  // [BLOCK_M]
    float* const row_delta = lse_log2 + BLOCK_M;                                               // [BLOCK_M]

    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
    const int HKV = gridDim.y, b = blockIdx.z, heads = HQ / HKV;
    const int first_key = blockIdx.x * BLOCK_N;
    const size_t first_kv_row = (size_t(b) * HKV + blockIdx.y) * SKV + first_key;  // [b, kv head, first key]
    const int begin = first_query_of(first_key, SQ, SKV) / BLOCK_M * BLOCK_M;  // tiles before it see none of the keys
    if (begin < SQ) {
        copy_tile<D, BLOCK_N>(sK, k + first_kv_row * D, SKV - first_key);
        copy_tile<D, BLOCK_N>(sV, v + first_kv_row * D, SKV - first_key);
    }

    Accumulator<Row<D>::COLUMNS> dk_sum = {}, dv_sum = {};
    const float scale_log2 = scale * LOG2_E;
    for (int head = 0; head < heads; ++head) {
        const size_t q_head = size_t(b) * HQ + blockIdx.y * heads + head;  // [b, h]
        for (int first_query = begin; first_query < SQ; first_query += BLOCK_M) {
            const size_t first_row = q_head * SQ + first_query;
            copy_tile<D, BLOCK_M>(sQ, q + first_row * D, SQ - first_query);
            copy_tile<D, BLOCK_M>(sDO, d_o + first_row * D, SQ - first_query);
            for (int row = threadIdx.x; row < BLOCK_M; row += blockDim.x) {
                const bool inside = first_query + row < SQ;
                lse_log2[row] = inside ? lse[first_row + row] * LOG2_E : 0.0f;
                row_delta[row] = inside ? delta[first_row + row] : 0.0f;
            }
            finish_copies();

            Accumulator<BLOCK_M> s, dp;  // keys × queries: Sᵀ and dPᵀ
            dot_rows<D, BLOCK_M>(s, sK, sQ);
            dot_rows<D, BLOCK_M>(dp, sV, sDO);
#pragma unroll
            for (int n = 0; n < BLOCK_M / 8; ++n) {
                const int pair = n * 8 + member * 2;  // a lane has two queries next to each other
                const float2 pair_lse = *reinterpret_cast<const float2*>(lse_log2 + pair);
                const float2 pair_delta = *reinterpret_cast<const float2*>(row_delta + pair);
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int query = first_query + pair + e % 2;
                    const int key = first_key + warp * 16 + group + e / 2 * 8;
                    const bool seen = query < SQ && key < visible_keys(query, SQ, SKV);
                    const float p = exp2_fast(s[n][e] * scale_log2 - (e % 2 == 0 ? pair_lse.x : pair_lse.y));
                    const float of_query = e % 2 == 0 ? pair_delta.x : pair_delta.y;
                    s[n][e] = seen ? p : 0.0f;                            // P
                    dp[n][e] = seen ? p * (dp[n][e] - of_query) : 0.0f;  // dS
                }
            }
            add_rows<D, BLOCK_M>(dv_sum, s, sDO);
            add_rows<D, BLOCK_M>(dk_sum, dp, sQ);
            __syncthreads();  // before the next tile, and dK and dV, are written to shared memory
        }
    }
    store_rows<D>(dk + first_kv_row * D, dk_sum, scale, dynamic_shared, SKV - first_key);
    store_rows<D>(dv + first_kv_row * D, dv_sum, 1.0f, dynamic_shared + OWN_TILE, SKV - first_key);
}
