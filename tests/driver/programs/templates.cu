// Kernels that are templates, in a namespace, with a struct or many parameters, called through a function pointer.
#include <cstdint>

#include "check.cuh"

namespace sums {
struct Affine {
    double scale;
    float shift;
    char sign;
};

template <typename T, int UNROLL>
__global__ void apply(T *x, Affine f, int n) {
    int start = (blockIdx.x * blockDim.x + threadIdx.x) * UNROLL;
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
        if (start + i < n) x[start + i] = static_cast<T>((f.scale * x[start + i] + f.shift) * f.sign);
}

template <typename... Ts>
__global__ void total(double *sum, Ts... values) {
    *sum = (0.0 + ... + static_cast<double>(values));
}
}  // namespace sums

template <typename T>
static void check() {
    T *x;
    const int n = 100;
    T host[n];
    for (int i = 0; i < n; i++) host[i] = static_cast<T>(i);
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    void (*kernel)(T *, sums::Affine, int) = sums::apply<T, 4>;
    kernel<<<1, 32>>>(x, sums::Affine{3.0, 1.0f, 1}, n);
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) REQUIRE(host[i] == static_cast<T>(3 * i + 1));
    OK(cudaFree(x));
}

int main() {
    check<float>();
    check<int64_t>();
    check<short>();
    double *sum, host;
    OK(cudaMalloc(&sum, sizeof host));
    sums::total<<<1, 1>>>(sum, 1, 2.5f, (char)3, 4LL, 0.25);
    OK(cudaMemcpy(&host, sum, sizeof host, cudaMemcpyDeviceToHost));
    REQUIRE(host == 10.75);
    std::puts("ok");
}
