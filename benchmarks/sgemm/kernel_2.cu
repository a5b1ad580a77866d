// SGEMM ladder, kernel 2: neighbouring threads walk along a row of C.
//
// weft: sizes     N=4096
// weft: in        a, b : f32[N, N] = normal
// weft: inout     c : f32[N, N] = normal
// weft: scalar    alpha : f32 = 0.5
// weft: scalar    beta : f32 = 3.0
// weft: launch    sgemm(a, b, c, N, alpha, beta) grid(cdiv(N, 32), cdiv(N, 32)) block(1024)
__global__ void sgemm(const float* a, const float* b, float* c, int n, float alpha, float beta) {
    const int row = blockIdx.x * 32 + threadIdx.x / 32, column = blockIdx.y * 32 + threadIdx.x % 32;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}
