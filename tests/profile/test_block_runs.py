"""Runs of SASS blocks: two independent computations agree, a function called twice, and an unrolled loop."""

from collections import Counter

import numpy as np

import weft
from weft.engines.kernel_file import load
from weft.kernels.ladder import RUNGS
from weft.profile.block_runs import find_block_runs
from weft.profile.profiler import Profiler
from weft.profile.records import Counts
from weft.profile.sass_text import read_blocks
from weft.ptx.parse import parse
from weft.ptx.passes.build_cfg import build_cfg


def by_name(counts: Counts) -> Counter[str]:
    names: Counter[str] = Counter()
    for opcode, count in counts.sass.items():
        names[opcode.split(".")[0]] += count
    return names


def test_sass_and_probe_agree_where_iterations_share_accesses() -> None:
    """ptxas has one LDS.128 for four iterations of P · V here: block runs and the probe count it independently."""
    profiler = Profiler(weft.VirtualGPU(threads=1))
    load(str(RUNGS["wmma_qk"].path)).run(profiler, {}, sizes={"D": 128, "SQ": 16, "SKV": 32, "HQ": 1})
    counts = profiler.counts[-1][1]
    names = by_name(counts)
    assert counts.matched == 1.0
    assert names["LDS"] == counts.ncu["smsp__sass_inst_executed_op_shared_ld.sum"] > 0
    assert names["LDSM"] == counts.vm["vm__ldsm"] > 0
    assert names["SHFL"] == counts.vm["vm__shfl"] > 0
    assert names["BAR"] == counts.vm["vm__barriers"] > 0
    # one wmma of m16n16k16 is two HMMA.16816
    assert names["HMMA"] == 2 * counts.vm["vm__wmma.m16n16k16.f32.f32"] > 0
    assert counts.ncu["sm__inst_executed_pipe_tensor_op_hmma.sum"] == names["HMMA"]


CALLED_TWICE = """
__device__ __noinline__ float twice(const float* p) { return 2 * p[threadIdx.x]; }
extern "C" __global__ void k(const float* a, const float* b, float* out) {
    out[threadIdx.x] = twice(a) + twice(b);
}
"""


def test_a_function_called_from_two_places() -> None:
    profiler = Profiler(weft.VirtualGPU(threads=1))
    a, b, out = np.arange(64, dtype=np.float32), np.ones(64, np.float32), np.zeros(64, np.float32)
    profiler.launch(weft.compile_cuda(CALLED_TWICE, name="k.cu"), "k", 1, 64, [a, b, out])
    np.testing.assert_array_equal(out, 2 * a + 2)
    counts = profiler.counts[-1][1]
    loads = [line for line in counts.lines if line.opcode.startswith("ld")]
    assert [(line.executed, line.sectors) for line in loads] == [(4, 16)]
    stores = [line for line in counts.lines if line.opcode.startswith("st")]
    assert [(line.executed, line.sectors) for line in stores] == [(2, 8)]


PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out) {
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, 0;
LOOP:
    bar.sync 0;
    add.s32 %r1, %r1, 1;
    setp.lt.s32 %p1, %r1, 7;
    @%p1 bra LOOP;
    ret;
}
"""
SASS = """
\t.section\t.text.k,"ax",@progbits
k:
\t//## File ".nv_debug_ptx_txt", line {first}
        /*0000*/                   MOV R1, RZ ;
.L_x_1:
\t//## File ".nv_debug_ptx_txt", line {bar}
        /*0010*/                   BAR.SYNC 0x0 ;
        /*0020*/                   BAR.SYNC 0x0 ;
        /*0030*/                   BAR.SYNC 0x0 ;
\t//## File ".nv_debug_ptx_txt", line {branch}
        /*0040*/               @P0 BRA `(.L_x_1) ;
.L_x_2:
\t//## File ".nv_debug_ptx_txt", line {bar}
        /*0050*/                   BAR.SYNC 0x0 ;
\t//## File ".nv_debug_ptx_txt", line {branch}
        /*0060*/               @P0 BRA `(.L_x_2) ;
\t//## File ".nv_debug_ptx_txt", line {last}
        /*0070*/                   EXIT ;
"""


def test_an_unrolled_loop_with_a_remainder_is_divided_and_reported() -> None:
    """7 iterations, unrolled by 3: the body runs twice, the remainder once. The sum is right, both are reported."""
    cfg = build_cfg(parse(PTX).functions["k"])
    lines = {
        name: 1 + PTX.split("\n").index(text)
        for name, text in [
            ("first", "    mov.u32 %r1, 0;"),
            ("bar", "    bar.sync 0;"),
            ("branch", "    @%p1 bra LOOP;"),
            ("last", "    ret;"),
        ]
    }
    blocks = read_blocks(SASS.format(**lines), "k")
    ptx_runs = [1 if block.id in (0, len(cfg.blocks) - 1) else 7 for block in cfg.blocks]
    found = find_block_runs(blocks, cfg, (), ptx_runs)
    assert dict(found.runs) == {0: 1, 1: 2, 2: 1, 3: 1}
    assert found.shared_out == {1, 2}
    assert 3 * found.runs[1] + found.runs[2] == 7
