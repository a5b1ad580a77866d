// A fragment of 16 x 16 halves from a tile of which the bad kernel fills 15 rows.
#include <cuda_fp16.h>
#include <mma.h>

namespace wmma = nvcuda::wmma;

template <int ROWS>
__device__ void run(float* out) {
    __shared__ __align__(128) half tile[16][24];
    __shared__ __align__(128) float sums[16][16];
    for (int i = threadIdx.x; i < ROWS * 16; i += 64) tile[i / 16][i % 16] = __float2half(1.0f);
    __syncthreads();
    if (threadIdx.x < 32) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
        wmma::fill_fragment(b, __float2half(1.0f));
        wmma::fill_fragment(c, 0.0f);
        wmma::load_matrix_sync(a, &tile[0][0], 24);  // finds I201
        wmma::mma_sync(c, a, b, c);
        wmma::store_matrix_sync(&sums[0][0], c, 16, wmma::mem_row_major);
    }
    __syncthreads();
    out[threadIdx.x] = sums[threadIdx.x % 16][threadIdx.x / 16];
}

extern "C" __global__ void bad(float* out) { run<15>(out); }
extern "C" __global__ void twin(float* out) { run<16>(out); }
