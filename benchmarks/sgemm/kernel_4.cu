// SGEMM ladder, kernel 4: block tile 64 × 64, eight outputs of a column per thread.
//
// weft: sizes     N=4096
// weft: in        a, b : f32[N, N] = normal
// weft: inout     c : f32[N, N] = normal
// weft: scalar    alpha : f32 = 0.5
// weft: scalar    beta : f32 = 3.0
// weft: launch    sgemm(a, b, c, N, alpha, beta) grid(cdiv(N, 64), cdiv(N, 64)) block(512)
constexpr int BM = 64, BN = 64, BK = 8, TM = 8;

__global__ void sgemm(const float* a, const float* b, float* c, int n, float alpha, float beta) {
    __shared__ float as[BM * BK], bs[BK * BN];
    const int row = threadIdx.x / BN, column = threadIdx.x % BN;
    a += blockIdx.y * BM * n;
    b += blockIdx.x * BN;
    c += blockIdx.y * BM * n + blockIdx.x * BN;
    const int a_row = threadIdx.x / BK, a_column = threadIdx.x % BK;
    float sums[TM] = {};
    for (int k = 0; k < n; k += BK) {
        as[a_row * BK + a_column] = a[a_row * n + a_column];
        bs[row * BN + column] = b[row * n + column];
        __syncthreads();
        a += BK;
        b += BK * n;
        for (int i = 0; i < BK; ++i) {
            const float right = bs[i * BN + column];
            for (int m = 0; m < TM; ++m) sums[m] += as[(row * TM + m) * BK + i] * right;
        }
        __syncthreads();
    }
    for (int m = 0; m < TM; ++m) {
        float* out = c + (row * TM + m) * n + column;
        *out = alpha * sums[m] + beta * *out;
    }
}
