"""PTX accesses matched to SASS: in all kernels of the ladder, and where ptxas merged or removed some."""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from weft.core.errors import UsageError
from weft.core.records import Binary
from weft.engines.kernel_file import load
from weft.engines.sample import CtaSample
from weft.kernels.ladder import RUNGS
from weft.profile.kernel_match import NO_CUBIN, match_kernel
from weft.profile.match import Match, match_accesses
from weft.profile.profiler import Profiler
from weft.profile.ptx_accesses import PtxAccess
from weft.profile.sass_accesses import access_of
from weft.profile.sass_text import SassBlock, SassInstruction, read_blocks
from weft.profile.site_probe import ALIGNED, EARLY, HIDDEN, SPAN


@pytest.mark.parametrize("name", one_in(2, sorted(RUNGS)))
def test_every_access_of_the_ladder_is_matched(name: str) -> None:
    binaries = load(str(RUNGS[name].path)).binaries()
    assert binaries
    for entry, binary in binaries.items():
        kernel = match_kernel(binary, entry)
        assert kernel.matches and not kernel.notes
        assert [m for m in kernel.matches if not m.matched] == []


def compiled(body: str, *, declare: str = "", arch: str = "sm_86") -> Binary:
    text = f'{declare}\nextern "C" __global__ void k(const float* a, float* out, int n) {{\n{body}\n}}\n'
    return weft.compile_cuda(text, name="k.cu", arch=arch)


MERGED = """
    __shared__ __align__(16) float s[256];
    s[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    const float* p = s + 4 * (threadIdx.x % 32);
    out[threadIdx.x] = p[0] * 2 + p[1] * 3 + p[2] * 5 + p[3] * 7;
"""


@cache
def merged() -> Binary:
    return compiled(MERGED)


def test_four_loads_become_one_of_16_bytes() -> None:
    kernel = match_kernel(merged(), "k")
    loads = [m for m in kernel.matches if m.access.verb == "load" and m.access.space == "shared"]
    if len(loads) == 1:  # the front end has already merged them
        assert loads[0].access.bytes == 16 and loads[0].matched
        return
    assert [m.width for m in sorted(loads, key=lambda m: m.access.offset)] == [16, HIDDEN, HIDDEN, HIDDEN]
    assert all(m.matched and m.sass.startswith("LDS") for m in loads)


def test_merged_loads_count_at_their_sass_width() -> None:
    """16 adjacent bytes per lane: four wavefronts per warp, not sixteen and no conflict."""
    profiler = Profiler(weft.VirtualGPU("sm_86", threads=1))
    a, out = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    profiler.launch(merged(), "k", 1, 256, [a, out, np.int32(0)])
    counts = profiler.counts[-1][1]
    assert counts.ncu["smsp__sass_inst_executed_op_shared_ld.sum"] == 8
    assert counts.ncu["smsp__sass_inst_executed_op_shared_st.sum"] == 8
    assert counts.ncu["memory_l1_wavefronts_shared"] == 8 * 4 + 8 == counts.vm["vm__shared_wavefronts_matched"]
    p = a[:128].reshape(32, 4)[np.arange(256) % 32]
    np.testing.assert_array_equal(out, p @ np.array([2, 3, 5, 7], np.float32))


def test_instructions_without_an_active_lane_remove_ncus_name() -> None:
    """Warp 1 issues the predicated store with no active lane: ncu may show 1 or 2."""
    body = "__shared__ float s[64]; if (threadIdx.x < 32) s[threadIdx.x] = a[threadIdx.x];\n"
    binary = compiled(body + "__syncthreads(); out[threadIdx.x] = s[threadIdx.x % 32];")
    profiler = Profiler(weft.VirtualGPU("sm_86", threads=1))
    stores = [i for b in profiler.kernel(binary, "k").blocks for i in b.instructions if i.name == "STS"]
    assert [bool(ins.predicate) for ins in stores] == [True]
    a, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    profiler.launch(binary, "k", 1, 64, [a, out, np.int32(0)])
    counts = profiler.counts[-1][1]
    np.testing.assert_array_equal(out, a[np.arange(64) % 32])
    assert "smsp__sass_inst_executed_op_shared_st.sum" not in counts.ncu
    assert (counts.vm["vm__shared_st"], counts.vm["vm__shared_st_issued"]) == (1, 2)
    assert any(note.startswith("STS: 2 issued, 1 with an active lane") for note in counts.notes)
    assert counts.ncu["smsp__sass_inst_executed_op_shared_ld.sum"] == 2


