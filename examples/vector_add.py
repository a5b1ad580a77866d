"""A CUDA kernel on NumPy arrays, without a GPU."""

import numpy as np

import weft

SOURCE = """
__global__ void add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""


def main() -> None:
    n = 1000
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, n)).astype(np.float32)
    c = np.full(n, np.nan, np.float32)

    binary = weft.compile_cuda(SOURCE, name="add.cu", entries=["add"])
    gpu = weft.VirtualGPU("sm_89")
    run = gpu.launch(binary, "add", grid=-(-n // 128), block=128, args=[a, b, c, n])

    assert run.clean, "\n".join(map(str, run.findings))
    assert np.array_equal(c, a + b)
    print(f"{n} sums, all equal to NumPy's; {run.instructions} warp instructions")


if __name__ == "__main__":
    main()
