"""Launches a kernel that goes wrong in the way that the argument names; prints what the next call returns."""

import sys

from driver_api import code, launch, load, start

HEAD = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n"
HEAD = HEAD.replace(".visible .entry", ".visible .global .align 8 .b8 bytes[64];\n.visible .entry")
BODIES = {
    "trap": "trap;\n",
    "misaligned": "mov.u64 %rd1, bytes;\nadd.u64 %rd1, %rd1, 2;\nst.global.u32 [%rd1], %r1;\n",
    "null": "mov.u64 %rd1, 0;\nld.global.u32 %r1, [%rd1];\n",
    "endless": "LOOP:\nbra LOOP;\n",
    "none": "",
}

start()
_, function = load((HEAD + BODIES[sys.argv[1]] + "ret;\n}\n").encode(), "k")
print("launch", launch(function, 1, 32))
print("wait", code("cuCtxSynchronize"))
print("again", launch(function, 1, 32))
print("reset", code("cuDevicePrimaryCtxReset_v2", 0), code("cuCtxSynchronize"))
