// The keys of a query are split between the warps of a CTA, which serves all query heads of one KV head: a row of K and
// V is read once for the whole group. The warps leave (m, l, o) in shared memory, and the CTA merges them.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: require HQ <= 8 * HKV : registers for eight heads
// weft: require D <= 128
// weft: in      query      : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      key, value : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     out        : ELEMENT[B, HQ, SQ, D]
// weft: out     lse        : f32[B, HQ, SQ]
// weft: scalar  scale      : f32 = 1 / sqrt(D)
// weft: launch  key_split<{D}>(query, key, value, out, lse, HQ, SQ, SKV, scale) grid(SQ, HKV, B) block(128)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <float.h>

static constexpr int kWarps = 4;
static constexpr int kMaxGroup = 8;

__device__ inline float warpSum(float x) {
    for (int delta = 16; delta; delta >>= 1) x += __shfl_xor_sync(~0u, x, delta);
    return x;
}

template <int D>
__global__ void __launch_bounds__(kWarps * 32)
key_split(const ELEMENT* __restrict__ query, const ELEMENT* __restrict__ key, const ELEMENT* __restrict__ value,
          ELEMENT* __restrict__ out, float* __restrict__ lse, int numHeads, int qLen, int kvLen, float scale) {
    constexpr int kCols = (D + 31) / 32;
    __shared__ float partM[kWarps][kMaxGroup];
    __shared__ float partL[kWarps][kMaxGroup];
    __shared__ float partO[kWarps][kMaxGroup][D];

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int pos = blockIdx.x, kvHead = blockIdx.y, batch = blockIdx.z;
    const int kvHeads = gridDim.y, group = numHeads / kvHeads;
    const int firstHead = batch * numHeads + kvHead * group;

    float q[kMaxGroup][kCols], acc[kMaxGroup][kCols], m[kMaxGroup], l[kMaxGroup];
#pragma unroll
    for (int g = 0; g < kMaxGroup; ++g) {
        m[g] = -FLT_MAX;
        l[g] = 0.f;
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
            const int d = c * 32 + lane;
            const bool valid = g < group && d < D;
            q[g][c] = valid ? float(query[(size_t(firstHead + g) * qLen + pos) * D + d]) : 0.f;
            acc[g][c] = 0.f;
        }
    }

    int visible = kvLen;
    if (CAUSAL == 1) visible = min(kvLen, pos + 1);
    if (CAUSAL == 2) visible = min(kvLen, max(0, pos + 1 + kvLen - qLen));

    const int perWarp = (visible + kWarps - 1) / kWarps;
    const int begin = warp * perWarp;
    const int end = min(begin + perWarp, visible);
    const size_t kvBase = size_t(batch * kvHeads + kvHead) * kvLen * D;

    for (int n = begin; n < end; ++n) {
        float kReg[kCols], vReg[kCols];
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
            const int d = c * 32 + lane;
            kReg[c] = d < D ? float(key[kvBase + size_t(n) * D + d]) : 0.f;
            vReg[c] = d < D ? float(value[kvBase + size_t(n) * D + d]) : 0.f;
        }
#pragma unroll
        for (int g = 0; g < kMaxGroup; ++g) {
            if (g >= group) break;
            float dot = 0.f;
            for (int c = 0; c < kCols; ++c) dot += q[g][c] * kReg[c];
            const float score = warpSum(dot) * scale;
            const float mNew = fmaxf(m[g], score);
            const float correction = expf(m[g] - mNew);
            const float weight = expf(score - mNew);
            for (int c = 0; c < kCols; ++c) acc[g][c] = acc[g][c] * correction + weight * vReg[c];
            l[g] = l[g] * correction + weight;
            m[g] = mNew;
        }
    }

#pragma unroll
    for (int g = 0; g < kMaxGroup; ++g) {
        if (g >= group) break;
        for (int c = 0; c < kCols; ++c)
            if (c * 32 + lane < D) partO[warp][g][c * 32 + lane] = acc[g][c];
        if (lane == 0) {
            partM[warp][g] = m[g];
            partL[warp][g] = l[g];
        }
    }
    __syncthreads();

    for (int i = threadIdx.x; i < group * D; i += blockDim.x) {
        const int g = i / D, d = i % D;
        float mAll = -FLT_MAX;
        for (int w = 0; w < kWarps; ++w) mAll = fmaxf(mAll, partM[w][g]);
        float num = 0.f, den = 0.f;
        for (int w = 0; w < kWarps; ++w) {
            const float factor = expf(partM[w][g] - mAll);
            num += factor * partO[w][g][d];
            den += factor * partL[w][g];
        }
        const size_t row = size_t(firstHead + g) * qLen + pos;
        out[row * D + d] = ELEMENT(den > 0.f ? num / den : 0.f);
        if (d == 0) lse[row] = den > 0.f ? mAll + logf(den) : -INFINITY;
    }
}
