// The mask of a vote in a branch has only lanes that did not take the branch.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    const int t = threadIdx.x, lane = t % 32;
    unsigned votes = 0;
    if (lane >= 8) votes = __ballot_sync(BUG ? 0x000000FFu : 0xFFFFFF00u, x[t] > 0.0f);  // finds S304 warp=0 lanes=0xffffff00
    o[t] = static_cast<float>(__popc(votes));
}
