// Streams, events, callbacks, memory pools.
#include "check.cuh"

__global__ void increment(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i]++;
}

static void CUDART_CB host_function(void *data) { *(int *)data += 1; }

static void CUDART_CB callback(cudaStream_t, cudaError_t status, void *data) {
    REQUIRE(status == cudaSuccess);
    *(int *)data += 10;
}

int main() {
    const int n = 1 << 10, parts = 4;
    int *x, called = 0;
    OK(cudaMalloc(&x, n * parts * sizeof(int)));
    OK(cudaMemset(x, 0, n * parts * sizeof(int)));
    int least, greatest;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    REQUIRE(least == 0 && greatest < 0);
    cudaStream_t streams[parts];
    cudaEvent_t start, stop, untimed;
    OK(cudaEventCreate(&start));
    OK(cudaEventCreate(&stop));
    OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    float ms;
    REQUIRE(cudaEventElapsedTime(&ms, start, stop) == cudaErrorInvalidResourceHandle);
    OK(cudaStreamCreateWithPriority(&streams[0], cudaStreamNonBlocking, greatest));
    for (int i = 1; i < parts; i++) OK(cudaStreamCreate(&streams[i]));
    unsigned flags;
    OK(cudaStreamGetFlags(streams[0], &flags));
    REQUIRE(flags == cudaStreamNonBlocking);
    OK(cudaEventRecord(start, streams[0]));
    for (int i = 0; i < parts; i++)
        for (int times = 0; times <= i; times++) increment<<<n / 128, 128, 0, streams[i]>>>(x + i * n, n);
    OK(cudaLaunchHostFunc(streams[1], host_function, &called));
    OK(cudaStreamAddCallback(streams[2], callback, &called, 0));
    OK(cudaEventRecord(untimed, streams[1]));
    OK(cudaStreamWaitEvent(streams[0], untimed, 0));
    OK(cudaEventRecord(stop, streams[0]));
    OK(cudaEventSynchronize(stop));
    OK(cudaEventQuery(stop));
    OK(cudaEventElapsedTime(&ms, start, stop));
    REQUIRE(ms > 0.0f && ms < 60000.0f);
    REQUIRE(cudaEventElapsedTime(&ms, start, untimed) == cudaErrorInvalidResourceHandle);
    for (int i = 0; i < parts; i++) OK(cudaStreamSynchronize(streams[i]));
    REQUIRE(called == 11);
    int *pooled, host[n];
    OK(cudaMallocAsync(&pooled, sizeof host, streams[3]));
    for (int i = 0; i < parts; i++) {
        OK(cudaMemcpyAsync(pooled, x + i * n, sizeof host, cudaMemcpyDeviceToDevice, streams[3]));
        OK(cudaMemcpyAsync(host, pooled, sizeof host, cudaMemcpyDeviceToHost, streams[3]));
        OK(cudaStreamSynchronize(streams[3]));
        for (int k = 0; k < n; k++) REQUIRE(host[k] == i + 1);
    }
    OK(cudaFreeAsync(pooled, streams[3]));
    for (int i = 0; i < parts; i++) OK(cudaStreamDestroy(streams[i]));
    REQUIRE(cudaStreamSynchronize(streams[1]) == cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(start));
    OK(cudaFree(x));
    std::puts("ok");
}
