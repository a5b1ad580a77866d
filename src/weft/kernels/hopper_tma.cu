// Warp-specialised fused attention for Hopper (sm_90a): one thread loads tiles by TMA, warpgroups multiply them by wgmma.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      Loads and products are asynchronous, so a CTA has two kinds of warps. One thread of the producer warpgroup asks
//           the TMA unit for tiles of K and V. A consumer warpgroup owns 64 queries: products and softmax, nothing else.
//           They meet at mbarriers, in a ring of STAGES stages:
//
//               producer                                  consumer warpgroup
//               wait for `empty`               ◀───────   arrive at `empty`: the products have read K and V
//               expect the bytes of the tile
//               TMA: K → stage, V → stage      ───────▶   wait for `k_full`:  S = Q Kᵀ, both operands in shared memory
//                                                                             P = softmax(S), in registers
//                                                         wait for `v_full`:  U += P V, P in registers
//
//           A tile is a list of panels of 64 columns: a row of a panel has 128 bytes, and its eight chunks of 16 bytes are
//           XORed with row % 8 (the 128-byte swizzle). TMA writes this layout and wgmma reads it: no address arithmetic,
//           no bank conflicts. Columns from D on and rows beyond the sequence are zero: TMA fills what is outside the tensor.
//           Every product is m64n64k16. A warp has 16 rows of an accumulator, in the layout of mma.m16n8k16, which is the
//           layout of an A operand in registers, too: so S becomes P where it is.
//           The softmax works in base 2: with s = S · scale · log2(e), P = 2^(s - m).
// History   The threads of `pipelined` compute addresses, copy chunks of 16 bytes and load fragments. Here a tile is one
//           instruction of one thread, an operand is a 64-bit descriptor, and the producer's registers go to the consumers.
//           Faster kernels add products of n128 and n256, S of the next tile during the softmax of this one, O stored by
//           TMA, a persistent grid.
// Levers    BLOCK_M: queries of a CTA, 64 per consumer warpgroup; BLOCK_N: keys of a tile; STAGES: tiles in the ring.
// Supports  half on sm_90a; any SQ, SKV ≥ 1; D a multiple of 8 up to 128; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf.
//
// weft: gpu       h100
// weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=200 D=64
// weft: define    CAUSAL = 0
// weft: define    BLOCK_M = 128
// weft: define    BLOCK_N = 64
// weft: define    STAGES = 2
// weft: require   HQ % HKV == 0
// weft: require   D % 8 == 0 : rows of a tensor map are multiples of 16 bytes
// weft: in        q    : f16[B, HQ, SQ, D] = normal
// weft: in        k, v : f16[B, HKV, SKV, D] = normal
// weft: out       o    : f16[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    hopper_attention<{D}>(tensormap(q, box=(1, 1, 64, 64), swizzle=128),
// weft:               tensormap(k, box=(1, 1, BLOCK_N, 64), swizzle=128),
// weft:               tensormap(v, box=(1, 1, BLOCK_N, 64), swizzle=128), o, lse, HKV, SQ, SKV, scale)
// weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(2 * BLOCK_M + 128)
// weft:           shared(128 * cdiv(D, 64) * (BLOCK_M + 2 * STAGES * BLOCK_N)) opt_in_shared

#include <cuda_fp16.h>
#include <math_constants.h>

constexpr int CONSUMERS = BLOCK_M / 64;  // warpgroups
constexpr int WARPGROUP = 128;           // threads
constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
constexpr int PANEL = 64;  // columns: 128 bytes of half, the width of the swizzle
constexpr int ROW_BYTES = PANEL * sizeof(half);
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");
static_assert(BLOCK_M == 64 || BLOCK_M == 128 || BLOCK_M == 192, "a CTA has one to three consumer warpgroups");
static_assert(BLOCK_N == 64 || BLOCK_N == 128, "tiles are whole products of 64 keys");
static_assert(STAGES >= 2, "with one stage nothing is loaded during a product");

// 128 opaque bytes that cuTensorMapEncodeTiled fills: address, sizes, strides, box and swizzle of a tensor.
struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

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

// Starts the copy of one box, at [batch][head][row][column] of the tensor, to shared memory; `full` counts its bytes.
__device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, int column, int row, int head, int batch,
                                         Barrier& full) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
        "[%6];\n" ::"r"(to),
        "l"(&map), "r"(column), "r"(row), "r"(head), "r"(batch), "r"(shared_address(&full))
        : "memory");
}

