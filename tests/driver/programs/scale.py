"""Scales an array. Arguments: elements of the array, elements passed to the kernel, the exit code."""

import ctypes
import sys

from driver_api import PTX, allocate, call, code, launch, load, read, start, write

size, passed, own = map(int, sys.argv[1:])
start()
module, scale = load(PTX.encode(), "scale")
factor, size_bytes = ctypes.c_uint64(), ctypes.c_size_t()
call("cuModuleGetGlobal_v2", ctypes.byref(factor), ctypes.byref(size_bytes), module, b"factor")
write(factor, [3])
x = allocate(4 * size)
write(x, range(size))
print("launch", launch(scale, 1, 64, x, ctypes.c_uint32(passed)))
print("wait", code("cuCtxSynchronize"))
if passed <= size:
    assert read(x, size) == [3 * i for i in range(size)]
    call("cuMemFree_v2", x)
    call("cuModuleUnload", module)
sys.exit(own)
