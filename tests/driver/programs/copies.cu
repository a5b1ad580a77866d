// Copies and memsets of one, two and three dimensions.
#include <cstring>
#include <vector>

#include "check.cuh"

static void two_dimensions() {
    const size_t width = 30, height = 7;
    char *rows;
    size_t pitch;
    OK(cudaMallocPitch(&rows, &pitch, width, height));
    REQUIRE(pitch >= width && pitch % 256 == 0);
    std::vector<char> source(width * height), target(width * height);
    for (size_t i = 0; i < source.size(); i++) source[i] = static_cast<char>(i * 7);
    OK(cudaMemcpy2D(rows, pitch, source.data(), width, width, height, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(target.data(), width, rows, pitch, width, height, cudaMemcpyDeviceToHost));
    REQUIRE(source == target);
    OK(cudaMemset2D(rows + 3, pitch, 9, 5, 2));
    OK(cudaMemcpy2DAsync(target.data(), width, rows, pitch, width, height, cudaMemcpyDefault, 0));
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++) {
            bool inside = y < 2 && x >= 3 && x < 8;
            REQUIRE(target[y * width + x] == (inside ? 9 : source[y * width + x]));
        }
    REQUIRE(cudaMemcpy2D(rows, width - 1, source.data(), width, width, height, cudaMemcpyHostToDevice) == cudaErrorInvalidPitchValue);
    OK(cudaFree(rows));
}

static void three_dimensions() {
    const int w = 5, h = 4, d = 3;
    int source[d][h][w], target[d][h][w];
    for (int i = 0; i < w * h * d; i++) (&source[0][0][0])[i] = i;
    cudaExtent extent = make_cudaExtent(w * sizeof(int), h, d);
    cudaPitchedPtr box;
    OK(cudaMalloc3D(&box, extent));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(source, w * sizeof(int), w, h);
    copy.dstPtr = box;
    copy.extent = extent;
    copy.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&copy));
    OK(cudaMemset3D(make_cudaPitchedPtr((char *)box.ptr + box.pitch * h, box.pitch, w, h), 0xFF, make_cudaExtent(8, 1, 1)));
    copy = {};
    copy.srcPtr = box;
    copy.dstPtr = make_cudaPitchedPtr(target, w * sizeof(int), w, h);
    copy.extent = extent;
    copy.kind = cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3D(&copy));
    for (int z = 0; z < d; z++)
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++) REQUIRE(target[z][y][x] == (z == 1 && y == 0 && x < 2 ? -1 : source[z][y][x]));
    std::memset(target, 0, sizeof target);
    copy.srcPos = make_cudaPos(sizeof(int), 2, 1);
    copy.extent = make_cudaExtent(2 * sizeof(int), 2, 2);
    OK(cudaMemcpy3D(&copy));
    REQUIRE(target[0][0][0] == source[1][2][1] && target[1][1][1] == source[2][3][2] && target[0][0][2] == 0 && target[2][0][0] == 0);
    OK(cudaFree(box.ptr));
}

static void one_dimension() {
    unsigned char *x, host[100];
    OK(cudaMalloc(&x, 100));
    OK(cudaMemset(x, 0x1A5, 100));
    OK(cudaMemcpy(x + 50, x, 25, cudaMemcpyDeviceToDevice));
    OK(cudaMemsetAsync(x, 1, 10, 0));
    OK(cudaMemcpyAsync(host, x, 100, cudaMemcpyDeviceToHost, 0));
    for (int i = 0; i < 100; i++) REQUIRE(host[i] == (i < 10 ? 1 : 0xA5));
    REQUIRE(cudaMemset(x + 90, 0, 11) == cudaErrorInvalidValue);
    REQUIRE(cudaMemcpy(host, x + 50, 51, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    void *nothing = &x;
    OK(cudaMalloc(&nothing, 0));
    REQUIRE(nothing == nullptr);
    OK(cudaFree(nullptr));
    OK(cudaFree(x));
}

int main() {
    one_dimension();
    two_dimensions();
    three_dimensions();
    std::puts("ok");
}
