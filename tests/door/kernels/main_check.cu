// A standalone program: makes its inputs, launches, compares with a loop on the CPU.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CUDA_CHECK(call)                                                              \
    do {                                                                              \
        cudaError_t err = (call);                                                     \
        if (err != cudaSuccess) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

#define TILE 32

__global__ void flash_attention(const float* Q, const float* K, const float* V, float* O, int N, int d, float scale) {
    extern __shared__ float shared[];
    float* k_tile = shared;
    float* v_tile = shared + TILE * d;
    float* q_row = v_tile + TILE * d + threadIdx.x * d;
    float* o_row = v_tile + 2 * TILE * d + threadIdx.x * d;
    const size_t base = (size_t)blockIdx.y * N * d;
    const int row = blockIdx.x * TILE + threadIdx.x;
    for (int x = 0; x < d; x++) {
        q_row[x] = row < N ? Q[base + row * d + x] : 0.f;
        o_row[x] = 0.f;
    }
    float m = -INFINITY, l = 0.f;
    for (int start = 0; start < N; start += TILE) {
        const int key = start + threadIdx.x;
        for (int x = 0; x < d; x++) {
            k_tile[threadIdx.x * d + x] = key < N ? K[base + key * d + x] : 0.f;
            v_tile[threadIdx.x * d + x] = key < N ? V[base + key * d + x] : 0.f;
        }
        __syncthreads();
        const int keys = min(TILE, N - start);
        for (int j = 0; j < keys; j++) {
            float s = 0.f;
            for (int x = 0; x < d; x++) s += q_row[x] * k_tile[j * d + x];
            s *= scale;
            const float m_new = fmaxf(m, s);
            const float alpha = __expf(m - m_new);
            const float p = __expf(s - m_new);
            l = alpha * l + p;
            for (int x = 0; x < d; x++) o_row[x] = alpha * o_row[x] + p * v_tile[j * d + x];
            m = m_new;
        }
        __syncthreads();
    }
    if (row < N)
        for (int x = 0; x < d; x++) O[base + row * d + x] = o_row[x] / l;
}

static void attention_cpu(const float* Q, const float* K, const float* V, float* O, int BH, int N, int d, float scale) {
    std::vector<float> scores(N);
    for (int h = 0; h < BH; h++)
        for (int i = 0; i < N; i++) {
            float top = -1e30f, sum = 0.f;
            for (int j = 0; j < N; j++) {
                float s = 0.f;
                for (int x = 0; x < d; x++) s += Q[(h * N + i) * d + x] * K[(h * N + j) * d + x];
                scores[j] = s * scale;
                top = std::fmax(top, scores[j]);
            }
            for (int j = 0; j < N; j++) sum += scores[j] = std::exp(scores[j] - top);
            for (int x = 0; x < d; x++) {
                float out = 0.f;
                for (int j = 0; j < N; j++) out += scores[j] * V[(h * N + j) * d + x];
                O[(h * N + i) * d + x] = out / sum;
            }
        }
}

int main(int argc, char** argv) {
    const int B = 2, H = 4, N = argc > 1 ? atoi(argv[1]) : 128, d = 64;
    const size_t count = (size_t)B * H * N * d, bytes = count * sizeof(float);
    float* h_q = (float*)malloc(bytes);
    float* h_k = (float*)malloc(bytes);
    float* h_v = (float*)malloc(bytes);
    float* h_o = (float*)malloc(bytes);
    for (size_t i = 0; i < count; i++) {
        h_q[i] = rand() / (float)RAND_MAX - 0.5f;
        h_k[i] = rand() / (float)RAND_MAX - 0.5f;
        h_v[i] = rand() / (float)RAND_MAX - 0.5f;
    }
    float *d_q, *d_k, *d_v, *d_o;
    CUDA_CHECK(cudaMalloc(&d_q, bytes));
    CUDA_CHECK(cudaMalloc(&d_k, bytes));
    CUDA_CHECK(cudaMalloc(&d_v, bytes));
    CUDA_CHECK(cudaMalloc(&d_o, bytes));
    CUDA_CHECK(cudaMemcpy(d_q, h_q, bytes, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(d_k, h_k, bytes, cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(d_v, h_v, bytes, cudaMemcpyHostToDevice));
    const float scale = 1.f / sqrtf((float)d);
    dim3 grid((N + TILE - 1) / TILE, B * H);
    const size_t smem = 4 * TILE * d * sizeof(float);
    flash_attention<<<grid, TILE, smem>>>(d_q, d_k, d_v, d_o, N, d, scale);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaMemcpy(h_o, d_o, bytes, cudaMemcpyDeviceToHost));
    std::vector<float> expected(count);
    attention_cpu(h_q, h_k, h_v, expected.data(), B * H, N, d, scale);
    float worst = 0.f;
    for (size_t i = 0; i < count; i++) worst = std::fmax(worst, std::fabs(h_o[i] - expected[i]));
    printf("max error %g\n", worst);
    cudaFree(d_q); cudaFree(d_k); cudaFree(d_v); cudaFree(d_o);
    free(h_q); free(h_k); free(h_v); free(h_o);
    return worst < 1e-3f ? 0 : 1;
}
