// A warp reads the scores it has just stored with wmma, by other lanes than those that hold them.
// weft: define  BUG = 1
// weft: in      x : f32[32] = normal
// weft: out     o : f32[32]
// weft: launch  kernel(x, o) grid(1) block(32)

#include <mma.h>

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ __align__(32) float scores[16][16];
    const int lane = threadIdx.x;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c;
    nvcuda::wmma::fill_fragment(c, x[0]);
    nvcuda::wmma::store_matrix_sync(&scores[0][0], c, 16, nvcuda::wmma::mem_row_major);
    if (!BUG) __syncwarp();
    float sum = 0.0f;
    for (int i = 0; i < 16; ++i) sum += scores[i][lane % 16];  // finds R102 warp=0
    o[lane] = sum;
}
