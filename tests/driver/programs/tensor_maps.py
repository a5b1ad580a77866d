"""cuTensorMapEncodeTiled: a kernel copies a box of a matrix by the map, and the maps that the driver refuses."""

import ctypes
import sys
from ctypes import byref

from driver_api import allocate, code, launch, load, read, start, write

PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry fetch(.param .align 64 .b8 map[128], .param .u64 y, .param .u32 x0, .param .u32 x1)
{
    .shared .align 128 .b8 tile[128];
    .shared .align 8 .b64 bar;
    .reg .pred %p, %first; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    mov.b64 %rd0, map; cvta.param.u64 %rd0, %rd0;
    ld.param.u64 %rd1, [y]; ld.param.u32 %r0, [x0]; ld.param.u32 %r1, [x1];
    mov.u32 %r2, tile; mov.u32 %r3, bar; mov.u32 %r4, %tid.x;
    setp.eq.u32 %first, %r4, 0;
    @%first mbarrier.init.shared::cta.b64 [%r3], 1;
    @%first fence.mbarrier_init.release.cluster;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
    @%first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r2], [%rd0, {%r0, %r1}], [%r3];
    bar.sync 0;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%r3], 0;
    @!%p bra WAIT;
    shl.b32 %r5, %r4, 2; add.u32 %r6, %r2, %r5; ld.shared.u32 %r7, [%r6];
    cvt.u64.u32 %rd2, %r5; add.u64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r7;
    ret;
}
"""
UINT32, FLOAT32, TF32, INVALID_VALUE, NOT_SUPPORTED = 2, 7, 11, 1, 801
ROWS, COLUMNS, BOX = 16, 12, (8, 4)


class Map(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 128)]


def encoded(address, **changed):
    """Return the driver's code and the map of a matrix; `changed` are arguments other than the right ones."""
    given = {"type": UINT32, "rank": 2, "dims": (COLUMNS, ROWS), "strides": (4 * COLUMNS,), "box": BOX, "steps": (1, 1)}
    given |= {"interleave": 0, "swizzle": 0, "promotion": 0, "fill": 0, **changed}
    made = Map()
    dims, strides = ((ctypes.c_uint64 * 5)(*given[name]) for name in ("dims", "strides"))
    box, steps = ((ctypes.c_uint32 * 5)(*given[name]) for name in ("box", "steps"))
    options = (given[name] for name in ("interleave", "swizzle", "promotion", "fill"))
    arrays = (ctypes.c_uint64(address), dims, strides, box, steps)
    result = code("cuTensorMapEncodeTiled", byref(made), given["type"], given["rank"], *arrays, *options)
    return result, made


start()
x, y = allocate(4 * ROWS * COLUMNS), allocate(4 * 32)
if "without" in sys.argv:
    assert encoded(x.value)[0] == NOT_SUPPORTED
    print("ok")
    raise SystemExit
_, fetch = load(PTX, "fetch")
write(x, list(range(ROWS * COLUMNS)))


def fetched(tensor_map, x0, x1):
    assert launch(fetch, 1, 32, tensor_map, y, ctypes.c_uint32(x0), ctypes.c_uint32(x1)) == 0
    return read(y, 32)


def expected(x0, x1, first=0):
    places = [(x1 + row, x0 + column) for row in range(BOX[1]) for column in range(BOX[0])]
    return [row * COLUMNS + column + first if row < ROWS and column < COLUMNS else 0 for row, column in places]


result, right = encoded(x.value)
assert result == 0 and fetched(right, 3, 5) == expected(3, 5)
assert fetched(right, 8, 14) == expected(8, 14), "beyond the edges there are zeros"
other = allocate(4 * ROWS * COLUMNS)
write(other, [number + 1000 for number in range(ROWS * COLUMNS)])
assert code("cuTensorMapReplaceAddress", byref(right), other) == 0 and fetched(right, 0, 0) == expected(0, 0, 1000)

WRONG = (
    {"rank": 0}, {"rank": 6}, {"type": 16}, {"type": -1}, {"dims": (0, ROWS)}, {"strides": (4 * COLUMNS + 4,)},
    {"strides": (1 << 40,)}, {"box": (257, 1)}, {"box": (0, 4)}, {"box": (7, 4)}, {"steps": (1, 9)}, {"steps": (1, 0)},
    {"swizzle": 7}, {"swizzle": 1, "box": (12, 4)}, {"interleave": 3}, {"interleave": 1}, {"promotion": 4},
    {"fill": 1}, {"fill": 2, "type": FLOAT32},
)  # fmt: skip
for changed in WRONG:
    assert encoded(x.value, **changed)[0] == INVALID_VALUE, changed
assert encoded(x.value + 4)[0] == INVALID_VALUE
assert code("cuTensorMapReplaceAddress", byref(right), ctypes.c_uint64(x.value + 8)) == INVALID_VALUE
assert code("cuTensorMapReplaceAddress", byref(Map()), x) == INVALID_VALUE
if "refused" in sys.argv:
    assert encoded(x.value, type=TF32)[0] == NOT_SUPPORTED
    assert encoded(x.value, swizzle=4)[0] == NOT_SUPPORTED
print("ok")
