// A planted bug: the last block writes past the end.
#include "check.cuh"

__global__ void fill(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) x[i] = i;  // the bug
}

int main() {
    float *x;
    OK(cudaMalloc(&x, 1000 * sizeof(float)));
    fill<<<8, 128>>>(x, 1000);
    std::printf("launch %d\n", cudaGetLastError());
    std::printf("wait %d\n", cudaDeviceSynchronize());
    std::printf("again %d %d\n", cudaGetLastError(), cudaGetLastError());
    std::printf("allocate %d\n", cudaMalloc(&x, 4));
    cudaError_t reset = cudaDeviceReset();
    std::printf("reset %d %d\n", reset, cudaMalloc(&x, 4));
}
