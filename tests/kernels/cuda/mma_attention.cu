// Flash attention on mma.sync.m16n8k16 with ldmatrix and a cp.async double buffer.
//
// O = softmax(Q · Kᵀ · scale) · V and LSE = log Σ exp; Q, K, V, O are (B, H, S, 64), LSE (B, H, S) fp32.
// Grid (ceil(S / (16 * WARPS)), H, B); block 32 * WARPS; dynamic shared memory (16 * WARPS + 4 * 64) * 128 bytes.
// Every warp owns 16 queries; scores, P and the output stay in registers: the accumulator layout of Q · Kᵀ
// is the A-operand layout of P · V. Masking is top-left causal.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr int D = 64;
constexpr int BN = 64;
constexpr int CHUNK = 8;                     // 16-bit elements per 16-byte chunk
constexpr int CHUNKS_PER_ROW = D / CHUNK;
constexpr float LOG2_E = 1.4426950408889634f;

// Offset of element (row, column) in a tile of 128-byte rows. The chunk index is XORed with the row, so the
// eight rows that one ldmatrix phase reads lie in eight different groups of four banks.
__device__ __forceinline__ int swizzled(int row, int column) {
    return row * D + (((column / CHUNK) ^ (row % CHUNKS_PER_ROW)) * CHUNK) + column % CHUNK;
}

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes, or writes 16 zero bytes when `inside` is false.
__device__ __forceinline__ void copy_async(unsigned destination, const void* source, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(destination), "l"(source),
                 "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

template <typename T>
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

// Starts the copy of rows [first, first + ROWS) of one head; rows from S on become zero.
template <int ROWS, int THREADS, typename T>
__device__ __forceinline__ void copy_tile(T* tile, const T* __restrict__ head, int first, int S) {
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * CHUNKS_PER_ROW; i += THREADS) {
        const int row = i / CHUNKS_PER_ROW;
        const int column = i % CHUNKS_PER_ROW * CHUNK;
        const bool inside = first + row < S;
        const int source_row = inside ? first + row : 0;
        copy_async(shared_address(tile + swizzled(row, column)), head + static_cast<size_t>(source_row) * D + column,
                   inside);
    }
}

// A row of scores lives in the four lanes of a quad.
__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

template <typename T, int WARPS, bool CAUSAL>
__global__ void __launch_bounds__(32 * WARPS)
mma_attention(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ o,
              float* __restrict__ lse, int S, float scale) {
    constexpr int BM = 16 * WARPS;
    constexpr int THREADS = 32 * WARPS;
    constexpr int TILE = BN * D;

    extern __shared__ __align__(128) unsigned char dynamic_shared[];
    T* const sQ = reinterpret_cast<T*>(dynamic_shared);  // [BM][D]
    T* const sK = sQ + BM * D;                           // [2][BN][D]
    T* const sV = sK + 2 * TILE;                         // [2][BN][D]

    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int group = lane / 4;   // row of an accumulator within its 8 rows
    const int member = lane % 4;  // pair of columns within its 8 columns
    const int first_query = blockIdx.x * BM;
    const int warp_query = first_query + warp * 16;
    const size_t head_index = static_cast<size_t>(blockIdx.z) * gridDim.y + blockIdx.y;
    const size_t head = head_index * S * D;

    const int last_key = CAUSAL ? min(S, first_query + BM) : S;
    const int tiles = (last_key + BN - 1) / BN;

    copy_tile<BM, THREADS>(sQ, q + head, first_query, S);
    commit_copies();
    copy_tile<BN, THREADS>(sK, k + head, 0, S);
    copy_tile<BN, THREADS>(sV, v + head, 0, S);
    commit_copies();

    wait_copies<1>();  // Q has landed; the first K and V may still be in flight
    __syncthreads();
    unsigned q_fragment[D / 16][4];
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
        load_matrices(q_fragment[d], sQ + swizzled(warp * 16 + lane % 16, d * 16 + lane / 16 * 8));
    }

    float out[D / 8][4] = {};
    float m[2] = {-CUDART_INF_F, -CUDART_INF_F};  // rows group and group + 8, in units of raw scores
    float l[2] = {0.0f, 0.0f};                    // this lane's share of the row sum
    const float scale_log2 = scale * LOG2_E;

    for (int tile = 0; tile < tiles; ++tile) {
        const int first_key = tile * BN;
        const int stage = tile % 2;
        if (tile + 1 < tiles) {
            copy_tile<BN, THREADS>(sK + (stage ^ 1) * TILE, k + head, first_key + BN, S);
            copy_tile<BN, THREADS>(sV + (stage ^ 1) * TILE, v + head, first_key + BN, S);
            commit_copies();
            wait_copies<1>();
        } else {
            wait_copies<0>();
        }
        __syncthreads();

        // With a causal mask the last tiles may be entirely above a warp's diagonal.
        if (!CAUSAL || first_key <= warp_query + 15) {
            const T* const k_tile = sK + stage * TILE;
            const T* const v_tile = sV + stage * TILE;

            float score[BN / 8][4] = {};
#pragma unroll
            for (int d = 0; d < D / 16; ++d) {
#pragma unroll
                for (int n = 0; n < BN / 16; ++n) {
                    // Four 8x8 matrices: keys n*16 + {0, 8} x dims d*16 + {0, 8}, dims fastest.
                    unsigned b[4];
                    load_matrices(b, k_tile + swizzled(n * 16 + lane / 16 * 8 + lane % 8, d * 16 + lane / 8 % 2 * 8));
                    Element<T>::mma(score[2 * n], q_fragment[d], b[0], b[1]);
                    Element<T>::mma(score[2 * n + 1], q_fragment[d], b[2], b[3]);
                }
            }

            if (first_key + BN > S || (CAUSAL && first_key + BN - 1 > warp_query)) {
#pragma unroll
                for (int n = 0; n < BN / 8; ++n) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int key = first_key + n * 8 + member * 2 + e % 2;
                        const int query = warp_query + group + e / 2 * 8;
                        if (key >= S || (CAUSAL && key > query)) score[n][e] = -CUDART_INF_F;
                    }
                }
            }

            // Key 0 is visible to every query, so m is finite from the first tile on.
