// Rows of 4 floats are 5 apart. Entire rows are copied to shared memory, padding included; only the bad kernel uses it.
// weft: define    BUG = 1
// weft: in        x : f32[32, 4] = normal
// weft: workspace ws : f32[32, 5]
// weft: out       o : f32[32]
// weft: launch    fill(x, ws) grid(1) block(32)
// weft: launch    use(ws, o) grid(1) block(32)

extern "C" __global__ void fill(const float* x, float* ws) {
    for (int c = 0; c < 4; ++c) ws[5 * threadIdx.x + c] = x[4 * threadIdx.x + c];
}

extern "C" __global__ void use(const float* ws, float* o) {
    __shared__ float rows[160];
    for (int i = threadIdx.x; i < 160; i += 32) rows[i] = ws[i];  // finds I202 name=ws warp=0
    __syncthreads();
    float sum = 0.0f;
    for (int c = 0; c < (BUG ? 5 : 4); ++c) sum += rows[5 * threadIdx.x + c];
    o[threadIdx.x] = sum;
}
