// One head, one sequence, as in a first tutorial. A plain C++ function launches it.
#include <cuda_runtime.h>
#include <cmath>

#define HEAD_DIM 64

__global__ void single_head_attention(const float* Q, const float* K, const float* V, float* Out, int N) {
    int i = blockIdx.x;
    int d = threadIdx.x;
    __shared__ float q_shared[HEAD_DIM];
    __shared__ float partial[HEAD_DIM];
    q_shared[d] = Q[i * HEAD_DIM + d];
    float m = -INFINITY, l = 0.0f, acc = 0.0f;
    for (int j = 0; j < N; ++j) {
        partial[d] = q_shared[d] * K[j * HEAD_DIM + d];
        __syncthreads();
        for (int s = HEAD_DIM / 2; s > 0; s /= 2) {
            if (d < s) partial[d] += partial[d + s];
            __syncthreads();
        }
        float score = partial[0] / sqrtf((float)HEAD_DIM);
        float m_new = fmaxf(m, score);
        float p = expf(score - m_new);
        float correction = expf(m - m_new);
        l = l * correction + p;
        acc = acc * correction + p * V[j * HEAD_DIM + d];
        m = m_new;
        __syncthreads();
    }
    Out[i * HEAD_DIM + d] = acc / l;
}

void attention(const float* Q, const float* K, const float* V, float* Out, int N) {
    single_head_attention<<<N, HEAD_DIM>>>(Q, K, V, Out, N);
    cudaDeviceSynchronize();
}
