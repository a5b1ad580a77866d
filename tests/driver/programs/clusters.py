"""Launches with clusters: by an attribute of the launch, in a graph, and those that the driver refuses."""

import ctypes
import sys

from driver_api import allocate, call, launch_with, load, read, start

PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry exchange(.param .u64 y)
{
    .shared .align 4 .b32 mine;
    .reg .b32 %r<8>; .reg .b64 %rd<4>;
    mov.u32 %r0, %ctaid.x; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank;
    mov.u32 %r3, mine; add.u32 %r4, %r0, 100; st.shared.u32 [%r3], %r4;
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    add.u32 %r5, %r1, 1; rem.u32 %r5, %r5, %r2; mapa.shared::cluster.u32 %r6, %r3, %r5;
    ld.shared::cluster.u32 %r7, [%r6];
    ld.param.u64 %rd0, [y]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1; st.global.u32 [%rd0], %r7;
    barrier.cluster.arrive.release;
    barrier.cluster.wait.acquire;
    ret;
}
"""
OLD = PTX.replace(b"sm_90", b"sm_80").split(b"    .shared")[0] + b"    ret;\n}\n"
CLUSTER, INVALID_VALUE, INVALID_CLUSTER_SIZE = 4, 1, 912
CTAS = 8


def launched(function, cluster, ctas=CTAS, stream=None):
    """Return the driver's code of a launch of one thread per CTA."""
    return launch_with(CLUSTER, cluster, function, ctas, 1, y, stream=stream)


def expected(size):
    return [100 + cta // size * size + (cta % size + 1) % size for cta in range(CTAS)]


start()
y = allocate(4 * CTAS)
if "without" in sys.argv:
    _, function = load(OLD, "exchange")
    assert launched(function, (2, 1, 1)) == INVALID_VALUE
    print("ok")
    raise SystemExit
_, function = load(PTX, "exchange")
for size in (2, 4, 8, 1):
    assert launched(function, (size, 1, 1)) == 0
    assert read(y, CTAS) == expected(size), size
assert launched(function, (4, 1, 1), 6) == INVALID_VALUE
assert launched(function, (32, 1, 1), 32) == INVALID_CLUSTER_SIZE

stream, graph, run = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuStreamCreate", ctypes.byref(stream), 1)
call("cuStreamBeginCapture_v2", stream, 0)
assert launched(function, (4, 1, 1), stream=stream) == 0
call("cuStreamEndCapture", stream, ctypes.byref(graph))
call("cuGraphInstantiateWithFlags", ctypes.byref(run), graph, ctypes.c_uint64(0))
assert read(y, CTAS) == expected(1)
call("cuGraphLaunch", run, stream)
call("cuStreamSynchronize", stream)
assert read(y, CTAS) == expected(4)
print("ok")
