// Each CTA of a cluster of four writes numbers into the shared memory of the next one, three times.
// weft: in      x : i32[256] = arange
// weft: out     y : i32[256]
// weft: launch  passed(x, y) grid(4) block(64) cluster(4)
#include "cluster.cuh"

__global__ void passed(const int* x, int* y) {
    __shared__ int mine[64];
    const int t = threadIdx.x;
    int v = x[64 * rank() + t];
    cluster_sync();  // first
#pragma unroll 1
    for (int k = 0; k < 3; k++) {
        put(&mine[t ^ 32], rank() + 1 & 3, v);
        cluster_sync();  // before the read
        v = mine[t] + 1;
        cluster_sync();  // after the read
    }
    y[64 * rank() + t] = v;
}
