"""The integers of public ncu captures, from equivalent kernels: a tiled GEMM on an A6000, LDS.128, ldmatrix."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.engines.sample import CtaSample
from weft.profile.profiler import Profiler
from weft.profile.records import Counts

GEMM = Path(__file__).parent / "cuda/tiled_gemm.cu"
PLAIN_GEMM = Path(__file__).parent / "cuda/plain_gemm.cu"
PATTERNS = Path(__file__).parent.parent / "probes/cuda/shared_patterns.cu"
N, TILES = 1024, 32
LANE = np.arange(32)


@cache
def diagonal() -> Counts:
    """The CTAs on the diagonal of the N = 1024 launch.

    Every CTA runs the same N / 32 iterations without a branch that depends on its index, and its addresses differ from
    another's by multiples of 128 bytes: all have the same counts. 32 of 1024 ran, so the launch has 32 times as many.
    """
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal((N, N)).astype(np.float32) for _ in range(3))
    args = [a, b, c, np.int32(N), np.float32(2), np.float32(0.5)]
    before = c.copy()
    ampere = Profiler(weft.VirtualGPU("sm_86", threads=1))
    sample = CtaSample(tuple((i, i) for i in range(TILES)))
    binary = weft.compile_cuda(GEMM, arch="sm_86")
    run = ampere.launch(binary, "tiled_gemm", (TILES, TILES), (32, 32), args, ctas=sample)
    assert run.clean
    tile = slice(96, 128)
    np.testing.assert_allclose(c[tile, tile], (2 * a @ b + 0.5 * before)[tile, tile], rtol=1e-4, atol=1e-3)
    return ampere.counts[-1][1]


@pytest.mark.parametrize(
    "name, value",
    [
        ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", 2_129_920),
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 8_519_680),
        ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", 131_072),
        ("smsp__sass_inst_executed_op_shared_ld.sum", 41_943_040),
        ("smsp__sass_inst_executed_op_shared_st.sum", 2_097_152),
        ("memory_l1_wavefronts_shared", 52_428_800),
        ("derived__memory_l1_wavefronts_shared_excessive", 0),
    ],
)
def test_tiled_gemm_as_ncu_counts_it(name: str, value: int) -> None:
    assert diagonal().times(TILES).ncu[name] == value


def test_tiled_gemm_distinct_sectors() -> None:
    """The diagonal reads all of A and B and its own tiles of C; every CTA has its own tile of C."""
    matrix, tile = N * N * 4 // 32, 32 * 32 * 4 // 32
    assert diagonal().vm["vm__distinct_load_sectors"] == 2 * matrix + TILES * tile
    assert 2 * matrix + TILES**2 * tile == 393_216
    assert diagonal().vm["vm__distinct_store_sectors"] == TILES * tile
    assert "vm__distinct_load_sectors" not in diagonal().times(TILES).vm


def test_tiled_gemm_is_matched_completely_and_counts_sass_instructions() -> None:
    counts = diagonal().times(TILES)
    assert counts.matched == 1.0 and counts.notes == ()
    warps, iterations = N * N // 32, N // 32
    assert counts.sass["LDS.128"] == 8 * iterations * warps
    assert counts.sass["LDS"] == 32 * iterations * warps
    assert counts.sass["FFMA"] == (N + 1) * warps  # the products, and alpha · sum + beta · C
    assert counts.vm["vm__barriers"] == 2 * iterations * warps
    assert sum(n for opcode, n in counts.sass.items() if opcode.startswith("BAR")) == 2 * iterations * warps


def test_tiled_gemm_lines() -> None:
    """The product's line has both kinds of loads: 8 of 16 bytes at two wavefronts, 32 of 4 bytes at one."""
    here = [line for line in diagonal().lines if line.place is not None and line.place.line == 12]
    assert sum(line.executed for line in here) == 40 * 32 * 32 * TILES
    assert {line.wavefronts // line.executed for line in here if line.executed} == {1, 2}
    assert sum(line.excess for line in diagonal().lines) == 0


def test_gemm_without_tiles() -> None:
    """Eight of 1024 CTAs, which all do the same: a coalesced and a broadcast load for each k, and the read of C."""
    a, b, c = (np.ones((N, N), np.float32) for _ in range(3))
    ampere = Profiler(weft.VirtualGPU("sm_86", threads=1))
    sample = CtaSample(tuple((i, 4 * i) for i in range(8)))
    args = [a, b, c, np.int32(N), np.float32(1), np.float32(1)]
    ampere.launch(
        weft.compile_cuda(PLAIN_GEMM, arch="sm_86"), "plain_gemm", (TILES, TILES), (32, 32), args, ctas=sample
    )
    assert (c[:32, :32] == N + 1).all()
    counts = ampere.counts[-1][1].times(TILES**2 // 8)
    assert counts.matched == 1.0
    assert counts.ncu["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 67_141_632
    assert counts.ncu["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 167_903_232
    assert sum(n for opcode, n in counts.sass.items() if opcode.startswith("LDG")) == 67_141_632


@cache
def profiler() -> Profiler:
    return Profiler(weft.VirtualGPU(threads=1))


@cache
def one_access(kind: str, step: int) -> Counts:
    """A warp's access to shared memory, lane t at byte step · t."""
    entries = ["load_16", "ldmatrix_4", "uniform_16"]
    binary = weft.compile_cuda(PATTERNS, entries=entries)
    args = [(step * LANE).astype(np.int32), np.zeros(32, np.uint32), np.int32(64)]
    used = 3 if kind.startswith("uniform") else 2
    profiler().launch(binary, kind, 1, 32, args[:used], shared_bytes=32 * 1024)
    return profiler().counts[-1][1]


@pytest.mark.parametrize("step, wavefronts, excess", [(16, 35_377_920, 0), (128, 283_023_360, 247_645_440)])
def test_lds_128(step: int, wavefronts: int, excess: int) -> None:
    counts = one_access("load_16", step).times(8_844_480)
    assert counts.ncu["smsp__sass_inst_executed_op_shared_ld.sum"] == 8_844_480
    assert counts.ncu["memory_l1_wavefronts_shared"] == wavefronts
    assert counts.ncu["derived__memory_l1_wavefronts_shared_excessive"] == excess
    assert sum(n for opcode, n in counts.sass.items() if opcode.startswith("LDS")) == 8_844_480


def test_ldmatrix_of_unpadded_rows_is_8_way() -> None:
    counts = one_access("ldmatrix_4", 128)
    assert (counts.ncu["memory_l1_wavefronts_shared"], counts.ncu["memory_l1_wavefronts_shared_ideal"]) == (32, 4)
    assert counts.vm["vm__ldsm"] == 1
    assert counts.ncu["smsp__sass_inst_executed_op_shared_ld.sum"] == 0


def test_uniform_lds_128() -> None:
    counts = one_access("uniform_16", 0)
    assert (counts.ncu["memory_l1_wavefronts_shared"], counts.ncu["memory_l1_wavefronts_shared_ideal"]) == (2, 2)
