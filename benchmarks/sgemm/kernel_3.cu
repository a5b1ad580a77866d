// SGEMM ladder, kernel 3: tiles of 32 × 32 in shared memory, one output per thread.
//
// weft: sizes     N=4096
// weft: in        a, b : f32[N, N] = normal
// weft: inout     c : f32[N, N] = normal
// weft: scalar    alpha : f32 = 0.5
// weft: scalar    beta : f32 = 3.0
// weft: launch    sgemm(a, b, c, N, alpha, beta) grid(cdiv(N, 32), cdiv(N, 32)) block(1024)
constexpr int TILE = 32;

__global__ void sgemm(const float* a, const float* b, float* c, int n, float alpha, float beta) {
    __shared__ float as[TILE * TILE], bs[TILE * TILE];
    const int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
    a += blockIdx.x * TILE * n;
    b += blockIdx.y * TILE;
    c += blockIdx.x * TILE * n + blockIdx.y * TILE;
    float sum = 0.0f;
    for (int k = 0; k < n; k += TILE) {
        as[row * TILE + column] = a[row * n + column];
        bs[row * TILE + column] = b[row * n + column];
        __syncthreads();
        a += TILE;
        b += TILE * n;
        for (int i = 0; i < TILE; ++i) sum += as[row * TILE + i] * bs[i * TILE + column];
        __syncthreads();
    }
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}
