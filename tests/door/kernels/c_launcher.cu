// For a C program or ctypes: raw pointers, sizes, a stream. A block of 4 warps, each with its own query.
#include <cuda_runtime.h>

#define WARPS 4
#define FULL 0xffffffffu

extern "C" __global__ void mha_kernel(const float* q, const float* k, const float* v, float* o, int heads_q, int heads_kv,
                                      int len_q, int len_kv, int head_dim, float scale) {
    int warp = threadIdx.y, lane = threadIdx.x;
    int row = blockIdx.x * WARPS + warp;
    if (row >= len_q) return;
    int head = blockIdx.y % heads_q, batch = blockIdx.y / heads_q;
    int group = heads_q / heads_kv;
    const float* qr = q + (((long long)batch * heads_q + head) * len_q + row) * head_dim;
    const float* kh = k + ((long long)batch * heads_kv + head / group) * len_kv * head_dim;
    const float* vh = v + ((long long)batch * heads_kv + head / group) * len_kv * head_dim;
    float out[4] = {0.f, 0.f, 0.f, 0.f};
    float m = -INFINITY, l = 0.f;
    for (int j = 0; j < len_kv; ++j) {
        float s = 0.f;
        for (int d = lane; d < head_dim; d += 32) s += qr[d] * kh[(long long)j * head_dim + d];
        for (int step = 16; step >= 1; step >>= 1) s += __shfl_down_sync(FULL, s, step);
        s = __shfl_sync(FULL, s, 0) * scale;
        float m_new = fmaxf(m, s);
        float a = expf(m - m_new), p = expf(s - m_new);
        l = a * l + p;
        for (int i = 0, d = lane; d < head_dim; ++i, d += 32) out[i] = a * out[i] + p * vh[(long long)j * head_dim + d];
        m = m_new;
    }
    float* orow = o + (((long long)batch * heads_q + head) * len_q + row) * head_dim;
    for (int i = 0, d = lane; d < head_dim; ++i, d += 32) orow[d] = out[i] / l;
}

extern "C" int mha_forward(const float* q, const float* k, const float* v, float* o, int batch, int heads_q, int heads_kv,
                           int len_q, int len_kv, int head_dim, float scale, cudaStream_t stream) {
    if (head_dim > 128) return -1;
    dim3 block(32, WARPS);
    dim3 grid((len_q + WARPS - 1) / WARPS, batch * heads_q);
    mha_kernel<<<grid, block, 0, stream>>>(q, k, v, o, heads_q, heads_kv, len_q, len_kv, head_dim, scale);
    return (int)cudaGetLastError();
}
