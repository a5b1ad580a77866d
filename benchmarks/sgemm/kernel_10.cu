// SGEMM ladder, kernel 10: warp tiles of 64 × 64 in a block tile of 128 × 128.
//
// weft: sizes     N=4096
// weft: in        a, b : f32[N, N] = normal
// weft: inout     c : f32[N, N] = normal
// weft: scalar    alpha : f32 = 0.5
// weft: scalar    beta : f32 = 3.0
// weft: launch    sgemm(a, b, c, N, alpha, beta) grid(cdiv(N, 128), cdiv(N, 128)) block(128)
constexpr int BM = 128, BN = 128, BK = 16, WM = 64, WN = 64, WNITER = 4, TM = 8, TN = 4, THREADS = 128;
constexpr int WMITER = WM * WN / (32 * TM * TN * WNITER), SUBM = WM / WMITER, SUBN = WN / WNITER;

__global__ void __launch_bounds__(THREADS)
    sgemm(const float* a, const float* b, float* c, int n, float alpha, float beta) {
    __shared__ float as[BK * BM], bs[BK * BN];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / (BN / WN), warp_column = warp % (BN / WN);
    const int row = lane / (SUBN / TN), column = lane % (SUBN / TN);
    a += blockIdx.y * BM * n;
    b += blockIdx.x * BN;
    c += (blockIdx.y * BM + warp_row * WM) * n + blockIdx.x * BN + warp_column * WN;
    const int a_row = threadIdx.x / (BK / 4), a_column = threadIdx.x % (BK / 4) * 4;
    const int b_row = threadIdx.x / (BN / 4), b_column = threadIdx.x % (BN / 4) * 4;
    float sums[WMITER * TM * WNITER * TN] = {}, left[WMITER * TM], right[WNITER * TN];
    for (int k = 0; k < n; k += BK) {
        for (int m = 0; m + THREADS * 4 / BK <= BM; m += THREADS * 4 / BK) {
            const float4 quad = *reinterpret_cast<const float4*>(a + (a_row + m) * n + a_column);
            as[(a_column + 0) * BM + a_row + m] = quad.x;
            as[(a_column + 1) * BM + a_row + m] = quad.y;
            as[(a_column + 2) * BM + a_row + m] = quad.z;
            as[(a_column + 3) * BM + a_row + m] = quad.w;
        }
        for (int m = 0; m + THREADS * 4 / BN <= BK; m += THREADS * 4 / BN)
            *reinterpret_cast<float4*>(bs + (b_row + m) * BN + b_column) =
                *reinterpret_cast<const float4*>(b + (b_row + m) * n + b_column);
        __syncthreads();
        for (int i = 0; i < BK; ++i) {
            for (int w = 0; w < WMITER; ++w)
                for (int m = 0; m < TM; ++m)
                    left[w * TM + m] = as[i * BM + warp_row * WM + w * SUBM + row * TM + m];
            for (int w = 0; w < WNITER; ++w)
                for (int j = 0; j < TN; ++j)
                    right[w * TN + j] = bs[i * BN + warp_column * WN + w * SUBN + column * TN + j];
            for (int v = 0; v < WMITER; ++v)
                for (int w = 0; w < WNITER; ++w)
                    for (int m = 0; m < TM; ++m)
                        for (int j = 0; j < TN; ++j)
                            sums[(v * TM + m) * (WNITER * TN) + w * TN + j] += left[v * TM + m] * right[w * TN + j];
        }
        a += BK;
        b += BK * n;
        __syncthreads();
    }
    for (int v = 0; v < WMITER; ++v)
        for (int w = 0; w < WNITER; ++w)
            for (int m = 0; m < TM; ++m)
                for (int j = 0; j < TN; j += 4) {
                    float4* out = reinterpret_cast<float4*>(
                        c + (v * SUBM + row * TM + m) * n + w * SUBN + column * TN + j);
                    const float* from = sums + (v * TM + m) * (WNITER * TN) + w * TN + j;
                    float4 old = *out;
                    old.x = alpha * from[0] + beta * old.x;
                    old.y = alpha * from[1] + beta * old.y;
                    old.z = alpha * from[2] + beta * old.z;
                    old.w = alpha * from[3] + beta * old.w;
                    *out = old;
                }
}
