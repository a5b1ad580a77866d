"""Calls CUDA 12's runtime: copies, and the layouts that differ from CUDA 13's. The offsets are those of its header."""

import ctypes

runtime = ctypes.CDLL("libcudart.so.12")
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
MULTIPROCESSORS, COOPERATIVE, BUS_WIDTH, CLOCK = (16, 388), (95, 688), (37, 612), (13, 348)
BYTES_11, BYTES_12 = 728, 1032


def call(name: str, *arguments: object) -> None:
    code = getattr(runtime, name)(*arguments)
    assert code == 0, (name, code)


def attribute(number: int) -> int:
    value = ctypes.c_int()
    call("cudaDeviceGetAttribute", ctypes.byref(value), number, 0)
    return value.value


for name, size in (("cudaGetDeviceProperties", BYTES_11), ("cudaGetDeviceProperties_v2", BYTES_12)):
    shown = ctypes.create_string_buffer(b"\xa5" * 2000, 2000)
    call(name, shown, 0)
    assert shown.value.startswith(b"Weft virtual")
    for number, at in (MULTIPROCESSORS, COOPERATIVE, BUS_WIDTH, CLOCK):
        assert int.from_bytes(shown.raw[at : at + 4], "little") == attribute(number) > 0, (name, number)
    assert shown.raw[size:] == b"\xa5" * (2000 - size), name

version = ctypes.c_int()
call("cudaRuntimeGetVersion", ctypes.byref(version))
assert version.value // 1000 == 12

memory, back = ctypes.c_void_p(), ctypes.create_string_buffer(8)
call("cudaMalloc", ctypes.byref(memory), ctypes.c_size_t(16))
other = ctypes.c_void_p(memory.value + 8)
call("cudaMemcpy", memory, b"12345678", ctypes.c_size_t(8), HOST_TO_DEVICE)
call("cudaMemcpy", other, memory, ctypes.c_size_t(8), DEVICE_TO_DEVICE)
call("cudaMemset", other, 0x41, ctypes.c_size_t(3))
call("cudaMemcpy", back, other, ctypes.c_size_t(8), DEVICE_TO_HOST)
assert back.raw == b"AAA45678"
managed = ctypes.c_void_p()
call("cudaMallocManaged", ctypes.byref(managed), ctypes.c_size_t(16), 1)
call("cudaMemPrefetchAsync", managed, ctypes.c_size_t(16), 0, None)  # a device here, a location in CUDA 13
status, number = ctypes.c_int(9), ctypes.c_uint64()
call("cudaStreamGetCaptureInfo", None, ctypes.byref(status), ctypes.byref(number))
assert status.value == 0
assert runtime.cudaFree(ctypes.c_void_p(1)) == 1 == runtime.cudaGetLastError() and runtime.cudaGetLastError() == 0
print("ok")