def test_a_merged_access_may_start_before_the_accesses_it_covers() -> None:
    """A LDS.128 at +0x100 covers 4 bytes at +260 and 8 at +264; the neighbour at +0 shows how the offsets compare."""
    root = ("%r1", 0)
    ptx = [
        PtxAccess(10, "ld.shared.v4.f32", "load", "shared", 16, 0, root, 0),
        PtxAccess(11, "ld.shared.f32", "load", "shared", 4, 0, root, 260),
        PtxAccess(12, "ld.shared.v2.f32", "load", "shared", 8, 0, root, 264),
    ]
    neighbour = SassInstruction(0, "LDS.128", "R8, [R5.X4]", "", 10)
    wide = SassInstruction(16, "LDS.128", "R12, [R5.X4+0x100]", "", 11)

    def matched(*written: SassInstruction) -> list[tuple[int, int, bool]]:
        sass = [access for ins in written if (access := access_of(ins, 0))]
        found = match_accesses(ptx, sass, [SassBlock(0, written, ())])
        return [(match.width, match.shift, match.matched) for match in found]

    assert matched(neighbour, wide) == [(0, 0, True), (16, -4, True), (HIDDEN, 0, True)]
    # Without the neighbour its start is unknown, and the two alone do not fill 16 bytes.
    assert matched(wide) == [(0, 0, False)] * 3


def unrolled(*shared: tuple[str, str, int]) -> tuple[SassInstruction, ...]:
    """A SASS block: one line 5 around the loop, four copies of its lines 20 to 24, and accesses."""
    plain = [(5, "IADD3"), *[(line, "FFMA") for line in range(20, 25) for _ in range(4)]]
    written = [SassInstruction(16 * at, opcode, "R1, R2, R3", "", line) for at, (line, opcode) in enumerate(plain)]
    return (*written, *(SassInstruction(999, opcode, operands, "", line) for opcode, operands, line in shared))


LINES = {0: range(1, 9), 1: range(10, 30)}
BASE = ("%r1", 0)
AROUND = PtxAccess(6, "st.shared.f32", "store", "shared", 4, 0, ("%r9", 0), 0)
FIRST = PtxAccess(10, "ld.shared.f32", "load", "shared", 4, 1, BASE, 0)
SECOND = PtxAccess(11, "ld.shared.f32", "load", "shared", 4, 1, BASE, 4)


def test_a_fully_unrolled_loop_shares_a_block_with_the_code_around_it() -> None:
    """Two neighbours in each of four iterations are two LDS.128; the store before the loop has its one copy."""
    block = unrolled(("STS", "[R9], R1", 6), ("LDS.128", "R4, [R2]", 10), ("LDS.128", "R8, [R2+0x10]", 10))
    sass = [access for ins in block if (access := access_of(ins, 0))]
    store, first, second = match_accesses([AROUND, FIRST, SECOND], sass, [SassBlock(0, block, ())], lines=LINES)
    assert (store.width, store.matched) == (0, True)
    assert (first.width, first.every, first.matched) == (16 | ALIGNED, 2, True)
    assert (second.width, second.every, second.leader, second.matched) == (HIDDEN, 2, 10, True)


TWICE = (("LDS", "R3, [R2]", 10), ("LDS.128", "R4, [R2]", 10))


