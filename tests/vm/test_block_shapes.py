"""Every assumption of the compiler about a warp's threads must be true for the block shape."""

import numpy as np
import pytest

import weft

SOURCE = """
extern "C" __global__ void rows(int* out) {
    const int x = threadIdx.x;
    int value = x / 32 * 1000 + (x & ~31);
    if (x < 32) value += 7;
    if (x > 63) value += 100000;
    for (int i = x / 32; i < 3; ++i) value += i;
    const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + x;
    out[thread] = value;
}
"""
SHAPES = [(128, 1, 1), (64, 4, 1), (16, 4, 1), (48, 2, 2), (33, 3, 1), (1, 70, 1), (100, 1, 1), (8, 8, 8)]


@pytest.mark.parametrize("block", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_rows_of_threads(block: tuple[int, int, int]) -> None:
    x = np.tile(np.arange(block[0]), block[1] * block[2])
    expected = x // 32 * 1000 + x // 32 * 32 + 7 * (x < 32) + 100000 * (x > 63)
    expected += np.array([sum(range(first, 3)) for first in x // 32])
    out = np.full(len(x), -1, np.int32)
    binary = weft.compile_cuda(SOURCE, name="rows.cu")
    run = weft.VirtualGPU().launch(binary, "rows", 1, block, [out])
    assert run.clean
    np.testing.assert_array_equal(out, expected)
