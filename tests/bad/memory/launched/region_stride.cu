// wmma over a score tile of stride 20 in the dynamic block, loaded with stride 32: it reads past the tile into U.
// weft: define  BUG = 1
// weft: out     o : f32[16, 16]
// weft: launch  reload(o) grid(1) block(32) shared(4096)
#include <mma.h>
#include <weft.h>
namespace wmma = nvcuda::wmma;

extern "C" __global__ void reload(float* o) {
    extern __shared__ __align__(128) float block[];
    float* scores = WEFT_REGION(block, 16 * 20 * 4, "scores");
    float* u = WEFT_REGION(block + 16 * 20, 16 * 32 * 4, "u");
    for (int i = threadIdx.x; i < 16 * 20; i += 32) scores[i] = i;
    for (int i = threadIdx.x; i < 16 * 32; i += 32) u[i] = 0.0f;
    __syncthreads();
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::load_matrix_sync(c, scores, BUG ? 32 : 20, wmma::mem_row_major);  // finds M105 cta=0,0,0 warp=0 lanes=0xffffffff name=scores
    wmma::store_matrix_sync(o, c, 16, wmma::mem_row_major);
    __syncwarp();
    if (threadIdx.x == 31) o[0] = u[threadIdx.x];
}
