// Tensor cores by mma.sync m16n8k16, four warps of 16 query rows, 32 keys at a time. Q is scaled while its fragments are
// loaded (for D = 64 the scale is 1/8, which bf16 holds exactly), K and V are copied as uint4 into padded shared rows.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  CAUSAL = 0
// weft: require D == 64 : the scale must be a power of two
// weft: in      Q    : bf16[B, HQ, SQ, D] = normal
// weft: in      K, V : bf16[B, HKV, SKV, D] = normal
// weft: out     O    : bf16[B, HQ, SQ, D]
// weft: out     LSE  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  mma_q_scaled(Q, K, V, O, LSE, HQ, HKV, SQ, SKV, scale) grid(cdiv(SQ, 64), B * HQ) block(128)
#include <cuda_bf16.h>
#include <stdint.h>

#define BM 64
#define BN 32
#define HD 64
#define LD (HD + 8)

typedef __nv_bfloat16 bf16;
typedef __nv_bfloat162 bf162;

__device__ __forceinline__ void mma16816(float* d, const uint32_t* a, const uint32_t* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t* r, const bf16* p) {
    const uint32_t addr = (uint32_t)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];\n" : "=r"(r[0]), "=r"(r[1]) : "r"(addr));
}

__device__ __forceinline__ uint32_t pack_bf162(float x, float y) {
    bf162 h = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<uint32_t*>(&h);
}

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

__device__ __forceinline__ uint32_t load_q(const bf16* Qh, int row, int col, int Nq, bf162 scale2) {
    bf162 x = __float2bfloat162_rn(0.f);
    if (row < Nq) x = *reinterpret_cast<const bf162*>(Qh + (size_t)row * HD + col);
    x = __hmul2(x, scale2);
    return *reinterpret_cast<uint32_t*>(&x);
}

__device__ __forceinline__ void store_row(bf16* Oh, int row, int Nq, int tig, float inv, const float (*o)[4], int e) {
    if (row >= Nq) return;
    for (int j = 0; j < HD / 8; ++j)
        *reinterpret_cast<uint32_t*>(Oh + (size_t)row * HD + j * 8 + tig * 2) = pack_bf162(o[j][e] * inv, o[j][e + 1] * inv);
}

