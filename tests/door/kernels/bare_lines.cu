// weft: sizes   B=1 H=2 N=64 D=64
// weft: in      q : f32[B, H, N, D] = normal
// weft: in      k : f32[B, H, N, D] = normal
// weft: in      v : f32[B, H, N, D] = normal
// weft: out     o : f32[B, H, N, D]
// weft: launch  attention(q, k, v, o, N, D, 1 / sqrt(D)) grid(N, B * H) block(32)
// One warp, one query: lanes share the keys, then their states are merged. A user's kernel of thirty lines.
extern "C" __global__ void attention(const float* q, const float* k, const float* v, float* o, int n, int d, float scale) {
    const int row = blockIdx.x, lane = threadIdx.x;
    const size_t base = (size_t)blockIdx.y * n * d;
    float m = -INFINITY, l = 0.f, acc[128];
    for (int x = 0; x < d; x++) acc[x] = 0.f;
    for (int j = lane; j < n; j += 32) {
        float s = 0.f;
        for (int x = 0; x < d; x++) s += q[base + (size_t)row * d + x] * k[base + (size_t)j * d + x];
        s *= scale;
        const float m_new = fmaxf(m, s), f = expf(m - m_new), p = expf(s - m_new);
        l = l * f + p;
        for (int x = 0; x < d; x++) acc[x] = acc[x] * f + p * v[base + (size_t)j * d + x];
        m = m_new;
    }
    float top = m;
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    const float weight = m == -INFINITY ? 0.f : expf(m - top);
    float sum = l * weight;
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    for (int x = 0; x < d; x++) {
        float total = acc[x] * weight;
        for (int step = 16; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
        if (lane == 0) o[base + (size_t)row * d + x] = total / sum;
    }
}
