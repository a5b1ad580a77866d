// __constant__ and __device__ variables: addresses, sizes, copies, initial values; kept apart from the host's shadows.
#include "check.cuh"

__constant__ float weights[4] = {1.0f, 2.0f, 3.0f, 4.0f};
__device__ int counters[8];
__device__ const char *names[2] = {"first", "second"};
static __device__ double hidden = 0.5;

__global__ void use(float *sum) {
    *sum = 0.0f;
    for (float weight : weights) *sum += weight;
    for (int i = 0; i < 8; i++) counters[i] += i;
    hidden += names[1][0] == 's';
}

int main() {
    float *sum, host;
    OK(cudaMalloc(&sum, sizeof host));
    use<<<1, 1>>>(sum);
    OK(cudaMemcpy(&host, sum, sizeof host, cudaMemcpyDeviceToHost));
    REQUIRE(host == 10.0f);
    float changed[2] = {20.0f, 30.0f};
    OK(cudaMemcpyToSymbol(weights, changed, sizeof changed, sizeof(float)));
    int zero[8] = {100};
    OK(cudaMemcpyToSymbol(counters, zero, sizeof zero));
    use<<<1, 1>>>(sum);
    OK(cudaMemcpy(&host, sum, sizeof host, cudaMemcpyDeviceToHost));
    REQUIRE(host == 55.0f);
    int seen[8];
    OK(cudaMemcpyFromSymbol(seen, counters, sizeof seen));
    for (int i = 0; i < 8; i++) REQUIRE(seen[i] == (i ? i : 100));
    double value;
    OK(cudaMemcpyFromSymbol(&value, hidden, sizeof value));
    REQUIRE(value == 2.5);
    size_t bytes;
    void *address;
    OK(cudaGetSymbolSize(&bytes, weights));
    REQUIRE(bytes == sizeof weights);
    OK(cudaGetSymbolAddress(&address, counters));
    OK(cudaMemcpy(seen, (int *)address + 3, sizeof(int), cudaMemcpyDeviceToHost));
    REQUIRE(seen[0] == 3);
    REQUIRE(cudaMemcpyToSymbol(weights, changed, sizeof changed, 3 * sizeof(float)) == cudaErrorInvalidValue);
    int local;
    REQUIRE(cudaGetSymbolAddress(&address, local) == cudaErrorInvalidSymbol);
    std::puts("ok");
}