// An operand of wgmma in shared memory: bits 0-13 address / 16, 32-45 bytes from 8 rows to the next 8 / 16, 62-63 swizzle
// (1: 128 bytes). The same for Q and K, whose rows are along the product's k (16 columns further: + 32 bytes), and for V,
// whose rows are along n (16 keys further: + 16 rows).
__device__ __forceinline__ unsigned long long descriptor(unsigned address) {
    return (unsigned long long)(address >> 4 & 0x3fff) | (unsigned long long)(8 * ROW_BYTES >> 4) << 32 | 1ull << 62;
}

#define ACCUMULATOR                                                                                            \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define FOUR(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ALL(d) FOUR(d, 0), FOUR(d, 4), FOUR(d, 8), FOUR(d, 12), FOUR(d, 16), FOUR(d, 20), FOUR(d, 24), FOUR(d, 28)

// d[64×64] += a[64×16] · b[64×16]ᵀ, both in shared memory. In lane 4g + t of warp w, d[4j …] are columns 8j + 2t and
// 8j + 2t + 1 of row 16w + g, then of row 16w + g + 8.
__device__ __forceinline__ void multiply_transposed(float* d, unsigned long long a, unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " ACCUMULATOR ", %32, %33, 1, 1, 1, 0, 0;\n"
                 : ALL(d)
                 : "l"(a), "l"(b)
                 : "memory");
}

