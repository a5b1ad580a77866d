"""The driver API by ctypes, for the small programs of the tests: `call` raises for an error code, `code` returns it."""

import ctypes

cuda = ctypes.CDLL("libcuda.so.1")

PTX = r"""
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 total;
.visible .const .align 4 .u32 factor;
.visible .entry scale(.param .u64 x, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r5, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r6, [%rd3];
    ld.const.u32 %r7, [factor];
    mul.lo.s32 %r6, %r6, %r7;
    st.global.u32 [%rd3], %r6;
DONE:
    ret;
}
"""


def code(name, *arguments):
    return getattr(cuda, name)(*arguments)


def call(name, *arguments):
    result = code(name, *arguments)
    if result:
        raise SystemExit(f"{name} returned {result}")


def start():
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


def load(image, name):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), image)
    call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
    return module, function


def allocate(size):
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address


def write(address, values):
    data = (ctypes.c_uint32 * len(values))(*values)
    call("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(4 * len(values)))


def read(address, count):
    data = (ctypes.c_uint32 * count)()
    call("cuMemcpyDtoH_v2", data, address, ctypes.c_size_t(4 * count))
    return list(data)


def launch(function, grid, block, *values):
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    return code("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, None, pointers, None)


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("numbers", ctypes.c_uint32 * 16))


class _Configuration(ctypes.Structure):
    _fields_ = (
        ("shape", ctypes.c_uint32 * 7),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint32),
    )


def launch_with(attribute, numbers, function, grid, block, *arguments, stream=None):
    """Return the driver's code of a launch with one attribute."""
    given = _Attribute(attribute, 0, (ctypes.c_uint32 * 16)(*numbers))
    shape = (ctypes.c_uint32 * 7)(grid, 1, 1, block, 1, 1, 0)
    configuration = _Configuration(shape, stream, ctypes.pointer(given), 1)
    pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
    return code("cuLaunchKernelEx", ctypes.byref(configuration), function, pointers, None)