#pragma unroll
            for (int half_tile = 0; half_tile < 2; ++half_tile) {
                float row_max = m[half_tile];
#pragma unroll
                for (int n = 0; n < BN / 8; ++n) {
                    row_max = fmaxf(row_max, fmaxf(score[n][2 * half_tile], score[n][2 * half_tile + 1]));
                }
                row_max = quad_max(row_max);
                const float rescale = exp2f((m[half_tile] - row_max) * scale_log2);
                m[half_tile] = row_max;
                l[half_tile] *= rescale;
#pragma unroll
                for (int n = 0; n < BN / 8; ++n) {
#pragma unroll
                    for (int e = 2 * half_tile; e < 2 * half_tile + 2; ++e) {
                        score[n][e] = exp2f((score[n][e] - row_max) * scale_log2);
                        l[half_tile] += score[n][e];
                    }
                }
#pragma unroll
                for (int n = 0; n < D / 8; ++n) {
                    out[n][2 * half_tile] *= rescale;
                    out[n][2 * half_tile + 1] *= rescale;
                }
            }

#pragma unroll
            for (int n = 0; n < BN / 16; ++n) {
                const unsigned p[4] = {Element<T>::pack(score[2 * n][0], score[2 * n][1]),
                                       Element<T>::pack(score[2 * n][2], score[2 * n][3]),
                                       Element<T>::pack(score[2 * n + 1][0], score[2 * n + 1][1]),
                                       Element<T>::pack(score[2 * n + 1][2], score[2 * n + 1][3])};
#pragma unroll
                for (int d = 0; d < D / 16; ++d) {
                    // Four 8x8 matrices: dims d*16 + {0, 8} x keys n*16 + {0, 8}, keys fastest, each transposed.
                    unsigned b[4];
                    load_matrices_transposed(b, v_tile + swizzled(n * 16 + lane % 16, d * 16 + lane / 16 * 8));
                    Element<T>::mma(out[2 * d], p, b[0], b[1]);
                    Element<T>::mma(out[2 * d + 1], p, b[2], b[3]);
                }
            }
        }
        __syncthreads();  // the next iteration copies into the buffer just read
    }

#pragma unroll
    for (int half_tile = 0; half_tile < 2; ++half_tile) {
        const float row_sum = quad_sum(l[half_tile]);
        const int query = warp_query + group + half_tile * 8;
        if (query < S) {
            const float inverse = 1.0f / row_sum;
            T* const row = o + head + static_cast<size_t>(query) * D;
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                *reinterpret_cast<unsigned*>(row + n * 8 + member * 2) =
                    Element<T>::pack(out[n][2 * half_tile] * inverse, out[n][2 * half_tile + 1] * inverse);
            }
            if (member == 0) lse[head_index * S + query] = m[half_tile] * scale + logf(row_sum);
        }
    }
}
