// A planted bug: the sum starts from what the allocation happens to contain.
#include "check.cuh"

__global__ void accumulate(float *sum, const float *x) {
    atomicAdd(&sum[0], x[threadIdx.x]);
    sum[1] = sum[2];  // the bug: sum[2] was never written
}

int main() {
    float *sum, *x;
    OK(cudaMalloc(&sum, 3 * sizeof(float)));
    OK(cudaMemset(sum, 0, 2 * sizeof(float)));
    OK(cudaMalloc(&x, 32 * sizeof(float)));
    OK(cudaMemset(x, 0, 32 * sizeof(float)));
    accumulate<<<1, 32>>>(sum, x);
    OK(cudaDeviceSynchronize());
}
