// malloc, free, new and delete inside kernels: the heap's size, blocks that outlive a launch, and a full heap.
#include "check.cuh"

struct alignas(64) Wide {
    double value[8];
};

__global__ void build(int **lists, int length) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    lists[i] = static_cast<int *>(malloc(length * sizeof(int)));
    for (int j = 0; lists[i] && j < length; j++) lists[i][j] = i * j;
}

__global__ void add_up(int **lists, int length, long long *sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    sums[i] = 0;
    for (int j = 0; j < length; j++) sums[i] += lists[i][j];
    free(lists[i]);
}

__global__ void objects(int *wrong) {
    Wide *wide = new Wide;
    int *many = new int[threadIdx.x + 1];
    for (double &value : wide->value) value = threadIdx.x;
    for (int i = 0; i <= threadIdx.x; i++) many[i] = i;
    if (reinterpret_cast<size_t>(wide) % 64 || reinterpret_cast<size_t>(many) % 16) atomicAdd(wrong, 1);
    if (wide->value[7] != threadIdx.x || many[threadIdx.x] != threadIdx.x) atomicAdd(wrong, 1);
    delete wide;
    delete[] many;
    free(nullptr);
}

__global__ void fill(int *taken, void **last) {
    while (void *block = malloc(1 << 20)) {
        *static_cast<void **>(block) = *last;
        *last = block;
        ++*taken;
    }
}

__global__ void empty(void **last) {
    while (void *block = *last) {
        *last = *static_cast<void **>(block);
        free(block);
    }
}

int main() {
    constexpr int threads = 96, length = 50;
    size_t limit = 0;
    OK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    REQUIRE(limit == 8 << 20);
    OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    int **lists, *wrong, *taken;
    long long *sums;
    void **last;
    OK(cudaMalloc(&lists, threads * sizeof *lists));
    OK(cudaMallocManaged(&sums, threads * sizeof *sums));
    OK(cudaMallocManaged(&wrong, sizeof *wrong));
    OK(cudaMallocManaged(&taken, sizeof *taken));
    OK(cudaMallocManaged(&last, sizeof *last));
    *wrong = 0;
    build<<<3, threads / 3>>>(lists, length);
    add_up<<<3, threads / 3>>>(lists, length, sums);
    objects<<<2, 40>>>(wrong);
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < threads; i++) REQUIRE(sums[i] == i * length * (length - 1LL) / 2);
    REQUIRE(*wrong == 0);
    for (int round = 0; round < 2; round++) {
        *taken = 0;
        *last = nullptr;
        fill<<<1, 1>>>(taken, last);
        OK(cudaDeviceSynchronize());
        REQUIRE(*taken > 8 && *taken <= 16);
        int *block = static_cast<int *>(*last), host;
        REQUIRE(cudaMemcpy(&host, block, sizeof host, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
        REQUIRE(cudaFree(block) == cudaErrorInvalidValue);
        cudaGetLastError();
        empty<<<1, 1>>>(last);
        OK(cudaDeviceSynchronize());
    }
    REQUIRE(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20) == cudaErrorInvalidValue);
    OK(cudaDeviceReset());
    OK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    REQUIRE(limit == 8 << 20);
    OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
    std::puts("ok");
}
