// Half of the warp returns before the tensor-core product, which needs all lanes.
// weft: define  BUG = 1
// weft: in      x : f32[32] = normal
// weft: out     o : f32[32]
// weft: launch  kernel(x, o) grid(1) block(32)

#include <cuda_fp16.h>
#include <mma.h>

extern "C" __global__ void kernel(const float* x, float* o) {
    const int lane = threadIdx.x;
    o[lane] = x[lane];
    if (BUG && lane >= 16) return;
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major> a;
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::row_major> b;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c;
    nvcuda::wmma::fill_fragment(a, __half(1.0f));
    nvcuda::wmma::fill_fragment(b, __half(1.0f));
    nvcuda::wmma::fill_fragment(c, 0.0f);
    nvcuda::wmma::mma_sync(c, a, b, c);  // finds S307 warp=0 lanes=0xffff0000
    o[lane] += c.x[0];
}