def loaded_twice(*shared: tuple[str, str, int], extra: str = "") -> Match:
    """The one access FIRST in a block with four copies of its loop; `extra` is written between the accesses."""
    block = list(unrolled(*shared))
    if extra:
        opcode, _, operands = extra.partition(" ")
        block.insert(-1, SassInstruction(998, opcode, operands, "", 23))
    sass = [access for ins in block if (access := access_of(ins, 0))]
    (only,) = match_accesses([FIRST], sass, [SassBlock(0, tuple(block), ())], lines=LINES)
    return only


def test_a_part_that_is_loaded_early_and_again_is_matched() -> None:
    """Four iterations: one access of 16 bytes for all, and one of 4 bytes for the first, or for each of the first."""
    one, two = loaded_twice(*TWICE), loaded_twice(("LDS", "R9, [R2+0x4]", 10), *TWICE)
    assert (one.width, one.every, one.matched) == (16 | ALIGNED | EARLY | 16 * SPAN, 2, True)
    assert (two.width, two.every, two.matched) == (16 | ALIGNED | 2 * EARLY | 16 * SPAN, Fraction(4, 3), True)


@pytest.mark.parametrize(
    "shared, extra",
    [
        ((("LDS", "R3, [R8]", 10), TWICE[1]), ""),  # another base
        ((("LDS", "R3, [R2+0x10]", 10), TWICE[1]), ""),  # outside the bytes that the wide one loads
        ((("LDS", "R3, [R2+0x2]", 10), TWICE[1]), ""),  # not a word of it
        ((("LDS", "R3, [R2]", 10), *TWICE), ""),  # the same word twice early
        ((("LDS", "R9, [R2+0x4]", 10), ("LDS", "R9, [R2+0x8]", 10), *TWICE), ""),  # as many as iterations
        ((("LDS.64", "R3, [R2]", 10), TWICE[1]), ""),  # early, but with another width than in PTX
        ((("LDS", "R2, [R2]", 10), TWICE[1]), ""),  # the early one overwrites the base
        (TWICE, "IADD3 R2, R2, 0x10, RZ"),
        (TWICE, "IADD3 R2, P0, R2, 0x10, RZ"),
        (TWICE, "IMAD.WIDE R1, R5, 0x4, R6"),  # writes R1 and R2
        (TWICE, "LDS.128 R0, [R40]"),  # writes R0 to R3
        (TWICE, "SHFL.BFLY PT, R2, R3, 0x1, 0x1f"),
    ],
)
def test_ambiguous_early_loads_are_not_matched(shared: tuple[tuple[str, str, int], ...], extra: str) -> None:
    only = loaded_twice(*shared, extra=extra)
    assert not only.matched and "different widths" in only.reason


@pytest.mark.parametrize("extra", ["IADD3 R1, R2, 0x10, RZ", "FFMA R3, R2, R2, R3", "STS [R9], R2", "MOV UR2, 0x1"])
def test_reading_the_base_register_does_not_prevent_a_match(extra: str) -> None:
    assert loaded_twice(*TWICE, extra=extra).matched


def test_a_predicate_on_one_of_two_widths_is_not_matched() -> None:
    early = SassInstruction(998, "LDS", "R3, [R2]", "P0", 10)
    block = (*unrolled(), early, SassInstruction(999, "LDS.128", "R4, [R2]", "", 10))
    sass = [access for ins in block if (access := access_of(ins, 0))]
    (only,) = match_accesses([FIRST], sass, [SassBlock(0, block, ())], lines=LINES)
    assert not only.matched


