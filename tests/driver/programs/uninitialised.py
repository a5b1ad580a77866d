"""Launches over memory that a copy wrote, that a memset wrote, and that nothing wrote."""

import ctypes

from driver_api import PTX, allocate, call, launch, load, start, write

start()
_, scale = load(PTX.encode(), "scale")
copied, unwritten, cleared = allocate(40), allocate(40), allocate(40)
write(copied, range(10))
call("cuMemsetD32_v2", cleared, 1, ctypes.c_size_t(10))
for x in (copied, cleared, unwritten):
    assert launch(scale, 1, 32, x, ctypes.c_uint32(10)) == 0
print("ok")
