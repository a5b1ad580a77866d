// Production-style fused attention for sm_80 to sm_89: mma.sync on registers, fed by a pipeline of asynchronous copies.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      A warp owns 16 queries. An accumulator of mma.m16n8k16 holds rows g and g + 8 in lane 4g + t, and the next
//           product takes its A operand in the same layout: so S becomes P, and P is multiplied with V, in
//           registers. Only Q, K and V pass through shared memory, which cp.async fills while tensor cores work: K of
//           the next tile is in flight during S = Q Kᵀ, V of the next tile during U += P V. Two barriers per tile.
//           Rows are 2, 4, 8 or 16 chunks of 16 bytes; chunk c of row r is at c ⊕ f(r), so that the eight rows of an
//           ldmatrix phase use all 32 banks once.
//           Apart from mma only softmax is left: every address is one register that a constant moves from tile to tile,
//           and only a tile at the end of the keys checks which of its rows exist.
//           The softmax works in base 2: with s = S · scale · log2(e), P = 2^(s - m), one multiplication per score.
// History   `wmma` moves S, P and U through shared memory. Knowing the layout of a fragment, which WMMA hides, removes
//           all three trips, half of the barriers and every bank conflict.
//           A grid smaller than the chip leaves SMs idle (one query, many keys): then the keys are cut into `splits`
//           parts as in `split_k`, and `merge_parts` merges them.
// Levers    BLOCK_M: queries of a CTA, 16 per warp; BLOCK_N: keys of a tile; SMS: multiprocessors to fill, 1 never splits.
// Supports  ELEMENT half, __nv_bfloat16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           WINDOW_LEFT, WINDOW_RIGHT: how many keys before and, if CAUSAL is 0, after the diagonal it sees; -1 all.
//           A query that sees no key gets O = 0 and LSE = -inf.
//
// weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=200 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    WINDOW_LEFT = -1
// weft: define    WINDOW_RIGHT = -1
// weft: define    BLOCK_M = 64
// weft: define    BLOCK_N = 64
// weft: define    SMS = 58
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: scalar    splits : i32 = max(1, min(cdiv(SKV, 2 * BLOCK_N), SMS // (cdiv(SQ, BLOCK_M) * HQ * B)))
// weft: workspace part_u : f32[B, HQ, splits, SQ, D]
// weft: workspace part_m, part_l : f32[B, HQ, splits, SQ]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: scalar    row_bytes : i32 = 32 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64))
// weft: launch    pipelined_attention<{D}>(q, k, v, o, lse, part_u, part_m, part_l, HKV, SQ, SKV, splits, scale)
// weft:           grid(cdiv(SQ, BLOCK_M), HQ, B * splits) block(2 * BLOCK_M)
// weft:           shared((BLOCK_M + 4 * BLOCK_N) * row_bytes) opt_in_shared
// weft: launch    merge_parts<{D}>(part_u, part_m, part_l, o, lse, SQ, splits)
// weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(2 * BLOCK_M) when(splits > 1)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using T = ELEMENT;

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARPS = BLOCK_M / 16;
constexpr int THREADS = 32 * WARPS;
constexpr int CHUNK = 8;  // elements in 16 bytes: the size of a cp.async and of a row of an 8×8 matrix
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

static_assert(sizeof(T) == 2, "mma.m16n8k16 takes half or __nv_bfloat16");
static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");
static_assert(BLOCK_M % 16 == 0 && BLOCK_N % 16 == 0, "tiles are whole 16×16 pieces");

// A row of a tile: D columns, padded with zeros to a multiple of 16; its length is a power of two of chunks.
template <int D>
struct Row {
    static constexpr int COLUMNS = (D + 15) / 16 * 16;
    static constexpr int CHUNKS = D <= 16 ? 2 : D <= 32 ? 4 : D <= 64 ? 8 : 16;
    static constexpr int BYTES = CHUNKS * 16;
    static constexpr int PHASES = CHUNKS < 8 ? CHUNKS : 8;  // chunks in different groups of four banks

    // Byte offset of element (row, column). 8 / PHASES rows share 128 bytes, and with them f(row).
    static __device__ __forceinline__ unsigned at(unsigned row, unsigned column) {
        const unsigned chunk = column / CHUNK ^ row / (8 / PHASES) % PHASES;
        return row * BYTES + chunk * 16 + column % CHUNK * 2;
    }

    // From an address in columns 0 to 15 to the same row in columns 16 · d to 16 · d + 15: ⊕ reaches eight chunks, the
    // second eight are 128 bytes further. So a lane keeps one address per operand; 8 rows further is a constant more.
    static __device__ __forceinline__ unsigned across(unsigned address, unsigned d) {
        return (address ^ d % 4 * 32) + d / 4 * 128;
    }
};

// A query sees the keys first_visible(query) ≤ key < visible_keys(query): a prefix, unless there is a window. Both grow
// with the query.
__device__ __forceinline__ int first_visible(int query, int SQ, int SKV) {
    if (WINDOW_LEFT < 0) return 0;
    return max(0, (CAUSAL == 1 ? query : query + SKV - SQ) - WINDOW_LEFT);
}

__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0 && WINDOW_RIGHT >= 0) return max(0, min(SKV, query + SKV - SQ + WINDOW_RIGHT + 1));
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

// The row of part_u, part_m and part_l at [b, h, split, query]. Both kernels use this function, so they agree.
__device__ __forceinline__ size_t part_row(int b, int h, int split, int query, int SQ, int splits) {
    return ((size_t(b) * gridDim.y + h) * splits + split) * SQ + query;
}

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// 16 bytes to shared memory without passing a register.
__device__ __forceinline__ void copy_chunk(unsigned to, const T* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from) : "memory");
}

