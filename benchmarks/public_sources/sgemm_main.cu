// Runs the kernels of SGEMM_CUDA (siboehm) and compares each with a product on the host. The repository's own main program
// compares with cuBLAS. Compiled with -I of the checkout's folder src.
#include <cmath>
#include <cstdio>
#include <vector>

#include "runner.cu"

static std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b, int n) {
    std::vector<float> c(n * n, 0.0f);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    return c;
}

int main() {
    const int n = 256;  // the least multiple of every tile
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int i = 0; i < n * n; i++) a[i] = (i * 7 % 13 - 6) / 4.0f, b[i] = (i * 5 % 11 - 5) / 4.0f;
    std::vector<float> right = product(a, b, n);
    float *A, *B, *C;
    cudaMalloc(&A, n * n * 4), cudaMalloc(&B, n * n * 4), cudaMalloc(&C, n * n * 4);
    cudaMemcpy(A, a.data(), n * n * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(B, b.data(), n * n * 4, cudaMemcpyHostToDevice);
    int wrong = 0;
    for (int kernel = 1; kernel <= 12; kernel++) {
        cudaMemset(C, 0, n * n * 4);
        run_kernel(kernel, n, n, n, 1.0f, A, B, 0.0f, C, nullptr);
        cudaMemcpy(c.data(), C, n * n * 4, cudaMemcpyDeviceToHost);
        int differ = cudaGetLastError() != cudaSuccess;
        for (int i = 0; i < n * n; i++) differ |= !(fabsf(c[i] - right[i]) <= 1e-3f);
        printf("kernel %d: %s\n", kernel, differ ? "FAIL" : "PASS");
        wrong += differ;
    }
    return wrong != 0;
}
