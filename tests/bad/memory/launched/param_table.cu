// Weights passed by value in a struct of 8; the index goes up to 8, past the end of the parameters.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  weigh(x, o, {1.0, 0.5, 0.25, 0.125, 0.0625, 0.0, 0.0, 0.0}) grid(1) block(64)

struct Weights { float at[8]; };

extern "C" __global__ void weigh(const float* x, float* o, const __grid_constant__ Weights weights) {
    const int t = threadIdx.x;
    o[t] = x[t] * weights.at[BUG ? t % 9 : t % 8];  // finds M101 cta=0,0,0 warp=0 lanes=0x4020100 says=parameters
}
