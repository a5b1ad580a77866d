// One kernel writes two floats of every four; the next loads all four at once, and the bad kernel uses the fourth.
// weft: define    BUG = 1
// weft: in        x : f32[32] = normal
// weft: workspace ws : f32[32, 4]
// weft: out       o : f32[32]
// weft: launch    fill(x, ws) grid(1) block(32)
// weft: launch    use(ws, o) grid(1) block(32)

extern "C" __global__ void fill(const float* x, float2* ws) {
    ws[2 * threadIdx.x] = make_float2(x[threadIdx.x], 1.0f);
}

extern "C" __global__ void use(const float4* ws, float* o) {
    const float4 v = ws[threadIdx.x];  // finds I202 name=ws warp=0 lanes=0xffffffff
    o[threadIdx.x] = v.x + (BUG ? v.w : v.y);
}
