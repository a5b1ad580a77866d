// A ring of two stages in a cluster of two CTAs: each loads half of a stage for both, two warps of each add it up.
// weft: in      x : i32[1280] = arange
// weft: out     y : i32[128]
// weft: launch  multicast(x, y) grid(2) block(96) cluster(2)
#include "cluster.cuh"

__global__ void multicast(const int* x, int* y) {
    __shared__ alignas(128) int stage[2][256];
    __shared__ unsigned long long full[2], empty[2];
    const int t = threadIdx.x, half = 128 * rank();
    if (t == 0) {
        for (int s = 0; s < 2; s++) {
            init(&full[s], 1);
            init(&empty[s], 128);
        }
        fence_inits();
    }
    cluster_sync();  // first
    if (t == 64)
#pragma unroll 1
        for (int k = 0; k < 5; k++) {
            const int s = k % 2, round = k / 2;
            if (round > 0) wait_cluster(&empty[s], round - 1 & 1);
            expect(&full[s], 1024);
            load_for_both(stage[s] + half, x + 256 * k + half, 512, &full[s]);
        }
    if (t < 64) {
        int sum = 0;
#pragma unroll 1
        for (int k = 0; k < 5; k++) {
            const int s = k % 2, round = k / 2;
            wait(&full[s], round & 1);
            for (int i = 0; i < 4; i++) sum += stage[s][t + 64 * i];
            fence_async();
            arrive(&empty[s]);
            arrive_at(&empty[s], rank() ^ 1);
        }
        y[64 * rank() + t] = sum;
    }
    cluster_sync();  // last
}
