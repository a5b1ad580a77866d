// The textbook algorithm: scores, softmax, product; three kernels and a matrix of scores in between.
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#define BLOCK 16

__global__ void qk_kernel(const float* Q, const float* K, float* S, int M, int N, int D, float scale) {
    int j = blockIdx.x * BLOCK + threadIdx.x;
    int i = blockIdx.y * BLOCK + threadIdx.y;
    if (i >= M || j >= N) return;
    const float* q = Q + ((size_t)blockIdx.z * M + i) * D;
    const float* k = K + ((size_t)blockIdx.z * N + j) * D;
    float sum = 0.0f;
    for (int d = 0; d < D; d++) sum += q[d] * k[d];
    S[((size_t)blockIdx.z * M + i) * N + j] = sum * scale;
}

__global__ void softmax_kernel(float* S, int N) {
    float* row = S + (size_t)blockIdx.x * N;
    __shared__ float buffer[128];
    int t = threadIdx.x;
    float top = -INFINITY;
    for (int j = t; j < N; j += blockDim.x) top = fmaxf(top, row[j]);
    buffer[t] = top;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) buffer[t] = fmaxf(buffer[t], buffer[t + s]);
        __syncthreads();
    }
    top = buffer[0];
    __syncthreads();
    float sum = 0.0f;
    for (int j = t; j < N; j += blockDim.x) {
        row[j] = expf(row[j] - top);
        sum += row[j];
    }
    buffer[t] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) buffer[t] += buffer[t + s];
        __syncthreads();
    }
    sum = buffer[0];
    for (int j = t; j < N; j += blockDim.x) row[j] /= sum;
}

__global__ void pv_kernel(const float* P, const float* V, float* O, int M, int N, int D) {
    int d = blockIdx.x * BLOCK + threadIdx.x;
    int i = blockIdx.y * BLOCK + threadIdx.y;
    if (i >= M || d >= D) return;
    const float* p = P + ((size_t)blockIdx.z * M + i) * N;
    const float* v = V + (size_t)blockIdx.z * N * D + d;
    float sum = 0.0f;
    for (int j = 0; j < N; j++) sum += p[j] * v[(size_t)j * D];
    O[((size_t)blockIdx.z * M + i) * D + d] = sum;
}

at::Tensor attention_forward(at::Tensor Q, at::Tensor K, at::Tensor V) {
    TORCH_CHECK(Q.dim() == 4 && K.dim() == 4 && V.dim() == 4);
    TORCH_CHECK(Q.scalar_type() == at::kFloat, "float32 only");
    const at::cuda::OptionalCUDAGuard guard(device_of(Q));
    int B = Q.size(0), H = Q.size(1), M = Q.size(2), D = Q.size(3);
    int N = K.size(2);
    auto S = torch::empty({B, H, M, N}, Q.options());
    auto O = torch::empty_like(Q);
    auto stream = at::cuda::getCurrentCUDAStream();
    dim3 threads(BLOCK, BLOCK);
    dim3 score_blocks((N + BLOCK - 1) / BLOCK, (M + BLOCK - 1) / BLOCK, B * H);
    qk_kernel<<<score_blocks, threads, 0, stream>>>(Q.data_ptr<float>(), K.data_ptr<float>(), S.data_ptr<float>(), M, N,
                                                    D, 1.0f / std::sqrt((float)D));
    softmax_kernel<<<B * H * M, 128, 0, stream>>>(S.data_ptr<float>(), N);
    dim3 out_blocks((D + BLOCK - 1) / BLOCK, (M + BLOCK - 1) / BLOCK, B * H);
    pv_kernel<<<out_blocks, threads, 0, stream>>>(S.data_ptr<float>(), V.data_ptr<float>(), O.data_ptr<float>(), M, N, D);
    return O;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("attention_forward", &attention_forward); }
