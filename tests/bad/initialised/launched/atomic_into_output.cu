// A sum by atomics into an output that the bad sequence does not clear first.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[1]
// weft: launch  clear(o) grid(1) block(1)
// weft: launch  sum(x, o) grid(2) block(32)

extern "C" __global__ void clear(float* o) {
    if (!BUG) o[0] = 0.0f;
}

extern "C" __global__ void sum(const float* x, float* o) {
    atomicAdd(o, x[blockIdx.x * 32 + threadIdx.x]);  // finds I202 name=o warp=0
}
