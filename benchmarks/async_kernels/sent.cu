// One CTA of a cluster sends numbers to the other one, whose mbarrier counts their bytes.
// weft: in      x : i32[192] = arange
// weft: out     y : i32[192]
// weft: launch  sent(x, y) grid(2) block(64) cluster(2)
#include "cluster.cuh"

__global__ void sent(const int* x, int* y) {
    __shared__ int box[64];
    __shared__ unsigned long long full, empty;
    const int t = threadIdx.x;
    if (t == 0) {
        init(&full, 1);
        init(&empty, 64);
    }
    cluster_sync();  // first
#pragma unroll 1
    for (int k = 0; k < 3; k++) {
        if (rank() == 0) {
            if (k > 0) wait_cluster(&empty, k - 1 & 1);
            send(&box[t ^ 32], 1, x[64 * k + t], &full);
        } else {
            if (t == 0) expect(&full, 256);
            wait_cluster(&full, k & 1);
            y[64 * k + t] = box[t];
            arrive_at(&empty, 0);
        }
    }
    cluster_sync();  // last
}
