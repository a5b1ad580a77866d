"""Registers of a kernel that comes as PTX: its attributes, its occupancy, launches that need too many."""

import ctypes

from driver_api import call, code, load, start

KEPT = 96
"""Values that are alive at the same time: more registers than 1,024 threads can have (64 each)."""
LOADS = "\n".join(f"ld.volatile.global.u32 %r{i}, [%rd1+{4 * i}];" for i in range(KEPT))
STORES = "\n".join(f"st.volatile.global.u32 [%rd1+{4 * i}], %r{KEPT - 1 - i};" for i in range(KEPT))
PTX = f"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry other(.param .u64 x) {{ ret; }}
.visible .entry many(.param .u64 x)
{{
    .reg .b32 %r<{KEPT}>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
{LOADS}
{STORES}
    ret;
}}
"""
start()
_, function = load(PTX.encode(), "many")
registers, blocks, address = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint64()
call("cuFuncGetAttribute", ctypes.byref(registers), 4, function)
call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(blocks), function, 256, ctypes.c_size_t(0))
call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4 * KEPT))
call("cuMemsetD32_v2", address, 1, ctypes.c_size_t(KEPT))
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(address))


def cooperative(grid, block):
    return code("cuLaunchCooperativeKernel", function, grid, 1, 1, block, 1, 1, 0, None, arguments)


print("registers", 64 < registers.value <= 128, "blocks", blocks.value)
print("large", code("cuLaunchKernel", function, 1, 1, 1, 1024, 1, 1, 0, None, arguments, None))
print("cooperative", cooperative(58 * blocks.value, 256), cooperative(58 * blocks.value + 1, 256))
