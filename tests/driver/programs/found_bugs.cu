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

// A search between the 16 values 0 to 15. No comparison holds for a NaN, so it ends at 0, and the midpoint before 0 is read.
__device__ const float midpoint[15] = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f, 7.5f, 8.5f, 9.5f, 10.5f, 11.5f, 12.5f, 13.5f, 14.5f};
__global__ void search_of_nan(const float *x, float *index) {
    int low = 0, high = 15;
    if (*x <= 0 || *x >= 15) return;
    while (low < high) {
        int middle = (low + high) / 2;
        if (middle <= *x) low = middle + 1;
        else high = middle;
    }
    *index = midpoint[low - 1] < *x ? low : low - 1;  // the fifth bug
}

// Lanes read what other lanes of the warp wrote, and no barrier is between them.
__global__ void turned_without_barrier(float *y) {
    __shared__ float x[32];
    x[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = x[31 - threadIdx.x];  // the sixth bug
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
    OK(cudaMemset(x, 0xFF, sizeof *x));  // a NaN
    search_of_nan<<<1, 1>>>(x, sum);
    turned_without_barrier<<<1, 32>>>(x);
    OK(cudaDeviceSynchronize());
}
