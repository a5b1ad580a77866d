// C = alpha · A · B + beta · C, row-major, n a multiple of 32: one element per thread, tiles of 32 x 32 in shared memory.
extern "C" __global__ void tiled_gemm(const float* A, const float* B, float* C, int n, float alpha, float beta) {
    __shared__ float As[32][32];
    __shared__ float Bs[32][32];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * 32 + ty, column = blockIdx.x * 32 + tx;
    float sum = 0.0f;
    for (int tile = 0; tile < n / 32; ++tile) {
        As[ty][tx] = A[row * n + tile * 32 + tx];
        Bs[ty][tx] = B[(tile * 32 + ty) * n + column];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    C[row * n + column] = alpha * sum + beta * C[row * n + column];
}
