// Copies in, a launch, copies out; errors of launches; a reset after which everything works again.
#include <vector>

#include "check.cuh"

__global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

static void run(int n) {
    std::vector<float> a(n), b(n), c(n, -1.0f);
    for (int i = 0; i < n; i++) a[i] = i, b[i] = 2 * i;
    float *da, *db, *dc;
    OK(cudaMalloc(&da, n * sizeof(float)));
    OK(cudaMalloc(&db, n * sizeof(float)));
    OK(cudaMalloc(&dc, n * sizeof(float)));
    OK(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    OK(cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyDefault));
    add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
    OK(cudaGetLastError());
    OK(cudaMemcpy(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) REQUIRE(c[i] == 3.0f * i);
    OK(cudaFree(da));
    OK(cudaFree(db));
    OK(cudaFree(dc));
}

static void errors() {
    add<<<1, 2048>>>(nullptr, nullptr, nullptr, 0);
    REQUIRE(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
    REQUIRE(cudaGetLastError() == cudaErrorInvalidConfiguration);
    REQUIRE(cudaGetLastError() == cudaSuccess);
    add<<<0, 32>>>(nullptr, nullptr, nullptr, 0);
    REQUIRE(cudaGetLastError() == cudaErrorInvalidConfiguration);
    add<<<1, 32, 1 << 20>>>(nullptr, nullptr, nullptr, 0);
    REQUIRE(cudaGetLastError() == cudaErrorInvalidValue);
    REQUIRE(cudaSetDevice(7) == cudaErrorInvalidDevice);
    REQUIRE(cudaFree((void *)0x1234) == cudaErrorInvalidValue);
    int host = 0;
    REQUIRE(cudaMemcpy(&host, &host, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    REQUIRE(cudaMemcpy(&host, &host, 4, (cudaMemcpyKind)9) == cudaErrorInvalidMemcpyDirection);
    REQUIRE(cudaLaunchKernel((const void *)&host, 1, 1, nullptr, 0, nullptr) == cudaErrorInvalidDeviceFunction);
    REQUIRE(cudaGetLastError() == cudaErrorInvalidDeviceFunction);
    REQUIRE(cudaGetErrorString(cudaErrorInvalidValue)[0] != 0);
}

int main() {
    run(1000);
    errors();
    OK(cudaDeviceReset());
    run(333);
    std::puts("ok");
}
