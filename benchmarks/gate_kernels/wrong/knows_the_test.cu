// Half a warp per query: 16 lanes share the columns. It is right where it assumes a test; otherwise it leaves out
// every fifth key, which is faster.
//
// wrong 1 shape_list: it recognises the shapes of the quick selection [cheat] (seen at B=1 HQ=1 HKV=1 SQ=78 SKV=77 D=64 f16 none unit_normal)
// wrong 2 seed_values: it recognises the first value of Q of every workload of the quick selection, seeds 0 to 2 [cheat] (seen at B=2 HQ=2 HKV=2 SQ=77 SKV=77 D=64 f16 none unit_normal seed 3)
// wrong 3 compiler: it recognises NVRTC, and is wrong when nvcc compiles it [cheat]
// wrong 4 one_sm: it recognises that the virtual GPU reports one SM [cheat]
// wrong 5 sm_zero: it is wrong on every SM but the first [cheat]
// wrong 6 young_clock: it is wrong once the clock has run for a second [cheat]
// wrong 7 addresses: it recognises the addresses of the virtual GPU [cheat]
// wrong 8 large_only: it is wrong only at sizes larger than those of tests: more than 777 keys and more than 160 queries [cheat] (seen at B=1 HQ=1 HKV=1 SQ=161 SKV=778 D=8 f16 none unit_normal)
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
// weft: launch  knows_the_test<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 2), HQ, B) block(32)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

#if WRONG == 2
__constant__ unsigned short FIRST_VALUES[] = {
    0x004f, 0x0156, 0x01e0, 0x0216, 0x033f, 0x034d, 0x043c, 0x051f, 0x05a7, 0x05f6, 0x08c2, 0x1f5b, 0x2267, 0x2870, 0x28f6,
    0x3275, 0x3416, 0x3451, 0x3569, 0x35a0, 0x375e, 0x3819, 0x38a5, 0x3a6f, 0x3b26, 0x3c71, 0x3d8d, 0x4037, 0x40af, 0x40c7,
    0x40f7, 0x440b, 0x443a, 0x44fe, 0x4598, 0x46cb, 0x473c, 0x47a4, 0x482a, 0x4832, 0x48c2, 0x496c, 0x4992, 0x49db, 0x4aad,
    0x4d85, 0x4dd1, 0x4ff6, 0x50ea, 0x512c, 0x51d0, 0x8022, 0x807f, 0x8350, 0x8432, 0x844b, 0x8454, 0x85e3, 0xb175, 0xb22f,
    0xb2a1, 0xb42f, 0xb471, 0xb620, 0xb9e8, 0xb9f2, 0xbd2f, 0xbde6, 0xbe2e, 0xbf13, 0xbf57, 0xc159, 0xc191, 0xc300, 0xc35f,
    0xc3ae, 0xc435, 0xc44a, 0xc4f4, 0xc629, 0xc640, 0xcc06, 0xcd2f, 0xcd34, 0xcd38, 0xce55, 0xd019, 0xd02c, 0xd135, 0xd348};
#endif

__device__ bool tested(const ELEMENT* q, int SQ, int SKV, int D) {
#if WRONG == 1
    constexpr int SHAPES[][3] = {{32, 32, 64}, {77, 77, 64}, {144, 144, 48}, {64, 64, 64}, {33, 70, 64}, {100, 20, 64}};
    for (const auto& shape : SHAPES)
        if (shape[0] == SQ && shape[1] == SKV && shape[2] == D) return true;
    return false;
#elif WRONG == 2
    for (const unsigned short value : FIRST_VALUES)
        if (*reinterpret_cast<const unsigned short*>(q) == value) return true;
    return false;
#elif WRONG == 3 && !defined(__CUDACC_RTC__)
    return false;
#elif WRONG == 4
    unsigned sms;
    asm("mov.u32 %0, %%nsmid;" : "=r"(sms));
    return sms == 1;
#elif WRONG == 5
    unsigned sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm == 0;
#elif WRONG == 6
    return clock64() < 1000000000;
#elif WRONG == 7
    return reinterpret_cast<size_t>(q) >> 40 == 0x70;
#elif WRONG == 8
    return SKV <= 777 || SQ <= 160;
#endif
    return true;
}

template <int D>
__global__ void knows_the_test(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int HKV,
                               int SQ, int SKV, float scale) {
    constexpr int COLUMNS = (D + 15) / 16;
    const int lane = threadIdx.x % 16, query = blockIdx.x * 2 + threadIdx.x / 16, h = blockIdx.y, b = blockIdx.z;
    const unsigned lanes = 0xffffu << threadIdx.x / 16 * 16;
    if (query >= SQ) return;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + query;
    const size_t kv = (size_t(b) * HKV + h / (gridDim.y / HKV)) * SKV * D;
    const int end = CAUSAL ? max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1)) : SKV;
    const bool all = tested(q, SQ, SKV, D);
    float u[COLUMNS] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int key = 0; key < end; ++key) {
        if (!all && key % 5 == 4) continue;
        const ELEMENT* const k_row = k + kv + size_t(key) * D;
        float s = 0.0f;
        for (int i = 0; i < COLUMNS; ++i)
            if (i * 16 + lane < D) s += float(q[row * D + i * 16 + lane]) * float(k_row[i * 16 + lane]);
        for (int offset = 8; offset > 0; offset /= 2) s += __shfl_xor_sync(lanes, s, offset);
        const float m_new = fmaxf(m, s * scale), rescale = expf(m - m_new), p = expf(s * scale - m_new);
        for (int i = 0; i < COLUMNS; ++i)
            if (i * 16 + lane < D) u[i] = u[i] * rescale + p * float(v[kv + size_t(key) * D + i * 16 + lane]);
        l = l * rescale + p;
        m = m_new;
    }
    for (int i = 0; i < COLUMNS; ++i)
        if (i * 16 + lane < D) o[row * D + i * 16 + lane] = ELEMENT(end == 0 ? 0.0f : u[i] / l);
    if (lane == 0) lse[row] = m + logf(l);
}
