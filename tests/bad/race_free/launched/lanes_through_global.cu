// Lanes of a warp exchange bytes through global memory and rely on running in lockstep.
// weft: define  BUG = 1
// weft: in      x : u8[96] = uniform(0, 9)
// weft: inout   row : u8[96] = zeros
// weft: out     o : i32[96]
// weft: launch  kernel(x, row, o) grid(3) block(32)

extern "C" __global__ void kernel(const unsigned char* x, unsigned char* row, int* o) {
    const int t = threadIdx.x, first = 32 * blockIdx.x;
    row[first + t] = x[first + t] + 1;  // other
    if (!BUG) __syncwarp();
    o[first + t] = row[first + (t ^ 1)];  // finds R102 warp=0 lanes=0xffffffff
}
