// C = alpha · A · B + beta · C, column-major: one element per thread, no shared memory.
extern "C" __global__ void plain_gemm(const float* A, const float* B, float* C, int n, float alpha, float beta) {
    const int row = blockIdx.x * 32 + threadIdx.x, column = blockIdx.y * 32 + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += A[row + k * n] * B[k + column * n];
    C[row + column * n] = alpha * sum + beta * C[row + column * n];
}
