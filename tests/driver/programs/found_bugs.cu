// Patterns of bugs that `weft exec` found in public programs (docs/found_bugs.md), each in a few lines.
#include "check.cuh"

// A tree over 32 values in a block of 8 threads with shared memory for 16: x[tid + 16] is behind its end.
__global__ void small_block(float *sum) {
    extern __shared__ float x[];
    unsigned t = threadIdx.x;
    x[t] = 1.0f;
    x[t + blockDim.x] = 0.0f;
    __syncthreads();
    for (unsigned step = 16; step > 0; step /= 2) {
        if (t < step) x[t] += x[t + step];  // the first bug
        __syncthreads();
    }
    if (t == 0) *sum = x[0];
}

// Each lane asks for the votes of the lanes below it, and is not in the mask itself.
__global__ void votes_below(unsigned *count) {
    unsigned lane = threadIdx.x, below = (1u << lane) - 1;
    count[lane] = __popc(__ballot_sync(below, lane % 2 == 0));  // the second bug
}

// The guard lets one thread too many through: i == n.
__global__ void guard_too_wide(float *x, int n) {
    int i = threadIdx.x;
    if (i > n) return;
    x[i] = i;  // the third bug
}

// A tile of 32 columns in a matrix of 16: from column 16 on, the columns are those of the next row, and the last row leaves it.
__global__ void tile_too_wide(float *x, int columns) {
    int row = threadIdx.y, column = threadIdx.x;
    x[row * columns + column] = row;  // the fourth bug
}

int main() {
    float *x;
    OK(cudaMalloc(&x, 16 * 16 * sizeof *x));
    float *sum;
    unsigned *count;
    OK(cudaMalloc(&sum, sizeof *sum));
    OK(cudaMalloc(&count, 32 * sizeof *count));
    small_block<<<1, 8, 16 * sizeof(float)>>>(sum);
    votes_below<<<1, 32>>>(count);
    guard_too_wide<<<1, 512>>>(x, 16 * 16);
    tile_too_wide<<<1, dim3(32, 16)>>>(x, 16);
    OK(cudaDeviceSynchronize());
}
