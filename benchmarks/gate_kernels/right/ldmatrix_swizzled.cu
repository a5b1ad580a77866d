// ldmatrix from swizzled shared memory: the chunks of a row are permuted by XOR with its row number, so that no
// padding is needed; bf16 operands.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    CAUSAL = 0
// weft: require   D % 64 == 0 : whole rows of eight chunks
// weft: require   D <= 128
// weft: in        q    : bf16[B, HQ, SQ, D] = normal
// weft: in        k, v : bf16[B, HKV, SKV, D] = normal
// weft: out       o    : bf16[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    mma_shared<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 32), HQ, B) block(64)
#include <cuda_bf16.h>
#include <math_constants.h>

using T = __nv_bfloat16;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}

__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned smem(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }
#define LOAD(b0, b1, TRANS, from)                                                    \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" TRANS ".shared.b16 {%0, %1}, [%2];" \
                 : "=r"(b0), "=r"(b1) : "r"(smem(from)) : "memory")

// Chunk c of 8 columns of row r is at c ^ r % 8: eight rows of one chunk hit eight different groups of banks.
template <int D> __device__ T* place(T* tile, int r, int c) { return tile + r * D + (c ^ r % 8) * 8; }

template <int D>
__global__ void __launch_bounds__(64)
mma_shared(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    __shared__ alignas(16) T sK[16 * D], sV[16 * D];  // shared by two warps of 16 queries each
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, query_0 = blockIdx.x * 32;
    const int first_query = query_0 + threadIdx.x / 32 * 16;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    unsigned a[D / 16][4];
    for (int d = 0; d < D / 16; ++d)
        for (int i = 0; i < 4; ++i) {  // rows g, g + 8; columns 2t, 2t + 8
            const size_t row = q_head * SQ + min(first_query + g + i % 2 * 8, SQ - 1);
            a[d][i] = *reinterpret_cast<const unsigned*>(q + row * D + d * 16 + 2 * t + i / 2 * 8);
        }
    float u[D / 8][4] = {}, m[2] = {-CUDART_INF_F, -CUDART_INF_F}, l[2] = {};
    const int end = visible_keys(min(query_0 + 32, SQ) - 1, SQ, SKV);
    for (int first = 0; first < end; first += 16) {
        __syncthreads();  // the tile before was read
        for (int i = threadIdx.x; i < 16 * (D / 8); i += 64) {
            const int r = i / (D / 8), c = i % (D / 8);  // a key beyond the last is a copy of the last: its weight is 0
            const size_t from = (kv_head * SKV + min(first + r, SKV - 1)) * D + c * 8;
            *reinterpret_cast<uint4*>(place<D>(sK, r, c)) = *reinterpret_cast<const uint4*>(k + from);
            *reinterpret_cast<uint4*>(place<D>(sV, r, c)) = *reinterpret_cast<const uint4*>(v + from);
        }
        __syncthreads();
        float s[2][4] = {};
        unsigned b0, b1;
        for (int n = 0; n < 2; ++n)
            for (int d = 0; d < D / 16; ++d) {  // lanes 0-7 and 8-15 give the rows of two 8x8 matrices
                LOAD(b0, b1, "", place<D>(sK, n * 8 + lane % 8, d * 2 + lane / 8 % 2));
                mma(s[n], a[d], b0, b1);
            }
        for (int r = 0; r < 2; ++r) {  // rows g and g + 8 of the fragments; four lanes share a row
            const int visible = visible_keys(min(first_query + g + 8 * r, SQ - 1), SQ, SKV);
            float top = -CUDART_INF_F, sum = 0.0f;
            for (int n = 0; n < 4; ++n) {
                float& x = s[n / 2][2 * r + n % 2];
                x = first + n / 2 * 8 + 2 * t + n % 2 < visible ? x * scale : -CUDART_INF_F;
                top = fmaxf(top, x);
            }
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(m[r], fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2)));
            const float shift = top == -CUDART_INF_F ? 0.0f : top, rescale = expf(m[r] - shift);
            for (int n = 0; n < 4; ++n) sum += s[n / 2][2 * r + n % 2] = expf(s[n / 2][2 * r + n % 2] - shift);
            l[r] = l[r] * rescale + sum;  // of this lane's keys; the lanes meet at the end
            m[r] = top;
            for (int d = 0; d < D / 8; ++d) u[d][2 * r] *= rescale, u[d][2 * r + 1] *= rescale;
        }
        const unsigned p[4] = {pack(s[0][0], s[0][1]), pack(s[0][2], s[0][3]),
                               pack(s[1][0], s[1][1]), pack(s[1][2], s[1][3])};
        for (int d = 0; d < D / 8; ++d) {
            LOAD(b0, b1, ".trans", place<D>(sV, lane % 16, d));
            mma(u[d], p, b0, b1);
        }
    }
    for (int r = 0; r < 2; ++r) {
        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
        const int query = first_query + g + 8 * r;
        if (query >= SQ) continue;
        const float inverse = l[r] > 0.0f ? 1.0f / l[r] : 0.0f;
        unsigned* const out = reinterpret_cast<unsigned*>(o + (q_head * SQ + query) * D);
        for (int d = 0; d < D / 8; ++d) out[d * 4 + t] = pack(u[d][2 * r] * inverse, u[d][2 * r + 1] * inverse);
        if (t == 0) lse[q_head * SQ + query] = l[r] > 0.0f ? m[r] + logf(l[r]) : -CUDART_INF_F;
    }
}
