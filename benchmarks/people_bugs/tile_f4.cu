// Plain fp32 with shared tiles and float4 loads: 32 queries by 32 keys, 128 threads. K and then V use the same buffer;
// one thread per row does the softmax, and the running maximum and sum live in shared memory.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  CAUSAL = 0
// weft: require D % 32 == 0 : eight threads share a row of float4
// weft: require D <= 128
// weft: in      q    : f32[B, HQ, SQ, D] = normal
// weft: in      k, v : f32[B, HKV, SKV, D] = normal
// weft: out     o    : f32[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  softmax_scale : f32 = 1 / sqrt(D)
// weft: launch  tile_f4<{D}>(q, k, v, o, lse, HKV, SQ, SKV, softmax_scale) grid(cdiv(SQ, 32), HQ, B) block(128)
constexpr int TILE = 32;
constexpr int NUM_THREADS = 128;

__device__ __forceinline__ float dot4(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

__device__ __forceinline__ void scale4(float4& a, float f) { a.x *= f, a.y *= f, a.z *= f, a.w *= f; }

__device__ __forceinline__ void fma4(float4& a, float p, float4 v) {
    a.x += p * v.x, a.y += p * v.y, a.z += p * v.z, a.w += p * v.w;
}

template <int D>
__global__ void __launch_bounds__(NUM_THREADS)
tile_f4(const float* q, const float* k, const float* v, float* o, float* lse, int num_kv_heads, int len_q, int len_k,
        float softmax_scale) {
    constexpr int D4 = D / 4;       // float4 per row
    constexpr int CHUNKS = D4 / 8;  // of them, per thread in O
    __shared__ float4 s_q[TILE][D4 + 1];
    __shared__ float4 s_kv[TILE][D4 + 1];
    __shared__ float s_p[TILE][TILE + 1];
    __shared__ float row_max[TILE], row_sum[TILE], row_alpha[TILE];

    const int tid = threadIdx.x, ty = tid / 8, tx = tid % 8;
    const int q_start = blockIdx.x * TILE;
    const int q_head = blockIdx.z * gridDim.y + blockIdx.y;
    const int kv_head = blockIdx.z * num_kv_heads + blockIdx.y / (gridDim.y / num_kv_heads);
    const float4* q4 = reinterpret_cast<const float4*>(q) + (size_t)q_head * len_q * D4;
    const float4* k4 = reinterpret_cast<const float4*>(k) + (size_t)kv_head * len_k * D4;
    const float4* v4 = reinterpret_cast<const float4*>(v) + (size_t)kv_head * len_k * D4;
    const float4 zero = make_float4(0.f, 0.f, 0.f, 0.f);

    for (int i = tid; i < TILE * D4; i += NUM_THREADS) {
        const int r = i / D4, c = i % D4;
        s_q[r][c] = q_start + r < len_q ? q4[(size_t)(q_start + r) * D4 + c] : zero;
    }
    if (tid < TILE) {
        row_max[tid] = -INFINITY;
        row_sum[tid] = 0.f;
    }

    float4 acc0[CHUNKS], acc1[CHUNKS];
    for (int c = 0; c < CHUNKS; ++c) acc0[c] = acc1[c] = zero;

    for (int k_start = 0; k_start < len_k; k_start += TILE) {
        __syncthreads();
        for (int i = tid; i < TILE * D4; i += NUM_THREADS) {
            const int r = i / D4, c = i % D4;
            s_kv[r][c] = k_start + r < len_k ? k4[(size_t)(k_start + r) * D4 + c] : zero;
        }
        __syncthreads();

        for (int j = tx; j < TILE; j += 8) {
            float s0 = 0.f, s1 = 0.f;
            for (int c = 0; c < D4; ++c) {
                s0 += dot4(s_q[ty][c], s_kv[j][c]);
                s1 += dot4(s_q[ty + 16][c], s_kv[j][c]);
            }
            s_p[ty][j] = s0 * softmax_scale;
            s_p[ty + 16][j] = s1 * softmax_scale;
        }
        __syncthreads();

        for (int i = tid; i < TILE * D4; i += NUM_THREADS) {
            const int r = i / D4, c = i % D4;
            s_kv[r][c] = k_start + r < len_k ? v4[(size_t)(k_start + r) * D4 + c] : zero;
        }
        if (tid < TILE) {
            const int row = q_start + tid;
            int limit = len_k;
            if (CAUSAL == 1) limit = min(len_k, row + 1);
            if (CAUSAL == 2) limit = min(len_k, row + 1 + len_k - len_q);
            float new_max = row_max[tid];
            for (int j = 0; j < TILE; ++j) {
                if (k_start + j >= limit) s_p[tid][j] = -INFINITY;
                new_max = fmaxf(new_max, s_p[tid][j]);
            }
            const float shift = new_max == -INFINITY ? 0.f : new_max;
            const float alpha = expf(row_max[tid] - shift);
            float tile_sum = 0.f;
            for (int j = 0; j < TILE; ++j) {
                s_p[tid][j] = expf(s_p[tid][j] - shift);
                tile_sum += s_p[tid][j];
            }
            row_sum[tid] = row_sum[tid] * alpha + tile_sum;
            row_max[tid] = new_max;
            row_alpha[tid] = alpha;
        }
        __syncthreads();

        const float alpha0 = row_alpha[ty], alpha1 = row_alpha[ty + 16];
        for (int c = 0; c < CHUNKS; ++c) {
            scale4(acc0[c], alpha0);
            scale4(acc1[c], alpha1);
        }
        for (int j = 0; j < TILE; ++j) {
            const float p0 = s_p[ty][j], p1 = s_p[ty + 16][j];
            for (int c = 0; c < CHUNKS; ++c) {
                fma4(acc0[c], p0, s_kv[j][tx + 8 * c]);
                fma4(acc1[c], p1, s_kv[j][tx + 8 * c]);
            }
        }
    }

    float4* o4 = reinterpret_cast<float4*>(o) + (size_t)q_head * len_q * D4;
    const float inv0 = row_sum[ty] > 0.f ? 1.f / row_sum[ty] : 0.f;
    const float inv1 = row_sum[ty + 16] > 0.f ? 1.f / row_sum[ty + 16] : 0.f;
    for (int c = 0; c < CHUNKS; ++c) {
        scale4(acc0[c], inv0);
        scale4(acc1[c], inv1);
        if (q_start + ty < len_q) o4[(size_t)(q_start + ty) * D4 + tx + 8 * c] = acc0[c];
        if (q_start + ty + 16 < len_q) o4[(size_t)(q_start + ty + 16) * D4 + tx + 8 * c] = acc1[c];
    }
    if (tid < TILE && q_start + tid < len_q)
        lse[(size_t)q_head * len_q + q_start + tid] = row_sum[tid] > 0.f ? row_max[tid] + logf(row_sum[tid]) : -INFINITY;
}
