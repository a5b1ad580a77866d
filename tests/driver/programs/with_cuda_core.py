"""cuda.core: compile, load, allocate, launch, events, both as PTX and as a cubin."""

import warnings

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, EventOptions, LaunchConfig, Program, ProgramOptions, launch

SOURCE = """
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
n = 1000
warnings.simplefilter("ignore")
device = Device()
device.set_current()
assert device.name == "Weft virtual L4" and tuple(device.compute_capability) == (8, 9)
stream = device.create_stream()
timed = EventOptions(timing_enabled=True)
for kind, options in (("ptx", {}), ("cubin", {}), ("cubin", {"lineinfo": True})):
    program = Program(SOURCE, "c++", ProgramOptions(arch=f"sm_{device.arch}", **options))
    kernel = program.compile(kind).get_kernel("axpy")
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    buffers = [device.allocate(x.nbytes, stream=stream) for _ in range(2)]
    for buffer, array in zip(buffers, (x, y), strict=True):
        driver.cuMemcpyHtoD(int(buffer.handle), array.ctypes.data, array.nbytes)
    started = stream.record(options=timed)
    launch(stream, LaunchConfig(grid=4, block=256), kernel, np.float32(2), *buffers, np.int32(n))
    ended = stream.record(options=timed)
    stream.sync()
    assert ended - started > 0
    driver.cuMemcpyDtoH(y.ctypes.data, int(buffers[1].handle), y.nbytes)
    assert np.array_equal(y, 2 * x + 1)
    assert kernel.attributes.max_threads_per_block == 1024
    print(kind, "ok")
