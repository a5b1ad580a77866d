// fp16 by pairs (half2), a warp per query, lanes share the head dimension.
#include <torch/extension.h>
#include <cuda_fp16.h>

__global__ void attn_half2(const half2* q, const half2* k, const half2* v, half2* o, int sq, int sk, int d2, float scale) {
    const int lane = threadIdx.x;
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= sq) return;
    q += ((size_t)blockIdx.y * sq + row) * d2;
    k += (size_t)blockIdx.y * sk * d2;
    v += (size_t)blockIdx.y * sk * d2;
    o += ((size_t)blockIdx.y * sq + row) * d2;
    float2 acc[2] = {{0.f, 0.f}, {0.f, 0.f}};
    float m = -INFINITY, l = 0.f;
    for (int j = 0; j < sk; ++j) {
        float s = 0.f;
        for (int x = lane; x < d2; x += 32) {
            const float2 a = __half22float2(q[x]), b = __half22float2(k[(size_t)j * d2 + x]);
            s = fmaf(a.x, b.x, fmaf(a.y, b.y, s));
        }
        for (int mask = 16; mask; mask >>= 1) s += __shfl_xor_sync(0xffffffff, s, mask);
        s *= scale;
        const float next = fmaxf(m, s);
        const float f = __expf(m - next), p = __expf(s - next);
        l = l * f + p;
        int i = 0;
        for (int x = lane; x < d2; x += 32, ++i) {
            const float2 b = __half22float2(v[(size_t)j * d2 + x]);
            acc[i].x = acc[i].x * f + p * b.x;
            acc[i].y = acc[i].y * f + p * b.y;
        }
        m = next;
    }
    int i = 0;
    for (int x = lane; x < d2; x += 32, ++i) o[x] = __floats2half2_rn(acc[i].x / l, acc[i].y / l);
}

torch::Tensor forward(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    TORCH_CHECK(q.dtype() == torch::kFloat16);
    const int b = q.size(0), h = q.size(1), sq = q.size(2), d = q.size(3), sk = k.size(2);
    TORCH_CHECK(d % 2 == 0 && d <= 128);
    TORCH_CHECK(k.size(1) == h, "grouped heads are not supported");
    auto o = torch::empty_like(q);
    dim3 block(32, 4);
    attn_half2<<<dim3((sq + 3) / 4, b * h), block>>>(
        reinterpret_cast<const half2*>(q.data_ptr<at::Half>()), reinterpret_cast<const half2*>(k.data_ptr<at::Half>()),
        reinterpret_cast<const half2*>(v.data_ptr<at::Half>()), reinterpret_cast<half2*>(o.data_ptr<at::Half>()), sq, sk,
        d / 2, 1.f / sqrtf((float)d));
    return o;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
