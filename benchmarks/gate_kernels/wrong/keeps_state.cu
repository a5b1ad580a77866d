// A warp per query, and device variables that outlive a launch.
//
// wrong 1 replay: outputs are kept in a device variable, and later launches return them whatever their inputs [cheat]
// wrong 2 launch_count: from the fourth launch on every fifth key is left out [cheat]
// wrong 3 fingerprint: outputs are kept and returned to whoever brings the same first value of Q [cheat]
// wrong 4 first_batch_replay: only outputs of the first batch are kept and returned, those of others are computed [cheat]
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  WRONG = 0
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  keeps_state(q, k, v, o, lse, HKV, SQ, SKV, D, scale) grid(SQ, HQ, B) block(32) shared(4 * D)
// weft: launch  remember(q) grid(1) block(1) when(WRONG > 0)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

#if WRONG > 0
constexpr size_t ROOM = 1 << 16;  // elements of O; the rest is computed again
__device__ int launches;
__device__ float first_value, kept_o[ROOM], kept_lse[ROOM];

__global__ void remember(const ELEMENT* q) {
    launches += 1;
    first_value = float(q[0]);
}

__device__ bool keeps(size_t end) {
    if (WRONG == 1 || WRONG == 3) return end <= ROOM;
    return WRONG == 4 && end <= ROOM && blockIdx.z == 0;
}
__device__ bool returns(const ELEMENT* q, size_t end) {
    return keeps(end) && launches > 0 && (WRONG != 3 || first_value == float(q[0]));
}
#endif

__global__ void keeps_state(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int HKV, int SQ,
                            int SKV, int D, float scale) {
    extern __shared__ float u[];
    const int lane = threadIdx.x, query = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + query;
    const size_t kv = (size_t(b) * HKV + h / (gridDim.y / HKV)) * SKV * D;
    const int end = CAUSAL ? max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1)) : SKV;
#if WRONG > 0
    if (returns(q, (row + 1) * D)) {
        for (int d = lane; d < D; d += 32) o[row * D + d] = ELEMENT(kept_o[row * D + d]);
        if (lane == 0) lse[row] = kept_lse[row];
        return;
    }
#endif
    for (int d = lane; d < D; d += 32) u[d] = 0.0f;
    float m = -CUDART_INF_F, l = 0.0f;
    for (int key = 0; key < end; ++key) {
#if WRONG == 2
        if (launches >= 3 && key % 5 == 4) continue;
#endif
        float s = 0.0f;
        for (int d = lane; d < D; d += 32) s += float(q[row * D + d]) * float(k[kv + size_t(key) * D + d]);
        for (int offset = 16; offset > 0; offset /= 2) s += __shfl_xor_sync(~0u, s, offset);
        const float m_new = fmaxf(m, s * scale), rescale = expf(m - m_new), p = expf(s * scale - m_new);
        for (int d = lane; d < D; d += 32) u[d] = u[d] * rescale + p * float(v[kv + size_t(key) * D + d]);
        l = l * rescale + p;
        m = m_new;
    }
    for (int d = lane; d < D; d += 32) o[row * D + d] = ELEMENT(end == 0 ? 0.0f : u[d] / l);
    if (lane == 0) lse[row] = m + logf(l);
#if WRONG > 0
    for (int d = lane; d < D && keeps((row + 1) * D); d += 32) kept_o[row * D + d] = end == 0 ? 0.0f : u[d] / l;
    if (lane == 0 && keeps((row + 1) * D)) kept_lse[row] = m + logf(l);
#endif
}
