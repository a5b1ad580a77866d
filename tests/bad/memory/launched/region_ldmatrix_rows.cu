// Q has 8 rows in the dynamic block and ldmatrix needs 16: lanes 8 to 15 give addresses of rows of K.
// weft: define  BUG = 1
// weft: out     o : u32[32]
// weft: launch  load(o) grid(1) block(32) shared(1024)
#include <cuda_fp16.h>
#include <weft.h>

extern "C" __global__ void load(unsigned* o) {
    constexpr int ROWS = BUG ? 8 : 16;
    extern __shared__ __align__(128) half block[];
    half* q = WEFT_REGION(block, ROWS * 16, "q");
    half* k = WEFT_REGION(block + ROWS * 8, 512, "k");
    const int lane = threadIdx.x;
    for (int i = lane; i < ROWS * 8; i += 32) q[i] = __int2half_rn(i);
    for (int i = lane; i < 256; i += 32) k[i] = __int2half_rn(i);
    __syncthreads();
    unsigned a, b;
    const unsigned row = static_cast<unsigned>(__cvta_generic_to_shared(q + 8 * (lane % 16)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"  // finds M105 cta=0,0,0 warp=0 lanes=0xff00
                 : "=r"(a), "=r"(b) : "r"(row));
    o[lane] = a ^ b ^ __half_as_ushort(k[lane]);
}
