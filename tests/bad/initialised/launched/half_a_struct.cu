// A struct with one member unset is copied, which is no error; the bad kernel uses the member.
// weft: define  BUG = 1
// weft: in      x : f32[32] = normal
// weft: out     o : f32[32]
// weft: launch  use(x, o) grid(1) block(32)

struct State { float m, l, u[4]; };

__device__ __noinline__ float finish(const State* states, int which, int i) {
    return states[which].u[i] / states[which].l;  // finds I203 warp=0 lanes=0x88888888 debug=states
}

extern "C" __global__ void use(const float* x, float* o) {
    State states[2];
    const int t = threadIdx.x;
    states[0].l = 2.0f;
    for (int i = 0; i < (BUG ? 3 : 4); ++i) states[0].u[i] = x[(t + i) & 31];
    states[1] = states[0];
    o[t] = finish(states, x[t] > 9.0f, t % 4);
}
