// C = scale · A · Bᵀ with E4M3 inputs on mma.m16n8k32: A (M, K) and B (N, K) both K-contiguous, C (M, N) fp32.
//
// K is a multiple of 16 (one 16-byte load), M and N are free. Grid (ceil(N / 64), ceil(M / 64)), block 128.
// The tensor cores keep few bits of an FP8 accumulator, so it starts from zero every BK = 64 elements and is added
// to an fp32 sum in ordinary arithmetic.
#include <cuda_fp8.h>

constexpr int BM = 64;
constexpr int BN = 64;
constexpr int BK = 64;
constexpr int ROW_BYTES = BK + 16;  // 80: eight rows of an ldmatrix phase fall into different banks
constexpr int THREADS = 128;
constexpr int WARP_M = 32;          // 2 x 2 warps of 32 x 32
constexpr int WARP_N = 32;

__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const unsigned char* row) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void mma_e4m3(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rows [first, first + 64) and bytes [k, k + BK) of a (rows, K) matrix; what lies outside becomes zero.
__device__ __forceinline__ void load_tile(unsigned char (*tile)[ROW_BYTES], const __nv_fp8_e4m3* __restrict__ matrix,
                                          int first, int rows, int k, int K) {
    for (int i = threadIdx.x; i < 64 * (BK / 16); i += THREADS) {
        const int row = i / (BK / 16);
        const int column = i % (BK / 16) * 16;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (first + row < rows && k + column < K) {
            value = *reinterpret_cast<const uint4*>(matrix + static_cast<size_t>(first + row) * K + k + column);
        }
        *reinterpret_cast<uint4*>(&tile[row][column]) = value;
    }
}

__global__ void __launch_bounds__(THREADS)
fp8_gemm(const __nv_fp8_e4m3* __restrict__ a, const __nv_fp8_e4m3* __restrict__ b, float* __restrict__ c, int M, int N,
         int K, float scale) {
    static_assert(BM == 64 && BN == 64, "load_tile copies 64 rows");
    __shared__ __align__(16) unsigned char sA[BM][ROW_BYTES];
    __shared__ __align__(16) unsigned char sB[BN][ROW_BYTES];
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int first_row = blockIdx.y * BM;
    const int first_column = blockIdx.x * BN;
    const int warp_row = warp / 2 * WARP_M;
    const int warp_column = warp % 2 * WARP_N;

    float sum[WARP_M / 16][WARP_N / 8][4] = {};
    for (int k = 0; k < K; k += BK) {
        load_tile(sA, a, first_row, M, k, K);
        load_tile(sB, b, first_column, N, k, K);
        __syncthreads();

        float partial[WARP_M / 16][WARP_N / 8][4] = {};
#pragma unroll
        for (int kk = 0; kk < BK; kk += 32) {
            // An 8x8 matrix of b16 is 8 rows of 16 bytes: rows {0, 8} x bytes {0, 16}.
            unsigned a_fragment[WARP_M / 16][4];
#pragma unroll
            for (int i = 0; i < WARP_M / 16; ++i) {
                load_matrices(a_fragment[i], &sA[warp_row + i * 16 + lane % 16][kk + lane / 16 * 16]);
            }
#pragma unroll
            for (int j = 0; j < WARP_N / 16; ++j) {
                unsigned b_fragment[4];
                load_matrices(b_fragment, &sB[warp_column + j * 16 + lane / 16 * 8 + lane % 8][kk + lane / 8 % 2 * 16]);
#pragma unroll
                for (int i = 0; i < WARP_M / 16; ++i) {
                    mma_e4m3(partial[i][2 * j], a_fragment[i], b_fragment[0], b_fragment[1]);
                    mma_e4m3(partial[i][2 * j + 1], a_fragment[i], b_fragment[2], b_fragment[3]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i) {
#pragma unroll
            for (int j = 0; j < WARP_N / 8; ++j) {
#pragma unroll
                for (int e = 0; e < 4; ++e) sum[i][j][e] += partial[i][j][e];
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) {
#pragma unroll
        for (int j = 0; j < WARP_N / 8; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int row = first_row + warp_row + i * 16 + lane / 4 + e / 2 * 8;
                const int column = first_column + warp_column + j * 8 + lane % 4 * 2 + e % 2;
                if (row < M && column < N) c[static_cast<size_t>(row) * N + column] = scale * sum[i][j][e];
            }
        }
    }
}

// Quantises fp32 to E4M3, saturating at ±448: four elements per thread, n a multiple of 4.
__global__ void quantise_e4m3(const float4* __restrict__ x, unsigned* __restrict__ codes, int n, float inverse_scale) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 4) return;
    const float4 value = x[i];
    const __nv_fp8x2_storage_t low = __nv_cvt_float2_to_fp8x2(
        make_float2(value.x * inverse_scale, value.y * inverse_scale), __NV_SATFINITE, __NV_E4M3);
    const __nv_fp8x2_storage_t high = __nv_cvt_float2_to_fp8x2(
        make_float2(value.z * inverse_scale, value.w * inverse_scale), __NV_SATFINITE, __NV_E4M3);
    codes[i] = static_cast<unsigned>(high) << 16 | low;
}
