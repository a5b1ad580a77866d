// Vectorised loads (float4), a program with a timing loop; one N, one D that is a multiple of 4.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

constexpr int THREADS = 64;

__global__ void attention_vec4(const float4* __restrict__ q, const float4* __restrict__ k, const float4* __restrict__ v,
                               float4* __restrict__ o, int n, int d4, float scale) {
    const int row = blockIdx.x * THREADS + threadIdx.x;
    if (row >= n) return;
    const size_t head = (size_t)blockIdx.y * n * d4;
    float4 acc[32];
    for (int x = 0; x < d4; x++) acc[x] = make_float4(0.f, 0.f, 0.f, 0.f);
    float m = -INFINITY, l = 0.f;
    for (int j = 0; j < n; j++) {
        float s = 0.f;
        for (int x = 0; x < d4; x++) {
            const float4 a = q[head + (size_t)row * d4 + x], b = k[head + (size_t)j * d4 + x];
            s += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        }
        s *= scale;
        const float m_new = fmaxf(m, s);
        const float f = expf(m - m_new), p = expf(s - m_new);
        l = l * f + p;
        for (int x = 0; x < d4; x++) {
            const float4 b = v[head + (size_t)j * d4 + x];
            acc[x].x = acc[x].x * f + p * b.x;
            acc[x].y = acc[x].y * f + p * b.y;
            acc[x].z = acc[x].z * f + p * b.z;
            acc[x].w = acc[x].w * f + p * b.w;
        }
        m = m_new;
    }
    const float inv = 1.f / l;
    for (int x = 0; x < d4; x++)
        o[head + (size_t)row * d4 + x] = make_float4(acc[x].x * inv, acc[x].y * inv, acc[x].z * inv, acc[x].w * inv);
}

int main() {
    int B = 1, H = 8, N = 256, D = 64;
    size_t size = (size_t)B * H * N * D * sizeof(float);
    float *Q, *K, *V, *O;
    cudaMalloc((void**)&Q, size);
    cudaMalloc((void**)&K, size);
    cudaMalloc((void**)&V, size);
    cudaMalloc((void**)&O, size);
    float* host = (float*)malloc(size);
    for (size_t i = 0; i < size / sizeof(float); i++) host[i] = (float)rand() / RAND_MAX;
    cudaMemcpy(Q, host, size, cudaMemcpyHostToDevice);
    cudaMemcpy(K, host, size, cudaMemcpyHostToDevice);
    cudaMemcpy(V, host, size, cudaMemcpyHostToDevice);
    dim3 grid((N + THREADS - 1) / THREADS, B * H);
    attention_vec4<<<grid, THREADS>>>((float4*)Q, (float4*)K, (float4*)V, (float4*)O, N, D / 4, rsqrtf((float)D));
    cudaMemcpy(host, O, size, cudaMemcpyDeviceToHost);
    printf("%f\n", host[0]);
    cudaFree(Q);
    cudaFree(K);
    cudaFree(V);
    cudaFree(O);
    free(host);
    return 0;
}
