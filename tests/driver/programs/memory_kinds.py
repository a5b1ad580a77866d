"""Managed and pinned memory are one pointer for both sides; rectangles, memsets, attributes and bad arguments."""

import ctypes

from driver_api import PTX, allocate, call, code, launch, load, read, start, write

start()
module, scale = load(PTX.encode(), "scale")
factor = ctypes.c_uint64()
call("cuModuleGetGlobal_v2", ctypes.byref(factor), None, module, b"factor")
write(factor, [5])
n = 20
for name, extra in (("cuMemAllocManaged", (1,)), ("cuMemHostAlloc", (2,))):
    pointer = ctypes.c_uint64()
    call(name, ctypes.byref(pointer), ctypes.c_size_t(4 * n), *extra)
    host = (ctypes.c_uint32 * n).from_address(pointer.value)
    host[:] = range(n)
    assert launch(scale, 1, 32, pointer, ctypes.c_uint32(n)) == 0
    assert list(host) == [5 * i for i in range(n)]
    kind = ctypes.c_uint32()
    call("cuPointerGetAttribute", ctypes.byref(kind), 2, pointer)
    assert kind.value == (2 if name == "cuMemAllocManaged" else 1)
    call("cuMemFree_v2" if name == "cuMemAllocManaged" else "cuMemFreeHost", pointer)
    assert code("cuMemFree_v2", pointer) == 1  # it was freed before

# Pools: the device's, and one of host memory, which the host reads at the same address.
used, zero = ctypes.c_uint64(), ctypes.c_uint64()
for location, host in (((1, 0), False), ((2, 0), True)):
    pool, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuMemGetMemPool", ctypes.byref(pool), (ctypes.c_int * 2)(*location), 1)
    call("cuMemAllocFromPoolAsync", ctypes.byref(pointer), ctypes.c_size_t(4 * n), pool, None)
    call("cuMemPoolGetAttribute", pool, 7, ctypes.byref(used))
    assert used.value == 4 * n
    write(pointer, range(n))
    assert launch(scale, 1, 32, pointer, ctypes.c_uint32(n)) == 0
    expected = [5 * i for i in range(n)]
    assert read(pointer, n) == expected
    assert not host or list((ctypes.c_uint32 * n).from_address(pointer.value)) == expected
    call("cuMemFreeAsync", pointer, None)
    call("cuMemPoolGetAttribute", pool, 7, ctypes.byref(used))
    assert used.value == 0
call("cuMemAllocAsync", ctypes.byref(zero), ctypes.c_size_t(0), None)

# A rectangle of 3 × 2 words out of rows of 8, to rows of 4.
x, y = allocate(8 * 4 * 4), allocate(4 * 4 * 4)
write(x, range(32))
call("cuMemsetD8_v2", y, 0, ctypes.c_size_t(64))


class Copy2D(ctypes.Structure):
    _fields_ = [
        (side + name, kind)
        for side in ("from", "to")
        for name, kind in (
            ("x", ctypes.c_size_t),
            ("y", ctypes.c_size_t),
            ("type", ctypes.c_int),
            ("host", ctypes.c_void_p),
            ("device", ctypes.c_uint64),
            ("array", ctypes.c_void_p),
            ("pitch", ctypes.c_size_t),
        )
    ] + [("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]


copy = Copy2D(
    fromx=4, fromy=1, fromtype=2, fromdevice=x.value, frompitch=32, tox=4, toy=2, totype=2, width=12, height=2
)
copy.todevice, copy.topitch = y.value, 16
call("cuMemcpy2D_v2", ctypes.byref(copy))
assert read(y, 16) == [0] * 8 + [0, 9, 10, 11, 0, 17, 18, 19]

call("cuMemsetD2D16_v2", y, ctypes.c_size_t(16), ctypes.c_uint16(0x0102), ctypes.c_size_t(2), ctypes.c_size_t(4))
assert read(y, 5) == [0x01020102, 0, 0, 0, 0x01020102]

past_the_end = ctypes.c_size_t(65)
assert code("cuMemcpyDtoD_v2", y, x, past_the_end) == 1  # leaves its allocation
assert code("cuMemcpyHtoD_v2", ctypes.c_uint64(4096), b"1234", ctypes.c_size_t(4)) == 1  # no device address
assert code("cuMemAlloc_v2", ctypes.byref(x), ctypes.c_size_t(1 << 50)) == 2
start_at, size = ctypes.c_uint64(), ctypes.c_size_t()
call("cuMemGetAddressRange_v2", ctypes.byref(start_at), ctypes.byref(size), ctypes.c_uint64(y.value + 20))
assert (start_at.value, size.value) == (y.value, 64)
assert launch(scale, 0, 32, y, ctypes.c_uint32(1)) == 1
assert launch(scale, 1, 2048, y, ctypes.c_uint32(1)) == 1
print("ok")
