// printf in a kernel comes out in the order of the calls.
#include "check.cuh"

__global__ void hello(const char *word, double value) {
    if (threadIdx.x < 2) printf("%s %d %.2f\n", word, threadIdx.x, value);
}

int main() {
    char *word;
    OK(cudaMallocManaged(&word, 6));
    std::snprintf(word, 6, "weft!");
    std::puts("before");
    hello<<<1, 32>>>(word, 2.5);
    OK(cudaDeviceSynchronize());
    std::puts("after");
}
