// SGEMM ladder, kernel 5: block tile 128 × 128, 8 × 8 outputs per thread.
//
// weft: sizes     N=4096
// weft: in        a, b : f32[N, N] = normal
// weft: inout     c : f32[N, N] = normal
// weft: scalar    alpha : f32 = 0.5
// weft: scalar    beta : f32 = 3.0
// weft: launch    sgemm(a, b, c, N, alpha, beta) grid(cdiv(N, 128), cdiv(N, 128)) block(256)
constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8, THREADS = BM * BN / (TM * TN);

__global__ void __launch_bounds__(THREADS, 1)
    sgemm(const float* a, const float* b, float* c, int n, float alpha, float beta) {
    __shared__ float as[BM * BK], bs[BK * BN];
    const int row = threadIdx.x / (BN / TN), column = threadIdx.x % (BN / TN);
    a += blockIdx.y * BM * n;
    b += blockIdx.x * BN;
    c += blockIdx.y * BM * n + blockIdx.x * BN;
    const int a_row = threadIdx.x / BK, a_column = threadIdx.x % BK;
    const int b_row = threadIdx.x / BN, b_column = threadIdx.x % BN;
    float sums[TM * TN] = {}, left[TM], right[TN];
    for (int k = 0; k < n; k += BK) {
        for (int m = 0; m < BM; m += THREADS / BK) as[(a_row + m) * BK + a_column] = a[(a_row + m) * n + a_column];
        for (int m = 0; m < BK; m += THREADS / BN) bs[(b_row + m) * BN + b_column] = b[(b_row + m) * n + b_column];
        __syncthreads();
        a += BK;
        b += BK * n;
        for (int i = 0; i < BK; ++i) {
            for (int m = 0; m < TM; ++m) left[m] = as[(row * TM + m) * BK + i];
            for (int j = 0; j < TN; ++j) right[j] = bs[i * BN + column * TN + j];
            for (int m = 0; m < TM; ++m)
                for (int j = 0; j < TN; ++j) sums[m * TN + j] += left[m] * right[j];
        }
        __syncthreads();
    }
    for (int m = 0; m < TM; ++m)
        for (int j = 0; j < TN; ++j) {
            float* out = c + (row * TM + m) * n + column * TN + j;
            *out = alpha * sums[m * TN + j] + beta * *out;
        }
}
