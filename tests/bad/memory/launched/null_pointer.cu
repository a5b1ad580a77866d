// An optional bias is not given, and the kernel does not test the pointer.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: scalar  bias : i64 = 0
// weft: launch  add(x, bias, o) grid(1) block(64)

extern "C" __global__ void add(const float* x, const float* bias, float* o) {
    const int t = threadIdx.x;
    float sum = x[t];
    if (BUG || bias != nullptr) sum += bias[t];  // finds M104 cta=0,0,0 warp=0 lanes=0xffffffff says=null
    o[t] = sum;
}
