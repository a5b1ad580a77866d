// A planted bug: no barrier between writing the tile and reading what another warp wrote.
#include "check.cuh"

__global__ void shift(int *x) {
    __shared__ int tile[128];
    tile[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = tile[(threadIdx.x + 32) % 128];  // the bug: __syncthreads() is missing
}

int main() {
    int *x;
    OK(cudaMalloc(&x, 128 * sizeof(int)));
    OK(cudaMemset(x, 0, 128 * sizeof(int)));
    shift<<<1, 128>>>(x);
    OK(cudaDeviceSynchronize());
}
