// Four floats at a time over 1002 floats: the last vector has two floats too many. Vector 250 belongs to warp 7 lane 26.
// weft: define  BUG = 1
// weft: in      x : f32[1002] = normal
// weft: out     y : f32[1002]
// weft: launch  copy(x, y, 1002) grid(1) block(256)

extern "C" __global__ void copy(const float* x, float* y, int n) {
    const int at = 4 * threadIdx.x;
    if (BUG ? at < n : at + 4 <= n) {
        *reinterpret_cast<float4*>(y + at) = *reinterpret_cast<const float4*>(x + at);  // finds M101 name=x cta=0,0,0 warp=7 lanes=0x4000000 says=across
    } else {
        for (int i = at; i < n; ++i) y[i] = x[i];
    }
}
