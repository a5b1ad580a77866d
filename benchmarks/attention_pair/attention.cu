// The attention pair: O = softmax(Q Kᵀ / √128) V; the kernels differ only in the address of a chunk in shared memory.
//
// SWIZZLE 0 (kernel 1)  Rows of 256 bytes one after the other: the eight rows of an ldmatrix phase begin in the same
//                       bank, so a phase takes eight wavefronts instead of one.
// SWIZZLE 1 (kernel 2)  Chunk c of row r is at c ⊕ (r mod 8): the eight rows use all 32 banks once.
//
// Tiling of the published series: 64 queries and 64 keys per tile, four warps of 16 queries, mma.m16n8k16 on f16 with
// f32 sums, ldmatrix.x4, cp.async of 16 bytes. Nothing is overlapped within a CTA: it waits for K before S = Q Kᵀ, and
// copies V only after the softmax. The scores are scaled by a separate multiplication. S and P stay in registers,
// O is stored through shared memory.
//
// weft: sizes     B=1 H=2 S=128
// weft: define    SWIZZLE = 0
// weft: option    -use_fast_math
// weft: in        q, k, v : f16[B, S, H, 128] = normal
// weft: out       o : f16[B, S, H, 128]
// weft: scalar    scale : f32 = 1 / sqrt(128)
// weft: launch    attention(q, k, v, o, S, scale) grid(S // 64, H, B) block(128) shared(3 * 64 * 256)
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr int TILE = 64, D = 128, WARPS = 4, CHUNK = 8, CHUNKS = D / CHUNK;
constexpr float LOG2_E = 1.4426950408889634f;

__device__ __forceinline__ int place(int row, int chunk) {
    return row * D + (SWIZZLE ? chunk ^ row % 8 : chunk) * CHUNK;
}

__device__ __forceinline__ unsigned in_shared(const half* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// The 16 rows that this warp copies into a tile, four rows of 128 bytes at a time.
__device__ __forceinline__ void copy_rows(half* tile, const half* head, size_t stride, int warp, int lane) {
#pragma unroll
    for (int part = 0; part < 8; ++part) {
        const int row = warp * 16 + part / 2 * 4 + lane / 8, chunk = part % 2 * 8 + lane % 8;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(in_shared(tile + place(row, chunk))),
                     "l"(head + row * stride + chunk * CHUNK)
                     : "memory");
    }
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

__device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_group 0;\n" ::: "memory"); }

__device__ __forceinline__ void load(unsigned (&r)[4], const half* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(in_shared(row)));
}

__device__ __forceinline__ void load_transposed(unsigned (&r)[4], const half* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(in_shared(row)));
}

__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    const half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}

__global__ void __launch_bounds__(32 * WARPS)
    attention(const half* q, const half* k, const half* v, half* o, int S, float scale) {
    extern __shared__ __align__(128) half tiles[];
    half *const sq = tiles, *const sk = sq + TILE * D, *const sv = sk + TILE * D;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = lane / 4, member = lane % 4;  // lane's rows group and group + 8, columns 2 · member + {0, 1}
    const size_t stride = size_t(gridDim.y) * D;
    const size_t head = blockIdx.z * S * stride + blockIdx.y * D, first = head + blockIdx.x * TILE * stride;

    copy_rows(sq, q + first, stride, warp, lane);
    await_copies();
    __syncwarp();  // a warp reads only the rows of Q that it copied
    unsigned q_part[D / 16][4];
#pragma unroll
    for (int d = 0; d < D / 16; ++d) load(q_part[d], sq + place(warp * 16 + lane % 16, 2 * d + lane / 16));

    float u[D / 8][4] = {}, m[2] = {-CUDART_INF_F, -CUDART_INF_F}, l[2] = {};
    for (int key = 0; key < S; key += TILE) {
        copy_rows(sk, k + head + key * stride, stride, warp, lane);
        await_copies();
        __syncthreads();
        float s[TILE / 8][4] = {};
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
#pragma unroll
            for (int n = 0; n < TILE / 16; ++n) {
                unsigned part[4];
                load(part, sk + place(n * 16 + lane / 16 * 8 + lane % 8, 2 * d + lane / 8 % 2));
                multiply(s[2 * n], q_part[d], part[0], part[1]);
                multiply(s[2 * n + 1], q_part[d], part[2], part[3]);
            }
        }
        __syncthreads();

#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float highest = m[i];
#pragma unroll
            for (int n = 0; n < TILE / 8; ++n) {
                s[n][2 * i] = __fmul_rn(s[n][2 * i], scale);
                s[n][2 * i + 1] = __fmul_rn(s[n][2 * i + 1], scale);
                highest = fmaxf(highest, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
            }
            highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
            highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
            const float rescale = exp2f((m[i] - highest) * LOG2_E);
            m[i] = highest;
            l[i] *= rescale;
#pragma unroll
            for (int d = 0; d < D / 8; ++d) {
                u[d][2 * i] *= rescale;
                u[d][2 * i + 1] *= rescale;
            }
#pragma unroll
            for (int n = 0; n < TILE / 8; ++n) {
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; ++e) {
                    s[n][e] = exp2f((s[n][e] - highest) * LOG2_E);
                    l[i] += s[n][e];
                }
            }
        }

        copy_rows(sv, v + head + key * stride, stride, warp, lane);
        await_copies();
        __syncthreads();
#pragma unroll
        for (int n = 0; n < TILE / 16; ++n) {
            const unsigned p[4] = {pack(s[2 * n][0], s[2 * n][1]), pack(s[2 * n][2], s[2 * n][3]),
                                   pack(s[2 * n + 1][0], s[2 * n + 1][1]), pack(s[2 * n + 1][2], s[2 * n + 1][3])};
#pragma unroll
            for (int d = 0; d < D / 16; ++d) {
                unsigned part[4];
                load_transposed(part, sv + place(n * 16 + lane % 16, 2 * d + lane / 16));
                multiply(u[2 * d], p, part[0], part[1]);
                multiply(u[2 * d + 1], p, part[2], part[3]);
            }
        }
    }

    // A warp's rows of O take the place of its rows of Q and leave from there in whole chunks.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        l[i] += __shfl_xor_sync(0xffffffffu, l[i], 2);
        l[i] += __shfl_xor_sync(0xffffffffu, l[i], 1);
        const float inverse = 1.0f / l[i];
#pragma unroll
        for (int d = 0; d < CHUNKS; ++d)
            *reinterpret_cast<unsigned*>(sq + place(warp * 16 + group + 8 * i, d) + 2 * member) =
                pack(u[d][2 * i] * inverse, u[d][2 * i + 1] * inverse);
    }
    __syncwarp();
#pragma unroll
    for (int part = 0; part < 8; ++part) {
        const int row = warp * 16 + part / 2 * 4 + lane / 8, chunk = part % 2 * 8 + lane % 8;
        *reinterpret_cast<uint4*>(o + first + row * stride + chunk * CHUNK) =
            *reinterpret_cast<const uint4*>(sq + place(row, chunk));
    }
}