def test_the_block_tile_of_the_ladder_is_matched() -> None:
    """64 x 64 results of 16 warps, k-tiles of 8: per tile and warp 8 rows of A by two broadcast LDS.128, 8 LDS of B.

    A broadcast of 16 bytes takes two wavefronts; two STS fill the tiles.
    """
    folder = Path(__file__).parents[2] / "benchmarks" / "sgemm"
    profiler = Profiler(weft.VirtualGPU("sm_86", threads=1))
    load(folder / "kernel_4.cu", arch="sm_86").run(profiler, {}, sizes={"N": 128}, ctas=CtaSample(((0, 0),)))
    counts = profiler.counts[-1][1]
    tiles = 16 * (128 // 8)
    assert counts.matched == 1.0
    assert counts.ncu["smsp__sass_inst_executed_op_shared_ld.sum"] == tiles * (8 * 2 + 8)
    assert counts.ncu["memory_l1_wavefronts_shared"] == tiles * (8 * 2 * 2 + 8 + 2)


def test_without_a_cubin_nothing_has_a_name_of_ncu() -> None:
    profiler = Profiler(weft.VirtualGPU("sm_86", threads=1))
    a, out = np.zeros(256, np.float32), np.zeros(256, np.float32)
    profiler.launch(replace(merged(), cubin=b""), "k", 1, 256, [a, out, np.int32(0)])
    counts = profiler.counts[-1][1]
    assert counts.matched == 0.0
    assert counts.sass == {}
    assert all(name == "smsp__inst_executed_op_ldgsts.sum" and not value for name, value in counts.ncu.items())
    assert counts.vm["vm__shared_st"] == 8
    assert counts.vm["vm__shared_wavefronts_matched"] == 0
    assert any(NO_CUBIN in note for note in counts.notes)


def test_an_access_that_ptxas_removed_is_not_matched() -> None:
    """The cubin of another kernel represents one from which ptxas has removed the loads."""
    other = compiled("out[threadIdx.x] = n;")
    kernel = match_kernel(replace(merged(), cubin=other.cubin), "k")
    unmatched = [m for m in kernel.matches if not m.matched]
    assert {m.access.verb for m in unmatched} >= {"load"}
    assert all(m.reason for m in unmatched)


def test_blocks_of_a_disassembly() -> None:
    text = """
\t.section\t.text.k,"ax",@progbits
k:
.text.k:
\t//## File ".nv_debug_ptx_txt", line 7
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
\t//## File ".nv_debug_ptx_txt", line 9
        /*0010*/                   LDS.U.128 R4, [R7.X4+0x100] ;
        /*0020*/              @!PT LDS RZ, [RZ] ;
        /*0030*/               @P0 BRA `(.L_x_1) ;
        /*0040*/                   EXIT ;
\t.section\t.text.other,"ax",@progbits
        /*0000*/                   EXIT ;
"""
    blocks = read_blocks(text, "k")
    assert [len(block.instructions) for block in blocks] == [1, 3, 1]
    assert [block.successors for block in blocks] == [(1,), (1, 2), ()]
    wide, never = (access_of(ins, 1) for ins in blocks[1].instructions[:2])
    assert wide is not None and (wide.bytes, wide.ins.ptx_line, wide.address) == (16, 9, ("R7.X4", 256))
    assert never is None
    with pytest.raises(UsageError, match="no kernel missing"):
        read_blocks(text, "missing")


@pytest.mark.parametrize(
    "opcode, verb, width, matrices",
    [
        ("LDG.E.U16.CONSTANT", "load", 2, 0),
        ("LDG.E.128.CONSTANT", "load", 16, 0),
        ("STS.64", "store", 8, 0),
        ("STS.U8", "store", 1, 0),
        ("LDSM.16.MT88.4", "load", 16, 4),
        ("LDSM.16.M88", "load", 16, 1),
        ("LDGSTS.E.BYPASS.128", "copy", 16, 0),
        ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU", "atomic", 4, 0),
    ],
)
def test_width_of_a_sass_access(opcode: str, verb: str, width: int, matrices: int) -> None:
    access = access_of(SassInstruction(0, opcode, "R0, [R2]", "", 1), 0)
    assert access is not None
    assert (access.verb, access.bytes, access.matrices) == (verb, width, matrices)
