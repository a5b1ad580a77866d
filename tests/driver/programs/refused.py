"""Asks for one thing that the virtual GPU does not have, named by the argument; then calls something that it has."""

import ctypes
import os
import subprocess
import sys

from driver_api import PTX, allocate, call, code, launch_with, load, start

HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n"


def load_code(image):
    module = ctypes.c_void_p()
    result = code("cuModuleLoadData", ctypes.byref(module), image)
    return result, module


def entry_point():
    return code("cuArrayCreate_v2", None, None)


def instruction():
    body = ".reg .b32 %r<2>;\n.reg .b64 %rd<2>;\ntex.1d.v4.u32.s32 {%r1, %r1, %r1, %r1}, [%rd1, {%r1}];\nret;\n"
    result, module = load_code((HEAD + ".visible .entry odd()\n{\n" + body + "}\n").encode())
    assert result == 0  # other kernels of the module must stay usable
    return code("cuModuleGetFunction", ctypes.byref(ctypes.c_void_p()), module, b"odd")


COMPILE = """
import sys
from cuda.bindings import nvrtc
_, program = nvrtc.nvrtcCreateProgram(b'extern "C" __global__ void k() {}', b"k.cu", 0, [], [])
assert int(nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=sm_89"])[0]) == 0
image = b"\\0" * nvrtc.nvrtcGetCUBINSize(program)[1]
nvrtc.nvrtcGetCUBIN(program, image)
sys.stdout.buffer.write(image)
"""


def cubin():
    # Made elsewhere: the audit library would keep its PTX.
    elsewhere = {name: value for name, value in os.environ.items() if name != "LD_AUDIT"}
    made = subprocess.run([sys.executable, "-c", COMPILE], env=elsewhere, check=True, capture_output=True)
    return load_code(made.stdout)[0]


def attribute():
    _, function = load(PTX.encode(), "scale")
    return launch_with(12, (), function, 2, 32, allocate(4), ctypes.c_uint32(1))


def lto():
    link, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    call("cuLinkCreate_v2", 0, None, None, ctypes.byref(link))
    call("cuLinkAddData_v2", link, 5, b"not PTX", ctypes.c_size_t(7), b"x", 0, None, None)
    return code("cuLinkComplete", link, ctypes.byref(image), ctypes.byref(size))


def device_runtime():
    text = b".version 7.0\n.target sm_80\n.address_size 64\n.extern .func launch_device;\n"
    text += b".visible .entry k() { call launch_device; ret; }\n\0"
    link, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    call("cuLinkCreate_v2", 0, None, None, ctypes.byref(link))
    call("cuLinkAddData_v2", link, 1, text, ctypes.c_size_t(len(text)), b"k", 0, None, None)
    call(
        "cuLinkAddData_v2",
        link,
        1,
        text.replace(b" k()", b" other()"),
        ctypes.c_size_t(len(text) + 4),
        b"o",
        0,
        None,
        None,
    )
    call("cuLinkAddData_v2", link, 4, b"!<arch>", ctypes.c_size_t(7), b"libcudadevrt.a", 0, None, None)
    return code("cuLinkComplete", link, ctypes.byref(image), ctypes.byref(size))


def runtime():
    uuid = bytes.fromhex("6bd5fb6c") + bytes(12)
    return code("cuGetExportTable", ctypes.byref(ctypes.c_void_p()), uuid)


def private_table():
    uuid = bytes.fromhex("d4082055") + bytes(12)
    return code("cuGetExportTable", ctypes.byref(ctypes.c_void_p()), uuid)


def invalid_ptx():
    return load_code((HEAD + ".visible .entry odd( {\n").encode())[0]


def no_image():
    return load_code(b"hello")[0]


def newer_gpu():
    return load_code(HEAD.replace("sm_80", "sm_100").encode())[0]


start()
print("before", flush=True)
print("returned", globals()[sys.argv[1]](), flush=True)
print("after", code("cuCtxSynchronize"))
