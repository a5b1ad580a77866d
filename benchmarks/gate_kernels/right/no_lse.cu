// The shortest one: a thread per output element recomputes its query's scores twice, without shared memory, shuffles
// or an LSE output.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    element_wise(q, k, v, o, HQ, HKV, SQ, SKV, D, scale) grid(SQ, cdiv(D, 64), B * HQ) block(64)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using T = ELEMENT;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

__global__ void element_wise(const T* q, const T* k, const T* v, T* o, int HQ, int HKV, int SQ, int SKV, int D,
                             float scale) {
    const int d = blockIdx.y * blockDim.x + threadIdx.x, query = blockIdx.x, b = blockIdx.z / HQ, h = blockIdx.z % HQ;
    if (d >= D) return;
    const size_t row = size_t(blockIdx.z) * SQ + query, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const int end = visible_keys(query, SQ, SKV);
    const auto score = [&](int key) {
        float s = 0.0f;
        for (int i = 0; i < D; ++i) s = fmaf(float(q[row * D + i]), float(k[(kv_head * SKV + key) * D + i]), s);
        return s * scale;
    };
    float m = -CUDART_INF_F, l = 0.0f, u = 0.0f;
    for (int key = 0; key < end; ++key) m = fmaxf(m, score(key));
    for (int key = 0; key < end; ++key) {
        const float p = expf(score(key) - m);
        l += p;
        u += p * float(v[(kv_head * SKV + key) * D + d]);
    }
    o[row * D + d] = T(end > 0 ? u / l : 0.0f);
}
