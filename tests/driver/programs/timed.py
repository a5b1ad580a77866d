"""Events around launches: the milliseconds between them, for one launch, for two, and for none."""

import ctypes

from driver_api import PTX, allocate, call, launch, load, start, write

start()
module, function = load(PTX.encode(), "scale")
x, n = allocate(4 << 18), ctypes.c_uint32(1 << 18)
write(x, [1])


def timed(launches):
    events = [ctypes.c_void_p(), ctypes.c_void_p()]
    for event in events:
        call("cuEventCreate", ctypes.byref(event), 0)
    call("cuEventRecord", events[0], None)
    for _ in range(launches):
        assert launch(function, 1024, 256, x, n) == 0
    call("cuEventRecord", events[1], None)
    between = ctypes.c_float()
    call("cuEventElapsedTime", ctypes.byref(between), *events)
    return between.value


print(*(f"{timed(launches):.6f}" for launches in (0, 1, 2)))
