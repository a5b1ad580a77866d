// cp.async brings a workspace to shared memory; the bad kernel's last 8 floats were never written.
// weft: define    BUG = 1
// weft: in        x : f32[128] = normal
// weft: workspace ws : f32[128]
// weft: out       o : f32[32]
// weft: launch    fill(x, ws) grid(1) block(128)
// weft: launch    use(ws, o) grid(1) block(32)

extern "C" __global__ void fill(const float* x, float* ws) {
    if (threadIdx.x < (BUG ? 120 : 128)) ws[threadIdx.x] = x[threadIdx.x];
}

extern "C" __global__ void use(const float* ws, float* o) {
    __shared__ __align__(16) float tile[128];
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(tile + 4 * threadIdx.x));
    const float* from = ws + 4 * threadIdx.x;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from));  // finds I202 name=ws warp=0 lanes=0xc0000000
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    o[threadIdx.x] = tile[4 * threadIdx.x] + tile[4 * ((threadIdx.x + 1) & 31) + 3];
}
