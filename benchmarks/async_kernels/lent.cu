// One CTA of a cluster fills two stages in turn; the other one reads them there, and releases them by an mbarrier.
// weft: in      x : i32[320] = arange
// weft: out     y : i32[64]
// weft: launch  lent(x, y) grid(2) block(64) cluster(2)
#include "cluster.cuh"

__global__ void lent(const int* x, int* y) {
    __shared__ int stage[2][64];
    __shared__ unsigned long long full[2], empty[2];
    const int t = threadIdx.x;
    if (t == 0)
        for (int s = 0; s < 2; s++) {
            init(&full[s], 64);
            init(&empty[s], 64);
        }
    cluster_sync();  // first
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < 5; k++) {
        const int s = k % 2, round = k / 2;
        if (rank() == 0) {
            if (round > 0) wait_cluster(&empty[s], round - 1 & 1);
            stage[s][t] = x[64 * k + t];
            arrive_at(&full[s], 1);
        } else {
            wait_cluster(&full[s], round & 1);
            sum += get(&stage[s][t ^ 32], 0);
            arrive_at(&empty[s], 0);
        }
    }
    if (rank() == 1) y[t] = sum;
    cluster_sync();  // last
}
