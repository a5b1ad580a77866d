// Tile 1 of a tile of 16 rows: the index skips the red zone; on hardware it would be in the middle of the next array.
// weft: define  BUG = 1
// weft: in      x : f32[32, 32] = normal
// weft: out     o : f32[32]
// weft: launch  columns(x, o) grid(1) block(32)

extern "C" __global__ void columns(const float* x, float* o) {
    __shared__ float k_tile[16][32], v_tile[16][32];
    const int t = threadIdx.x;
    for (int r = 0; r < 16; ++r) {
        k_tile[r][t] = x[r * 32 + t];
        v_tile[r][t] = x[(16 + r) * 32 + t];
    }
    __syncthreads();
    const int row = BUG ? 16 + t / 4 : t / 4;
    o[t] = v_tile[15 - t / 2][t] * k_tile[row][(t * 7) & 31];  // finds M101 name=k_tile cta=0,0,0 warp=0 lanes=0xffffffff
}