// d[64×64] += a[64×16] · b[16×64], a in registers.
__device__ __forceinline__ void multiply(float* d, const unsigned (&a)[4], unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " ACCUMULATOR
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
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

__device__ __forceinline__ unsigned pack(float low, float high) {
    const half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}

template <int D>
__global__ void __launch_bounds__(THREADS, 1)
hopper_attention(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                 const __grid_constant__ TensorMap v_map, half* __restrict__ o, float* __restrict__ lse, int HKV, int SQ,
                 int SKV, float scale) {
    static_assert(D % 8 == 0 && 8 <= D && D <= 128, "D is a multiple of 8 up to 128");
    constexpr int PANELS = (D + PANEL - 1) / PANEL;
    constexpr int Q_PANEL = 64 * ROW_BYTES, KV_PANEL = BLOCK_N * ROW_BYTES, TILE = PANELS * KV_PANEL;  // bytes
    extern __shared__ __align__(1024) unsigned char dynamic_shared[];  // the swizzle repeats every 1024 bytes
    const unsigned sQ = shared_address(dynamic_shared);                // [CONSUMERS][PANELS][64][PANEL]
    const unsigned sK = sQ + CONSUMERS * PANELS * Q_PANEL;             // [STAGES][PANELS][BLOCK_N][PANEL]
    const unsigned sV = sK + STAGES * TILE;                            // the same
    __shared__ Barrier q_full, k_full[STAGES], v_full[STAGES], empty[STAGES];

    const int warpgroup = threadIdx.x / WARPGROUP, HQ = gridDim.y, h = blockIdx.y, b = blockIdx.z;
    const int kv_head = h / (HQ / HKV);  // HQ / HKV query heads share it
    const int first_query = blockIdx.x * BLOCK_M;
    // The last query of the CTA sees the most keys; tiles beyond are skipped.
    const int end = visible_keys(min(first_query + BLOCK_M, SQ) - 1, SQ, SKV);

    if (threadIdx.x == 0) {
        q_full.init(1);
        for (int stage = 0; stage < STAGES; ++stage) {
            k_full[stage].init(1);
            v_full[stage].init(1);
            empty[stage].init(4 * CONSUMERS);  // one thread of each consumer warp arrives
        }
        asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");  // TMA sees them initialised
    }
    __syncthreads();

    if (warpgroup == CONSUMERS) {  // the producer
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;\n");
        if (threadIdx.x % WARPGROUP != 0 || end == 0) return;
        q_full.arrive_expecting(CONSUMERS * PANELS * Q_PANEL);
        for (int box = 0; box < CONSUMERS * PANELS; ++box)
            load_box(sQ + box * Q_PANEL, q_map, box % PANELS * PANEL, first_query + box / PANELS * 64, h, b, q_full);
        for (int tile = 0; tile * BLOCK_N < end; ++tile) {
            const int stage = tile % STAGES, round = tile / STAGES;
            empty[stage].wait((round + 1) % 2);  // in round 0 there is nothing to wait for
            k_full[stage].arrive_expecting(TILE);
            for (int p = 0; p < PANELS; ++p)
                load_box(sK + stage * TILE + p * KV_PANEL, k_map, p * PANEL, tile * BLOCK_N, kv_head, b, k_full[stage]);
            v_full[stage].arrive_expecting(TILE);
            for (int p = 0; p < PANELS; ++p)
                load_box(sV + stage * TILE + p * KV_PANEL, v_map, p * PANEL, tile * BLOCK_N, kv_head, b, v_full[stage]);
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(BLOCK_M == 192 ? 160 : 240));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = lane / 4, member = lane % 4;  // an accumulator's rows group and group + 8, columns 2 · member + {0, 1}
    const int warp_query = first_query + warp * 16;
    const int warp_sees = visible_keys(warp_query, SQ, SKV);  // the fewest keys of the warp's queries
    const unsigned my_q = sQ + warpgroup * PANELS * Q_PANEL;

    float u[32 * PANELS] = {};
    float m[2] = {-CUDART_INF_F, -CUDART_INF_F};  // of rows group and group + 8, in units of log2
    float l[2] = {0.0f, 0.0f};                    // this lane's share of their sums
    const float scale_log2 = scale * LOG2_E;
    if (end > 0) q_full.wait(0);

    for (int tile = 0; tile * BLOCK_N < end; ++tile) {
        const int stage = tile % STAGES, round = tile / STAGES, first_key = tile * BLOCK_N;

        // S[m][n] = Σ_d Q[m][d] · K[n][d]
        float s[BLOCK_N / 2] = {};
        k_full[stage].wait(round % 2);
        begin_products(s);
#pragma unroll
        for (int d = 0; d < D; d += 16) {
            const unsigned column = d % PANEL * sizeof(half), panel = d / PANEL;
#pragma unroll
            for (int n = 0; n < BLOCK_N / 64; ++n)
                multiply_transposed(s + 32 * n, descriptor(my_q + panel * Q_PANEL + column),
                                    descriptor(sK + stage * TILE + panel * KV_PANEL + n * 64 * ROW_BYTES + column));
        }
        end_products(s);

        const bool partial = first_key + BLOCK_N > warp_sees;  // some query of the warp does not see the entire tile
#pragma unroll
        for (int i = 0; i < BLOCK_N / 2; ++i) {
            s[i] *= scale_log2;
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
                    s[e] = exp2_fast(s[e] - safe);
                    l[r] += s[e];
                }
            }
#pragma unroll
            for (int i = 2 * r; i < PANELS * 32; i += 4) {
                u[i] *= rescale;
                u[i + 1] *= rescale;
            }
        }

        // U[m][d] += Σ_n P[m][n] · V[n][d]: eight registers of S are the A operand of 16 keys.
        unsigned p[BLOCK_N / 16][4];
#pragma unroll
        for (int i = 0; i < BLOCK_N / 2; i += 2) p[i / 8][i / 2 % 4] = pack(s[i], s[i + 1]);
        v_full[stage].wait(round % 2);
        begin_products(u);
#pragma unroll
        for (int n = 0; n < BLOCK_N; n += 16)
#pragma unroll
            for (int panel = 0; panel < PANELS; ++panel)
                multiply(u + 32 * panel, p[n / 16], descriptor(sV + stage * TILE + panel * KV_PANEL + n * ROW_BYTES));
        end_products(u);
        if (lane == 0) empty[stage].arrive();
    }

    // O = U / l, LSE = m + log l. l = 0 means that no key is visible; a NaN is not 0, and remains a NaN in both.
    l[0] = quad_sum(l[0]);
    l[1] = quad_sum(l[1]);
    const size_t head = size_t(b) * HQ + h;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int query = warp_query + group + r * 8;
        if (query >= SQ) continue;
        const float inverse = l[r] == 0.0f ? 0.0f : 1.0f / l[r];
        half* const row = o + (head * SQ + query) * D;
#pragma unroll
        for (int d = 0; d < D; d += 8)
            *reinterpret_cast<unsigned*>(row + d + member * 2) =
                pack(u[d / 2 + 2 * r] * inverse, u[d / 2 + 2 * r + 1] * inverse);
        if (member == 0) lse[head * SQ + query] = l[r] == 0.0f ? -CUDART_INF_F : m[r] * LN_2 + logf(l[r]);
    }
}
