// Z03: the leading dimension of the padded tile is the tile's width, or here, once wrong, twice the padded one.
// weft: define  BUG = 1
// weft: in      x : f16[16, 16] = normal
// weft: out     o : f32[16, 16]
// weft: launch  product(x, o) grid(1) block(32)
#include <cuda_fp16.h>
#include <mma.h>
namespace wmma = nvcuda::wmma;
constexpr int STRIDE = 24;

extern "C" __global__ void product(const half* x, float* o) {
    __shared__ __align__(128) half tile[16 * STRIDE];
    for (int i = threadIdx.x; i < 16 * STRIDE; i += 32) tile[i] = i % STRIDE < 16 ? x[i / STRIDE * 16 + i % STRIDE] : half(0.0f);
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    wmma::load_matrix_sync(a, tile, STRIDE);
    wmma::load_matrix_sync(b, tile, BUG ? 2 * STRIDE : STRIDE);  // finds M101 name=tile cta=0,0,0 warp=0 lanes=0xffffffff
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(o, c, 16, wmma::mem_row_major);
}
