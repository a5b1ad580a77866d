// A tile of 16 x 16 halves of which 9 rows exist. Rows of padding give rows of padding, which are never stored; the bad
// kernel leaves a column unwritten instead, and a column of A is part of every sum.
// weft: define  BUG = 1
// weft: in      x : f16[16, 16] = normal
// weft: out     o : f32[9, 16]
// weft: launch  product(x, o) grid(1) block(32)
#include <cuda_fp16.h>
#include <mma.h>
namespace wmma = nvcuda::wmma;

extern "C" __global__ void product(const half* x, float* o) {
    __shared__ __align__(128) half a_tile[16 * 16], b_tile[16 * 16];
    __shared__ __align__(128) float c_tile[16 * 16];
    for (int i = threadIdx.x; i < 256; i += 32) {
        const bool written = BUG ? i % 16 != 15 : i / 16 < 9;
        if (written) a_tile[i] = x[i];
        b_tile[i] = x[i];
    }
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    wmma::load_matrix_sync(a, a_tile, 16);  // finds I201 name=a_tile warp=0
    wmma::load_matrix_sync(b, b_tile, 16);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(c_tile, c, 16, wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < 9 * 16; i += 32) o[i] = c_tile[i];
}
