// ldmatrix and mma over 16 rows of which 12 are written. The rest of the result is padding; the bad kernel stores it.
// weft: define  BUG = 1
// weft: in      x : f16[16, 16] = normal
// weft: out     o : f32[16, 8]
// weft: launch  product(x, o) grid(1) block(32)
#include <cuda_fp16.h>

extern "C" __global__ void product(const half* x, float* o) {
    __shared__ __align__(128) half tile[16][16];
    const int lane = threadIdx.x;
    for (int i = lane; i < 12 * 16; i += 32) tile[i / 16][i % 16] = x[i];
    __syncthreads();
    unsigned a[4], b[2] = {0x3c003c00u, 0x3c003c00u};
    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const unsigned row = static_cast<unsigned>(__cvta_generic_to_shared(&tile[lane % 16][lane / 16 * 8]));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"  // finds I201 name=tile warp=0 lanes=0xf000f000
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(row));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    const int r = lane / 4, column = lane % 4 * 2;
    o[r * 8 + column] = c[0];
    o[r * 8 + column + 1] = c[1];
    if (BUG || r + 8 < 12) {
        o[(r + 8) * 8 + column] = c[2];
        o[(r + 8) * 8 + column + 1] = c[3];
    }
}