extern "C" __global__ void __launch_bounds__(128)
mma_q_scaled(const bf16* Q, const bf16* K, const bf16* V, bf16* O, float* LSE, int Hq, int Hkv, int Nq, int Nk,
             float scale) {
    __shared__ __align__(16) bf16 Ks[BN * LD];
    __shared__ __align__(16) bf16 Vs[BN * LD];

    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int gid = lane / 4, tig = lane % 4;
    const int bh = blockIdx.y, b = bh / Hq, h = bh % Hq;
    const bf16* Qh = Q + (size_t)bh * Nq * HD;
    bf16* Oh = O + (size_t)bh * Nq * HD;
    const size_t kv_offset = (size_t)(b * Hkv + h / (Hq / Hkv)) * Nk * HD;
    const bf16* Kh = K + kv_offset;
    const bf16* Vh = V + kv_offset;

    const int row0 = blockIdx.x * BM + warp * 16 + gid;
    const int row1 = row0 + 8;

    const bf162 scale2 = __float2bfloat162_rn(scale);
    uint32_t qa[HD / 16][4];
    for (int kk = 0; kk < HD / 16; ++kk) {
        const int col = kk * 16 + tig * 2;
        qa[kk][0] = load_q(Qh, row0, col, Nq, scale2);
        qa[kk][1] = load_q(Qh, row1, col, Nq, scale2);
        qa[kk][2] = load_q(Qh, row0, col + 8, Nq, scale2);
        qa[kk][3] = load_q(Qh, row1, col + 8, Nq, scale2);
    }

    float o[HD / 8][4] = {};
    float m0 = -INFINITY, m1 = -INFINITY, l0 = 0.f, l1 = 0.f;

    const int last_row = min((int)blockIdx.x * BM + BM, Nq) - 1;
    int n_end = Nk;
    if (CAUSAL == 1) n_end = min(Nk, last_row + 1);
    if (CAUSAL == 2) n_end = min(Nk, last_row + Nk - Nq + 1);

    for (int n0 = 0; n0 < n_end; n0 += BN) {
        for (int i = tid; i < BN * HD / 8; i += blockDim.x) {
            const int r = i / (HD / 8), c = i % (HD / 8) * 8;
            uint4 kx = make_uint4(0, 0, 0, 0), vx = make_uint4(0, 0, 0, 0);
            if (n0 + r < Nk) {
                kx = *reinterpret_cast<const uint4*>(Kh + (size_t)(n0 + r) * HD + c);
                vx = *reinterpret_cast<const uint4*>(Vh + (size_t)(n0 + r) * HD + c);
            }
            *reinterpret_cast<uint4*>(Ks + r * LD + c) = kx;
            *reinterpret_cast<uint4*>(Vs + r * LD + c) = vx;
        }
        __syncthreads();

        float s[BN / 8][4] = {};
        for (int nn = 0; nn < BN / 8; ++nn) {
            for (int kk = 0; kk < HD / 16; ++kk) {
                const bf16* kp = Ks + (nn * 8 + gid) * LD + kk * 16 + tig * 2;
                const uint32_t kb[2] = {*reinterpret_cast<const uint32_t*>(kp), *reinterpret_cast<const uint32_t*>(kp + 8)};
                mma16816(s[nn], qa[kk], kb);
            }
        }

        for (int nn = 0; nn < BN / 8; ++nn) {
            for (int e = 0; e < 4; ++e) {
                const int col = n0 + nn * 8 + tig * 2 + (e & 1);
                const int row = e < 2 ? row0 : row1;
                bool hidden = col >= Nk;
                if (CAUSAL == 1) hidden |= col > row;
                if (CAUSAL == 2) hidden |= col > row + Nk - Nq;
                if (hidden) s[nn][e] = -INFINITY;
            }
        }

        float mx0 = m0, mx1 = m1;
        for (int nn = 0; nn < BN / 8; ++nn) {
            mx0 = fmaxf(mx0, fmaxf(s[nn][0], s[nn][1]));
            mx1 = fmaxf(mx1, fmaxf(s[nn][2], s[nn][3]));
        }
        mx0 = quad_max(mx0);
        mx1 = quad_max(mx1);
        const float ref0 = mx0 == -INFINITY ? 0.f : mx0;
        const float ref1 = mx1 == -INFINITY ? 0.f : mx1;
        const float alpha0 = expf(m0 - ref0);
        const float alpha1 = expf(m1 - ref1);
        m0 = mx0;
        m1 = mx1;

        float sum0 = 0.f, sum1 = 0.f;
        for (int nn = 0; nn < BN / 8; ++nn) {
            s[nn][0] = expf(s[nn][0] - ref0);
            s[nn][1] = expf(s[nn][1] - ref0);
            s[nn][2] = expf(s[nn][2] - ref1);
            s[nn][3] = expf(s[nn][3] - ref1);
            sum0 += s[nn][0] + s[nn][1];
            sum1 += s[nn][2] + s[nn][3];
        }
        l0 = l0 * alpha0 + sum0;
        l1 = l1 * alpha1 + sum1;

        for (int j = 0; j < HD / 8; ++j) {
            o[j][0] *= alpha0;
            o[j][1] *= alpha0;
            o[j][2] *= alpha1;
            o[j][3] *= alpha1;
        }
        for (int kk = 0; kk < BN / 16; ++kk) {
            uint32_t pa[4];
            pa[0] = pack_bf162(s[2 * kk][0], s[2 * kk][1]);
            pa[1] = pack_bf162(s[2 * kk][2], s[2 * kk][3]);
            pa[2] = pack_bf162(s[2 * kk + 1][0], s[2 * kk + 1][1]);
            pa[3] = pack_bf162(s[2 * kk + 1][2], s[2 * kk + 1][3]);
            for (int j = 0; j < HD / 8; ++j) {
                uint32_t vb[2];
                ldmatrix_x2_trans(vb, Vs + (kk * 16 + lane % 16) * LD + j * 8);
                mma16816(o[j], pa, vb);
            }
        }
        __syncthreads();
    }

    l0 = quad_sum(l0);
    l1 = quad_sum(l1);
    store_row(Oh, row0, Nq, tig, l0 > 0.f ? 1.f / l0 : 0.f, o, 0);
    store_row(Oh, row1, Nq, tig, l1 > 0.f ? 1.f / l1 : 0.f, o, 2);
    if (tig == 0 && row0 < Nq) LSE[(size_t)bh * Nq + row0] = l0 > 0.f ? m0 + logf(l0) : -INFINITY;
    if (tig == 0 && row1 < Nq) LSE[(size_t)bh * Nq + row1] = l1 > 0.f ? m1 + logf(l1) : -INFINITY;
}
