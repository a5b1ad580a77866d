// Rows of a dynamic block belong to warps, but the column sums cross them.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64) shared(64 * 4)

extern "C" __global__ void kernel(const float* x, float* o) {
    extern __shared__ float block[];
    float (*const rows)[32] = reinterpret_cast<float (*)[32]>(block);
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    rows[warp][lane] = x[t];  // other
    if (BUG) __syncwarp(); else __syncthreads();
    o[t] = rows[0][lane] + rows[1][lane];  // finds R102 warp=1 lanes=0xffffffff
}
