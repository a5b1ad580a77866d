"""Triton through its own CudaDriver, without torch: an elementwise kernel and a `tl.dot`, and their register counts."""

import numpy as np
import triton
import triton.language as tl
from cuda.bindings import driver
from triton.runtime.driver import driver as triton_driver


@triton.jit
def scale_add(x, y, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, factor * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def product(a, b, c, SIZE: tl.constexpr):
    row, column = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    at = row * SIZE + column
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


class Array:
    """Device memory as Triton reads it: an address and a type."""

    def __init__(self, values: np.ndarray, dtype: str) -> None:
        self.like, self.dtype = values, dtype
        result, self.address = driver.cuMemAlloc(values.nbytes)
        assert result == 0
        assert driver.cuMemcpyHtoD(self.address, values.ctypes.data, values.nbytes)[0] == 0

    def data_ptr(self) -> int:
        return int(self.address)

    def read(self) -> np.ndarray:
        host = np.empty_like(self.like)
        assert driver.cuMemcpyDtoH(host.ctypes.data, self.address, host.nbytes)[0] == 0
        return host


print(type(triton_driver.active).__name__, triton_driver.active.get_current_target().arch)
random = np.random.default_rng(1)
x, y = random.integers(-100, 101, (2, 1000)).astype(np.float32)
out = Array(np.zeros_like(x), "float32")
compiled = scale_add[(4,)](Array(x, "float32"), Array(y, "float32"), out, x.size, 3.0, BLOCK=256)
np.testing.assert_array_equal(out.read(), 3 * x + y)
print("elementwise", compiled.n_regs > 0, compiled.n_spills)

a, b = random.integers(-4, 5, (2, 32, 32)).astype(np.float16)
c = Array(np.zeros((32, 32), np.float32), "float32")
compiled = product[(1,)](Array(a, "float16"), Array(b, "float16"), c, SIZE=32)
np.testing.assert_array_equal(c.read(), a.astype(np.float32) @ b.astype(np.float32))
print("dot", compiled.n_regs > 0, "mma" in compiled.asm["ptx"])
