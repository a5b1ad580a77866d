"""Two devices: contexts and memory of each, a library on both, copies between them, no access from one to the other."""

import ctypes

from driver_api import PTX, allocate, call, code, cuda, load, read, write

call("cuInit", 0)
count, can, major = ctypes.c_int(), ctypes.c_int(-1), ctypes.c_int()
call("cuDeviceGetCount", ctypes.byref(count))
call("cuDeviceCanAccessPeer", ctypes.byref(can), 0, 1)
uuids = [ctypes.create_string_buffer(16) for _ in range(2)]
contexts = [ctypes.c_void_p() for _ in range(2)]
capabilities = []
for number in range(2):
    call("cuDevicePrimaryCtxRetain", ctypes.byref(contexts[number]), number)
    call("cuDeviceGetUuid_v2", uuids[number], number)
    call("cuDeviceGetAttribute", ctypes.byref(major), 75, number)
    capabilities.append(major.value)
print("devices", count.value, "peer", can.value, "capabilities", *capabilities, "uuids", len({u.raw for u in uuids}))
print("third", code("cuDevicePrimaryCtxRetain", ctypes.byref(ctypes.c_void_p()), 2))

call("cuCtxSetCurrent", contexts[0])
library, kernel, address, size = (ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t())
call("cuLibraryLoadData", ctypes.byref(library), PTX.encode(), None, None, 0, None, None, 0)
call("cuLibraryGetKernel", ctypes.byref(kernel), library, b"scale")
module, function = load(PTX.encode(), "scale")
buffers, factors, n = [], [], ctypes.c_uint32(4)


def launch(what, *values):
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    return cuda.cuLaunchKernel(what, 1, 1, 1, 32, 1, 1, 0, None, pointers, None)


for number, context in enumerate(contexts):
    call("cuCtxSetCurrent", context)
    call("cuLibraryGetGlobal", ctypes.byref(address), ctypes.byref(size), library, b"factor")
    factors.append(address.value)
    write(address, [10 + number])
    buffers.append(allocate(16))
    write(buffers[number], [1, 2, 3, 4])
    assert launch(kernel, buffers[number], n) == 0
    print("device", number, *read(buffers[number], 4))
print("variables", len(set(factors)))
call("cuMemcpyPeer", buffers[0], contexts[0], buffers[1], contexts[1], ctypes.c_size_t(16))
print("copied", *read(buffers[0], 4))

managed, free, total = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t()
call("cuMemAllocManaged", ctypes.byref(managed), ctypes.c_size_t(16), 1)
host = (ctypes.c_uint32 * 4).from_address(managed.value)
host[:] = [1, 1, 1, 1]
for context in contexts:
    call("cuCtxSetCurrent", context)
    assert launch(kernel, managed, n) == 0
print("managed", *host)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
print("used", total.value - free.value)
print("module of the other device", launch(function, buffers[1], n))
call("cuCtxSetCurrent", contexts[0])
print("no access", launch(kernel, buffers[1], n), code("cuCtxSynchronize"))
call("cuCtxSetCurrent", contexts[1])
call("cuMemFree_v2", managed)
print("freed", launch(kernel, managed, n), code("cuCtxSynchronize"))
call("cuDevicePrimaryCtxReset_v2", 1)
print("kept", *read(buffers[0], 4))
