// SGEMM ladder, kernel 6: kernel 5 with A transposed in shared memory, float4 loads and stores.
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
    __shared__ float as[BK * BM], bs[BK * BN];
    const int row = threadIdx.x / (BN / TN), column = threadIdx.x % (BN / TN);
    a += blockIdx.y * BM * n;
    b += blockIdx.x * BN;
    c += blockIdx.y * BM * n + blockIdx.x * BN;
    const int a_row = threadIdx.x / (BK / 4), a_column = threadIdx.x % (BK / 4) * 4;
    const int b_row = threadIdx.x / (BN / 4), b_column = threadIdx.x % (BN / 4) * 4;
    float sums[TM * TN] = {}, left[TM], right[TN];
    for (int k = 0; k < n; k += BK) {
        const float4 quad = *reinterpret_cast<const float4*>(a + a_row * n + a_column);
        as[(a_column + 0) * BM + a_row] = quad.x;
        as[(a_column + 1) * BM + a_row] = quad.y;
        as[(a_column + 2) * BM + a_row] = quad.z;
        as[(a_column + 3) * BM + a_row] = quad.w;
        *reinterpret_cast<float4*>(bs + b_row * BN + b_column) =
            *reinterpret_cast<const float4*>(b + b_row * n + b_column);
        __syncthreads();
        a += BK;
        b += BK * n;
        for (int i = 0; i < BK; ++i) {
            for (int m = 0; m < TM; ++m) left[m] = as[i * BM + row * TM + m];
            for (int j = 0; j < TN; ++j) right[j] = bs[i * BN + column * TN + j];
            for (int m = 0; m < TM; ++m)
                for (int j = 0; j < TN; ++j) sums[m * TN + j] += left[m] * right[j];
        }
        __syncthreads();
    }
    for (int m = 0; m < TM; ++m)
        for (int j = 0; j < TN; j += 4) {
            float4* out = reinterpret_cast<float4*>(c + (row * TM + m) * n + column * TN + j);
            float4 old = *out;
            old.x = alpha * sums[m * TN + j + 0] + beta * old.x;
            old.y = alpha * sums[m * TN + j + 1] + beta * old.y;
            old.z = alpha * sums[m * TN + j + 2] + beta * old.z;
            old.w = alpha * sums[m * TN + j + 3] + beta * old.w;
            *out = old;
        }
}
