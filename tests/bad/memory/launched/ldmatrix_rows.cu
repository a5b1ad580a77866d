// ldmatrix of 16 rows from a tile of 12: lanes 12 to 15 give addresses of rows after it, and so do lanes 28 to 31.
// weft: define  BUG = 1
// weft: in      x : f16[16, 16] = normal
// weft: out     o : u32[32]
// weft: launch  load(x, o) grid(1) block(32)
#include <cuda_fp16.h>

extern "C" __global__ void load(const half* x, unsigned* o) {
    constexpr int ROWS = BUG ? 12 : 16;
    __shared__ __align__(128) half tile[ROWS][16];
    const int lane = threadIdx.x;
    for (int i = lane; i < ROWS * 16; i += 32) tile[i / 16][i % 16] = x[i];
    __syncthreads();
    unsigned a, b, c, d;
    const unsigned row = static_cast<unsigned>(__cvta_generic_to_shared(&tile[0][0])) + lane % 16 * 32 + lane / 16 * 16;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"  // finds M101 name=tile cta=0,0,0 warp=0 lanes=0xf000f000
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(row));
    o[lane] = a ^ b ^ c ^ d;
}
