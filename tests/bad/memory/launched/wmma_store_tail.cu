// A whole tile of 16 rows is stored into an output of 24: the second tile has 8 rows too many.
// weft: define  BUG = 1
// weft: out     o : f32[24, 16]
// weft: launch  fill(o) grid(2) block(32)
#include <mma.h>
namespace wmma = nvcuda::wmma;

extern "C" __global__ void fill(float* o) {
    __shared__ __align__(128) float tile[16 * 16];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 1.0f);
    const int first = blockIdx.x * 16;
    if (BUG || first + 16 <= 24) {
        wmma::store_matrix_sync(o + first * 16, c, 16, wmma::mem_row_major);  // finds M101 name=o cta=1,0,0 warp=0 lanes=0xffffffff
        return;
    }
    wmma::store_matrix_sync(tile, c, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < (24 - first) * 16; i += 32) o[first * 16 + i] = tile[i];
}
