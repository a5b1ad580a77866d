"""Advice about managed memory can be read back; copies and prefetches in batches."""

import ctypes

from driver_api import allocate, call, code, read, start, write


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class CopyAttributes(ctypes.Structure):
    _fields_ = [("order", ctypes.c_int), ("source", Location), ("target", Location), ("flags", ctypes.c_uint)]


def size(number):
    return ctypes.c_size_t(number)


def advised(attribute, count=1):
    data = (ctypes.c_int * count)()
    call("cuMemRangeGetAttribute", data, size(4 * count), attribute, x, size(4096))
    return list(data)


start()
x = ctypes.c_uint64()
call("cuMemAllocManaged", ctypes.byref(x), size(4096), 1)
device, host = Location(1, 0), Location(2, 0)
# Attributes: 1 read mostly, 2 preferred location, 3 accessed by, 4 last prefetch, 5 and 6 type and number of 2.
assert advised(1) == [0] and advised(2) == [-2] and advised(3, 2) == [-2, -2]
for advice, where in ((1, host), (3, host), (5, device), (5, host)):
    call("cuMemAdvise_v2", x, size(4096), advice, where)
assert advised(1) == [1] and advised(2) == [-1] and advised(5) == [2] and advised(3, 3) == [0, -1, -2]
for advice, where in ((2, host), (3, Location(3, 1)), (6, device)):
    call("cuMemAdvise_v2", x, size(4096), advice, where)
assert advised(1) == [0] and (advised(5), advised(6)) == ([3], [1]) and advised(3, 2) == [-1, -2]
assert code("cuMemAdvise_v2", x, size(4096), 3, Location(1, 9)) == 101  # no such device
assert code("cuMemAdvise_v2", x, size(4096), 7, host) == 1

stream = ctypes.c_void_p()
call("cuStreamCreate", ctypes.byref(stream), 0)
one = ctypes.byref(ctypes.c_size_t(0))
both, sizes = (ctypes.c_uint64 * 2)(x.value, x.value), (ctypes.c_size_t * 2)(4096, 4096)
call("cuMemPrefetchBatchAsync", both, sizes, size(2), ctypes.byref(device), one, size(1), ctypes.c_uint64(0), stream)
assert advised(4) == [0]
call("cuMemDiscardBatchAsync", both, sizes, size(2), ctypes.c_uint64(0), stream)

a, b = allocate(16), allocate(16)
write(a, [1, 2, 3, 4])
write(b, [5, 6, 7, 8])
to, sources = (ctypes.c_uint64 * 2)(x.value, x.value + 16), (ctypes.c_uint64 * 2)(a.value, b.value)
lengths, attributes = (ctypes.c_size_t * 2)(16, 8), ctypes.byref(CopyAttributes(order=1))
batch = (to, sources, lengths, size(2), attributes, one, size(1))
call("cuMemcpyBatchAsync_v2", *batch, stream)
assert read(x, 6) == [1, 2, 3, 4, 5, 6]
assert code("cuMemcpyBatchAsync_v2", *batch, None) == 1  # as documented: not in the legacy stream
wrong = (ctypes.c_size_t * 1)(1)
assert code("cuMemcpyBatchAsync_v2", *batch[:5], wrong, size(1), stream) == 1  # the first row applies from 0 on
print("ok")
