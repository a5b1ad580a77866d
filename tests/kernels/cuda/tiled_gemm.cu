// C = alpha · A · B + beta · C in fp32, row-major, any M, N, K. Block (32, 32), grid (ceil(N / 32), ceil(M / 32)).

constexpr int TILE = 32;

__global__ void __launch_bounds__(TILE * TILE)
tiled_gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int M, int N, int K,
           float alpha, float beta) {
    __shared__ float sA[TILE][TILE];
    __shared__ float sB[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int column = blockIdx.x * TILE + threadIdx.x;

    float sum = 0.0f;
    for (int first = 0; first < K; first += TILE) {
        const int a_column = first + threadIdx.x;
        const int b_row = first + threadIdx.y;
        sA[threadIdx.y][threadIdx.x] = row < M && a_column < K ? a[static_cast<size_t>(row) * K + a_column] : 0.0f;
        sB[threadIdx.y][threadIdx.x] = b_row < K && column < N ? b[static_cast<size_t>(b_row) * N + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i) sum += sA[threadIdx.y][i] * sB[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && column < N) {
        const size_t index = static_cast<size_t>(row) * N + column;
        // As in BLAS, beta = 0 does not read C: it may hold NaN.
        c[index] = beta == 0.0f ? alpha * sum : alpha * sum + beta * c[index];
    }
}
