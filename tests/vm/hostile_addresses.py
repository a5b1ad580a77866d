"""A separate program: random addresses in every kind of memory access. The test is that it ends.

    python -m tests.vm.hostile_addresses SEED

prints the number of accesses made and the codes of the findings as one JSON object.
"""

import json
import sys

import numpy as np
import numpy.typing as npt

import weft
from weft.core.records import Binary
from weft.vm.memory import GLOBAL_BASE, LOCAL_BASE, LOCAL_START, PARAM_BASE, SHARED_BASE, SHARED_START, WINDOW_BYTES

Addresses = npt.NDArray[np.uint64]

_TILE = "{%t0, %t1, %t2, %t3, %t4, %t5, %t6, %t7}"
_LOADS = ("b8 %h", "b16 %h", "b32 %r", "b64 %l", "v2.b32 {%t0, %t1}", "v4.b32 {%t0, %t1, %t2, %t3}", "v2.b64 {%l, %k}")


def _instructions() -> list[str]:
    """Return PTX with the address in %rd (global, generic) or %ra (shared, local)."""
    lines = []
    for space, address in ((".global", "%rd"), ("", "%rd"), (".shared", "%ra"), (".local", "%ra")):
        for access in _LOADS:
            kind, _, data = access.partition(" ")
            lines.append(f"ld{space}.{kind} {data}, [{address}];")
            lines.append(f"st{space}.{kind} [{address}], {data};")
        if space == ".local":
            continue
        lines += [
            f"atom{space}.add.u32 %r, [{address}], 1;",
            f"red{space}.add.f32 [{address}], %f;",
            f"atom{space}.cas.b64 %l, [{address}], %l, %k;",
            f"atom{space}.exch.b32 %r, [{address}], %r;",
            f"wmma.load.a.sync.aligned.row.m16n16k16{space}.f16 {_TILE}, [{address}], %s;",
            f"wmma.load.c.sync.aligned.col.m16n16k16{space}.f32 {_TILE}, [{address}], %s;",
            f"wmma.store.d.sync.aligned.row.m16n16k16{space}.f32 [{address}], {_TILE}, %s;",
        ]
    lines += [
        "ld.const.b32 %r, [%rd];",
        "ld.param.b32 %r, [%rd];",
        "ld.volatile.global.b32 %r, [%rd];",
        "ld.global.nc.v4.b32 {%t0, %t1, %t2, %t3}, [%rd];",
        "prefetch.global.L2 [%rd];",
        "cp.async.ca.shared.global [%ra], [%rd], 4;",
        "cp.async.ca.shared.global [%ra], [%rd], 8, %r;",
        "cp.async.cg.shared.global [%ra], [%rd], 16;",
        "cp.async.commit_group;",
        "cp.async.wait_all;",
    ]
    for trans in ("", ".trans"):
        lines += [
            f"ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 {{%t0}}, [%ra];",
            f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%t0, %t1, %t2, %t3}}, [%ra];",
        ]
    return lines


INSTRUCTIONS = _instructions()


def kernel() -> str:
    """Return all instructions, twice: with an address per lane from a table, and with one from a parameter."""
    body = []
    for number, instruction in enumerate(INSTRUCTIONS):
        body += [
            f"ld.global.b64 %rd, [%at + {number * 8 * 64}];",
            "cvt.u32.u64 %ra, %rd;",
            "shr.u64 %l, %rd, 40;",
            "cvt.u32.u64 %s, %l;",
            instruction,
        ]
    body += ["ld.param.b64 %rd, [all_lanes];", "cvt.u32.u64 %ra, %rd;", *INSTRUCTIONS]
    text = "\n  ".join(body)
    return f""".version 8.4
.target sm_89
.address_size 64
.visible .entry hostile(.param .u64 table, .param .u64 all_lanes)
{{
  .reg .b16 %h; .reg .b32 %r, %ra, %s, %t<8>, %me; .reg .b64 %rd, %l, %k, %at; .reg .f32 %f;
  .shared .align 16 .b8 tile[2048];
  .local .align 16 .b8 own[64];
  mov.u32 %me, %tid.x;
  mov.b16 %h, 7; mov.b32 %r, 7; mov.b64 %l, 7; mov.b64 %k, 9; mov.f32 %f, 0f3F800000; mov.b32 %s, 16;
  mov.b32 %t0, 0; mov.b32 %t1, 0; mov.b32 %t2, 0; mov.b32 %t3, 0; mov.b32 %t4, 0; mov.b32 %t5, 0; mov.b32 %t6, 0;
  mov.b32 %t7, 0;
  ld.param.b64 %at, [table];
  mad.wide.u32 %at, %me, 8, %at;
  {text}
  ret;
}}
"""


def addresses(rng: np.random.Generator, count: int, host: int) -> Addresses:
    """Return random addresses, the edges of the windows, and addresses of this process's memory."""
    anything = rng.integers(0, np.iinfo(np.uint64).max, count, np.uint64, endpoint=True)
    edges = [
        0,
        GLOBAL_BASE,
        SHARED_BASE,
        SHARED_BASE + SHARED_START,
        LOCAL_BASE,
        LOCAL_BASE + LOCAL_START,
        PARAM_BASE,
        GLOBAL_BASE + (1 << 16),
        GLOBAL_BASE + (1 << 26),
        SHARED_BASE + WINDOW_BYTES,
        LOCAL_BASE + WINDOW_BYTES,
        PARAM_BASE + WINDOW_BYTES,
        SHARED_START,
        SHARED_START + 2048,
        LOCAL_START,
        LOCAL_START + 64,
        1 << 32,
        1 << 47,
        (1 << 63) - 1,
        host,
        id(rng),
    ]
    near = rng.choice(np.array(edges, np.uint64), count)
    with np.errstate(over="ignore"):
        near = near + rng.integers(-70, 70, count).view(np.uint64)
    aligned = rng.integers(0, 2, count).astype(bool)
    mixed = np.where(rng.integers(0, 3, count) == 0, anything, near)
    return np.where(aligned, mixed & ~np.uint64(15), mixed)


def main(seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = kernel()
    binary = Binary("hostile.ptx", "sm_89", "by hand", (), text, ptx_digest="hostile")
    canary = np.full(4096, 0xA5, np.uint8)
    codes: set[str] = set()
    made = 0
    for block in (64, 40):  # complete warps, and one with lanes missing
        for threads in (1, 2):
            gpu = weft.VirtualGPU(threads=threads)
            table = addresses(rng, len(INSTRUCTIONS) * 64, canary.ctypes.data)
            everywhere = addresses(rng, 1, canary.ctypes.data)[0]
            run = gpu.launch(binary, "hostile", 1, block, [table, everywhere])
            codes |= {finding.code for finding in run.findings}
            made += len(INSTRUCTIONS) * (block + 1)
    assert (canary == 0xA5).all(), "memory of the host was written"
    print(json.dumps({"accesses": made, "codes": sorted(codes)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