// The same, or 16 zero bytes; nothing is read then.
__device__ __forceinline__ void copy_chunk(unsigned to, const T* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// Waits until at most PENDING of this thread's latest groups are in flight.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

// A thread's share of a tile: chunk `column` of row `row`, and of every STEP-th row below.
template <int D>
struct Share {
    static constexpr int STEP = THREADS / Row<D>::CHUNKS;
    const int row = threadIdx.x / Row<D>::CHUNKS, column = threadIdx.x % Row<D>::CHUNKS * CHUNK;
};

// tile[r][d] = source[r][d] for TILE_ROWS rows; rows from `rows` on and columns from D on become zero. `to` and `from` are
// this thread's first chunk. Zero rows of V are needed: P is 0 there, and 0 · NaN is NaN.
template <int D, int TILE_ROWS>
__device__ __forceinline__ void copy_tile(unsigned to, const T* __restrict__ from, int rows) {
    using R = Row<D>;
    constexpr int STEP = Share<D>::STEP;
    // f(row) is the same for all rows of a thread: its chunks are a constant apart.
    constexpr bool EVEN = D % 16 == 0 && TILE_ROWS % STEP == 0 && STEP % 8 == 0;
    const Share<D> share;
    if (share.column >= R::COLUMNS) return;
    if (EVEN && rows >= TILE_ROWS) {
#pragma unroll
        for (int r = 0; r < TILE_ROWS; r += STEP) copy_chunk(to + r * R::BYTES, from + r * D);
        return;
    }
#pragma unroll
    for (int r = 0; r < TILE_ROWS; r += STEP) {
        if (TILE_ROWS % STEP != 0 && share.row + r >= TILE_ROWS) break;
        const unsigned chunk = to + (R::at(share.row + r, share.column) - R::at(share.row, share.column));
        const bool inside = share.row + r < rows && share.column < D;
        if constexpr (D % CHUNK == 0) {
            copy_chunk(chunk, from + r * D, inside);
        } else {  // rows without alignment: element by element
            T* const elements = static_cast<T*>(__cvta_shared_to_generic(chunk));
#pragma unroll
            for (int j = 0; j < CHUNK; ++j) elements[j] = inside && share.column + j < D ? from[r * D + j] : T(0.0f);
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
__global__ void __launch_bounds__(THREADS)
pipelined_attention(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ o,
                    float* __restrict__ lse, float* __restrict__ part_u, float* __restrict__ part_m,
                    float* __restrict__ part_l, int HKV, int SQ, int SKV, int splits, float scale) {
    static_assert(1 <= D && D <= 128, "D is 1 to 128");
    using R = Row<D>;
    constexpr int TILE = BLOCK_N * R::BYTES;
    constexpr int COLUMNS = R::COLUMNS;
    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    const unsigned sQ = shared_address(dynamic_shared);  // [BLOCK_M][row]
    const unsigned sK = sQ + BLOCK_M * R::BYTES;         // [2][BLOCK_N][row]
    const unsigned sV = sK + 2 * TILE;                   // [2][BLOCK_N][row]

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = lane / 4, member = lane % 4;  // an accumulator's rows group and group + 8, columns 2 · member + {0, 1}
    const int HQ = gridDim.y, h = blockIdx.y, b = blockIdx.z / splits, split = blockIdx.z % splits;
    assert(HQ % HKV == 0);
    const size_t q_head = size_t(b) * HQ + h;                 // [b, h]
    const size_t kv_head = size_t(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const int first_query = blockIdx.x * BLOCK_M, warp_query = first_query + warp * 16;

    // Parts are complete tiles. Tiles that end before the first key of the CTA's first query, or begin after the last key of
    // its last query, are skipped.
    const int keys_per_split = ((SKV + BLOCK_N - 1) / BLOCK_N + splits - 1) / splits * BLOCK_N;
    const int part_begin = split * keys_per_split;
    const int in_window = first_visible(first_query, SQ, SKV) / BLOCK_N * BLOCK_N;
    const int begin = WINDOW_LEFT < 0 ? part_begin : max(part_begin, in_window);
    const int end = min(part_begin + keys_per_split, visible_keys(min(first_query + BLOCK_M, SQ) - 1, SQ, SKV));
    const int warp_sees = visible_keys(warp_query, SQ, SKV);  // the fewest keys of the warp's queries
    const int warp_skips = first_visible(warp_query + 15, SQ, SKV);

    // Addresses that move by a constant from tile to tile: this lane's ldmatrix rows, and this thread's copies.
    unsigned k_lane = sK + R::at(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
    unsigned v_lane = sV + R::at(lane % 16, lane / 16 * 8);
    const Share<D> share;
    unsigned k_to = sK + R::at(share.row, share.column);  // V is 2 · TILE further
    const T* k_from = k + (kv_head * SKV + begin + share.row) * D + share.column;
    const T* v_from = v + (kv_head * SKV + begin + share.row) * D + share.column;
    int other_stage = TILE;  // to the other buffer: + TILE, - TILE in turn

    unsigned q_fragment[COLUMNS / 16][4];
    if (begin < end) {
        copy_tile<D, BLOCK_M>(sQ + R::at(share.row, share.column),
                              q + (q_head * SQ + first_query + share.row) * D + share.column, SQ - first_query);
        copy_tile<D, BLOCK_N>(k_to, k_from, SKV - begin);
        commit_copies();
        copy_tile<D, BLOCK_N>(k_to + 2 * TILE, v_from, SKV - begin);
        commit_copies();
        wait_copies<1>();  // Q is loaded
        __syncthreads();
        const unsigned q_lane = sQ + R::at(warp * 16 + lane % 16, lane / 16 * 8);
#pragma unroll
        for (int d = 0; d < COLUMNS / 16; ++d) load_matrices(q_fragment[d], R::across(q_lane, d));
    }

    float u[COLUMNS / 8][4] = {};
    float m[2] = {-CUDART_INF_F, -CUDART_INF_F};  // of rows group and group + 8, in units of log2
    float l[2] = {0.0f, 0.0f};                    // this lane's share of their sums
    const float scale_log2 = scale * LOG2_E;

    for (int first_key = begin; first_key < end; first_key += BLOCK_N) {
        // Every warp has finished the last product with the other K buffer: it has passed the middle barrier since.
        const int next = first_key + BLOCK_N;
        k_to += other_stage;
        k_from += BLOCK_N * D;
        v_from += BLOCK_N * D;
        if (next < end) copy_tile<D, BLOCK_N>(k_to, k_from, SKV - next);
        commit_copies();
        wait_copies<2>();  // K of this tile is loaded; its V and the next K may be in flight
        __syncthreads();

        // S[m][n] = Σ_d Q[m][d] · K[n][d]
        float s[BLOCK_N / 8][4] = {};
#pragma unroll
        for (int d = 0; d < COLUMNS / 16; ++d) {
#pragma unroll
            for (int n = 0; n < BLOCK_N / 16; ++n) {
                unsigned kt[4];  // keys n · 16 + {0, 8} × columns d · 16 + {0, 8}, columns first
                load_matrices(kt, R::across(k_lane, d) + n * 16 * R::BYTES);
                Element<T>::mma(s[2 * n], q_fragment[d], kt[0], kt[1]);
                Element<T>::mma(s[2 * n + 1], q_fragment[d], kt[2], kt[3]);
            }
        }

        // Some query of the warp does not see the entire tile.
        const bool partial = next > warp_sees || (WINDOW_LEFT >= 0 && first_key < warp_skips);
#pragma unroll
        for (int n = 0; n < BLOCK_N / 8; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                s[n][e] *= scale_log2;
                if (partial) {
                    const int query = warp_query + group + e / 2 * 8, key = first_key + n * 8 + member * 2 + e % 2;
                    if (key >= visible_keys(query, SQ, SKV)) s[n][e] = -CUDART_INF_F;
                    if (WINDOW_LEFT >= 0 && key < first_visible(query, SQ, SKV)) s[n][e] = -CUDART_INF_F;
                }
            }
        }

        // m' = max(m, max_n S), P = 2^(S - m'), r = 2^(m - m'), l' = l · r + Σ_n P, U' = U · r
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float row_max = m[i];
#pragma unroll
            for (int n = 0; n < BLOCK_N / 8; ++n) row_max = fmaxf(row_max, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
            row_max = quad_max(row_max);
            // A row that has seen no key yet has a maximum of -inf, and -inf - (-inf) is NaN. With 0 in its place every
            // power is 2^-inf = 0: P, l and U stay 0.
            const float safe = row_max == -CUDART_INF_F ? 0.0f : row_max;
            const float rescale = exp2_fast(m[i] - safe);
            m[i] = row_max;
            l[i] *= rescale;
#pragma unroll
            for (int n = 0; n < BLOCK_N / 8; ++n) {
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; ++e) {
                    s[n][e] = exp2_fast(s[n][e] - safe);
                    l[i] += s[n][e];
                }
            }
#pragma unroll
            for (int d = 0; d < COLUMNS / 8; ++d) {
                u[d][2 * i] *= rescale;
                u[d][2 * i + 1] *= rescale;
            }
        }

        if (next < end) copy_tile<D, BLOCK_N>(k_to + 2 * TILE, v_from, SKV - next);
        commit_copies();
        wait_copies<2>();  // V of this tile is loaded; the next K and V may be in flight
        __syncthreads();

        // U[m][d] += Σ_n P[m][n] · V[n][d]: two accumulators of S side by side are one A operand.
#pragma unroll
        for (int n = 0; n < BLOCK_N / 16; ++n) {
            const unsigned p[4] = {Element<T>::pack(s[2 * n][0], s[2 * n][1]), Element<T>::pack(s[2 * n][2], s[2 * n][3]),
                                   Element<T>::pack(s[2 * n + 1][0], s[2 * n + 1][1]),
                                   Element<T>::pack(s[2 * n + 1][2], s[2 * n + 1][3])};
#pragma unroll
            for (int d = 0; d < COLUMNS / 16; ++d) {
                unsigned vt[4];  // columns d · 16 + {0, 8} × keys n · 16 + {0, 8}, keys first, each transposed
                load_matrices_transposed(vt, R::across(v_lane, d) + n * 16 * R::BYTES);
                Element<T>::mma(u[2 * d], p, vt[0], vt[1]);
                Element<T>::mma(u[2 * d + 1], p, vt[2], vt[3]);
            }
        }
        k_lane += other_stage;
        v_lane += other_stage;
        other_stage = -other_stage;
    }

    l[0] = quad_sum(l[0]);
    l[1] = quad_sum(l[1]);
    if (splits > 1) {  // unchanged (U, m, l), for merge_parts
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int query = warp_query + group + i * 8;
            if (query >= SQ) continue;
            const size_t part = part_row(b, h, split, query, SQ, splits);
#pragma unroll
            for (int d = 0; d < COLUMNS / 8; ++d) {
                const int column = d * 8 + member * 2;
                if (column < D) part_u[part * D + column] = u[d][2 * i];
                if (column + 1 < D) part_u[part * D + column + 1] = u[d][2 * i + 1];
            }
            if (member == 0) {
                part_m[part] = m[i];
                part_l[part] = l[i];
            }
        }
        return;
    }

    // O = U / l, LSE = m + log l. l = 0 means that no key is visible; a NaN is not 0, and remains a NaN in both.
    // O is stored through the warp's own rows of sQ, to write complete chunks; no other warp reads them.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = group + i * 8, query = warp_query + row;
        const float inverse = l[i] == 0.0f ? 0.0f : 1.0f / l[i];
#pragma unroll
        for (int d = 0; d < COLUMNS / 8; ++d)
            *reinterpret_cast<unsigned*>(dynamic_shared + R::at(warp * 16 + row, d * 8 + member * 2)) =
                Element<T>::pack(u[d][2 * i] * inverse, u[d][2 * i + 1] * inverse);
        if (member == 0 && query < SQ)
            lse[q_head * SQ + query] = l[i] == 0.0f ? -CUDART_INF_F : m[i] * LN_2 + logf(l[i]);
    }
    __syncwarp();
    constexpr int VECTOR = D % CHUNK == 0 ? CHUNK : 1;
    struct alignas(VECTOR * sizeof(T)) Vector { T at[VECTOR]; };
    for (int i = lane; i < 16 * (D / VECTOR); i += 32) {
        const int row = i / (D / VECTOR), column = i % (D / VECTOR) * VECTOR;
        if (warp_query + row >= SQ) break;  // so are all later ones
        *reinterpret_cast<Vector*>(o + (q_head * SQ + warp_query + row) * D + column) =
            *reinterpret_cast<const Vector*>(dynamic_shared + R::at(warp * 16 + row, column));
    }
}

// M = max_i m_i, U = Σ_i 2^(m_i - M) U_i, l = Σ_i 2^(m_i - M) l_i. One warp per query; the lanes share the columns.
template <int D>
__global__ void __launch_bounds__(THREADS)
merge_parts(const float* __restrict__ part_u, const float* __restrict__ part_m, const float* __restrict__ part_l,
            T* __restrict__ o, float* __restrict__ lse, int SQ, int splits) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, b = blockIdx.z, h = blockIdx.y;
    for (int query = blockIdx.x * BLOCK_M + warp; query < min(int(blockIdx.x + 1) * BLOCK_M, SQ); query += WARPS) {
        float m = -CUDART_INF_F, l = 0.0f;
        for (int split = 0; split < splits; ++split) m = fmaxf(m, part_m[part_row(b, h, split, query, SQ, splits)]);
        const float safe = m == -CUDART_INF_F ? 0.0f : m;  // no part saw a key: every weight is 2^-inf = 0
        for (int split = 0; split < splits; ++split) {
            const size_t part = part_row(b, h, split, query, SQ, splits);
            l += exp2_fast(part_m[part] - safe) * part_l[part];
        }
        const size_t row = (size_t(b) * gridDim.y + h) * SQ + query;  // [b, h, query]
        const float inverse = l == 0.0f ? 0.0f : 1.0f / l;
        for (int d = lane; d < D; d += 32) {
            float u = 0.0f;
            for (int split = 0; split < splits; ++split) {
                const size_t part = part_row(b, h, split, query, SQ, splits);
                u += exp2_fast(part_m[part] - safe) * part_u[part * D + d];
            }
            o[row * D + d] = T(u * inverse);
        }
        if (lane == 0) lse[row] = l == 0.0f ? -CUDART_INF_F : m * LN_2 + logf(l);
    }
}
