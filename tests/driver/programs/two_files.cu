// Two files compiled with -rdc=true and linked: a device function and a variable of the other file.
#include "check.cuh"

extern __device__ int offset;
__device__ int scaled(int value);

__global__ void apply(int *x) { x[threadIdx.x] = scaled(x[threadIdx.x]) + offset; }

void set_offset(int value);

int main() {
    int host[32], *x;
    for (int i = 0; i < 32; i++) host[i] = i;
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    set_offset(7);
    apply<<<1, 32>>>(x);
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) REQUIRE(host[i] == 3 * i + 7);
    std::puts("ok");
}
