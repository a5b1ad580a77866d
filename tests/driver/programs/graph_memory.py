"""Memory of a graph: a kernel may use it between the node that allocates it and the one that frees it."""

import ctypes
import sys

from driver_api import PTX, call, launch, load, start

start()
module, scale = load(PTX.encode(), "scale")
stream, graph, exec_ = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
x, n = ctypes.c_uint64(), ctypes.c_uint32(32)
call("cuStreamCreate", ctypes.byref(stream), 0)


def scaled(name):
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(x), ctypes.addressof(n))
    call(name, scale, 1, 1, 1, 32, 1, 1, 0, stream, pointers, None)


call("cuStreamBeginCapture_v2", stream, 0)
call("cuMemAllocAsync", ctypes.byref(x), ctypes.c_size_t(128), stream)
call("cuMemsetD32Async", x, 3, ctypes.c_size_t(32), stream)
scaled("cuLaunchKernel")
if "free" in sys.argv:
    call("cuMemFreeAsync", x, stream)
if "use" in sys.argv:
    scaled("cuLaunchKernel")
call("cuStreamEndCapture", stream, ctypes.byref(graph))
call("cuGraphInstantiateWithFlags", ctypes.byref(exec_), graph, ctypes.c_uint64(0))
if "early" in sys.argv:
    launch(scale, 1, 32, x, n)
for _ in range(2 if "free" in sys.argv else 1):
    call("cuGraphLaunch", exec_, stream)
print("ok")
