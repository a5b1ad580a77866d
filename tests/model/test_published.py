"""A bound above a published measurement would disprove it.

Counts are those that the published tiling needs at least, by hand: instructions not listed can only make it slower.
"""

import re
from pathlib import Path

import pytest

from weft.core.chips import chip
from weft.model.bounds import Bounds, lower_bounds
from weft.model.estimate import estimate
from weft.model.occupancy import LaunchShape
from weft.model.published import published
from weft.model.work import Memory, Work, instructions_of

N = 4096
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "model.md"


def gemm(n: int, threads: int, outputs_per_block: int, per_warp: dict[str, int], memory: Memory) -> Work:
    """Return a GEMM of n³ by blocks that are all alike; `per_warp` is what a warp executes."""
    grid = n * n // outputs_per_block
    sass = {opcode: count * grid * threads // 32 for opcode, count in per_warp.items()}
    return Work(LaunchShape(threads, grid, 37, 0, uniform=True), instructions_of(sass), memory)


def sectors_of(n: int, **more: int) -> Memory:
    """A, B and C are read, C is written: n² floats each, 8 to a sector."""
    return Memory(load_sectors=3 * n * n // 8, store_sectors=n * n // 8, **more)


def untiled(n: int, tags_of_a: int) -> Work:
    """Every multiply-add loads its element of A and of B."""
    warps = n * n // 32
    tags = warps * (n * (tags_of_a + 1) + 2)
    return gemm(n, 1024, 1024, {"FFMA": n, "LDG.E": 2 * n + 1, "STG.E": 1}, sectors_of(n, tags=tags))


def tiled(n: int) -> Work:
    """32 × 32 tiles, one output per thread. Per tile and warp: A as 8 LDS.128, B as 32 LDS, 2 LDG, 2 STS."""
    tiles, warps = n // 32, n * n // 32
    per_warp = {
        "FFMA": n,
        "LDS.128": 8 * tiles,
        "LDS": 32 * tiles,
        "STS": 2 * tiles,
        "LDG.E": 2 * tiles + 1,
        "STG.E": 1,
    }
    return gemm(n, 1024, 1024, per_warp, sectors_of(n, shared_wavefronts=warps * tiles * (8 * 2 + 32 + 2)))


def register_tiled(bm: int, bn: int, bk: int, threads: int, fragment: tuple[int, int], *, width: int) -> Work:
    """Each thread multiplies a fragment of A by one of B per k, read from shared memory by LDS.128 where it can be.

    `width` is the floats of one instruction that copies a tile into shared memory.
    """
    tm, tn = fragment
    assert tm * tn * threads == bm * bn
    quads, singles = tm // 4 + tn // 4, tm % 4 + tn % 4
    copies = (bm + bn) * bk // threads // width * (N // bk)
    per_warp = {"FFMA": tm * tn * N, "LDS.128": quads * N, "LDS": singles * N, "STS": copies, "LDG.E": copies}
    # One LDS.128 takes two wavefronts even where all lanes read the same.
    wavefronts = N * N // (bm * bn) * threads // 32 * N * (2 * quads + singles)
    return gemm(N, threads, bm * bn, per_warp, sectors_of(N, shared_wavefronts=wavefronts))


SGEMM = {
    "1": untiled(N, tags_of_a=32),
    "2": untiled(N, tags_of_a=1),
    "3": tiled(N),
    "4": register_tiled(64, 64, 8, 512, (8, 1), width=1),
    "5": register_tiled(128, 128, 8, 256, (8, 8), width=1),
    "6": register_tiled(128, 128, 8, 256, (8, 8), width=4),
    "7": register_tiled(128, 128, 8, 256, (8, 8), width=4),
    "8": register_tiled(128, 128, 8, 256, (8, 8), width=4),
    # Warp tiles of 64 × 64 in four steps of columns: 8 rows and 4 · 4 columns per thread.
    "10": register_tiled(128, 128, 16, 128, (8, 16), width=4),
}


def attention(wavefronts_of_ldmatrix: int) -> Work:
    """64 queries per block in 4 warps; per 64 keys a warp loads all of K and V and multiplies its 16 rows by both."""
    s, d, heads = 4096, 128, 16 * 16
    grid, tiles = s // 64 * heads, s // 64
    ldmatrix, mma = 2 * (64 // 16) * (d // 16), 2 * (64 * d * 16) // (16 * 8 * 16)
    warp_tiles = grid * 4 * tiles
    memory = Memory(
        shared_wavefronts=warp_tiles * ldmatrix * wavefronts_of_ldmatrix,
        load_sectors=3 * heads * s * d * 2 // 32,
        store_sectors=heads * s * d * 2 // 32,
    )
    sass = {"LDSM.16.M88.4": warp_tiles * ldmatrix, "HMMA.16816.F32": warp_tiles * mma}
    return Work(LaunchShape(128, grid, 128, 3 * 64 * d * 2, uniform=True), instructions_of(sass), memory)


def with_published(series: str, kernel: str, work: Work) -> tuple[Bounds, float]:
    """Return the bounds, and the larger of them as a share of the measured time."""
    row = published()[series]
    bounds = lower_bounds(work, chip(row.chip), clock_ghz=row.clock_ghz)
    return bounds, bounds.microseconds(bounds.cold) / row.microseconds[kernel]


@pytest.mark.parametrize("kernel", SGEMM)
def test_sgemm_ladder(kernel: str) -> None:
    work = SGEMM[kernel]
    assert work.instructions.fp32 * 32 == N**3
    bounds, share = with_published("sgemm_a6000", kernel, work)
    assert 0.1 < share <= 1
    at_boost = lower_bounds(work, chip("a6000"), clock_ghz=1.80)
    assert at_boost.microseconds(at_boost.cold) <= published()["sgemm_a6000"].microseconds[kernel]
    assert bounds.warm_limiter == ("lsu" if kernel in ("1", "2", "3", "4") else "issue")


def test_the_library_by_its_multiply_adds_alone() -> None:
    _, share = with_published("sgemm_a6000", "cublas", gemm(N, 256, 128 * 128, {"FFMA": 64 * N}, sectors_of(N)))
    assert 0.4 < share <= 1


@pytest.mark.parametrize(
    ("kernel", "work", "least"), [("tiled", tiled(1024), 0.8), ("untiled", untiled(1024, 1), 0.95)]
)
def test_captured_gemms_at_the_clock_they_ran_at(kernel: str, work: Work, least: float) -> None:
    bounds, share = with_published("gemm_ncu_a6000", kernel, work)
    assert bounds.clock_ghz == 1.409
    assert bounds.warm_limiter == "lsu"
    assert least < share <= 1


def test_the_hand_counts_are_those_of_the_capture() -> None:
    """ncu's integers for the tiled GEMM."""
    work = tiled(1024)
    assert work.instructions.lsu == 41_943_040 + 2 * 1_048_576 + 2_129_920 + 32_768
    assert work.memory.shared_wavefronts == 52_428_800
    assert (work.memory.load_sectors, work.memory.store_sectors) == (393_216, 131_072)


@pytest.mark.parametrize(("kernel", "wavefronts", "limiter"), [("1", 32, "smem"), ("2", 4, "tensor")])
def test_attention_with_and_without_bank_conflicts(kernel: str, wavefronts: int, limiter: str) -> None:
    """8-way conflicts make shared memory the limit; the swizzle makes it the tensor cores."""
    work = attention(wavefronts)
    assert 2 * sum(work.instructions.tensor_macs.values()) == published()["attention_rtx3090"].flop
    bounds, share = with_published("attention_rtx3090", kernel, work)
    assert bounds.warm_limiter == limiter
    assert 0.7 < share <= 1
    at_boost = lower_bounds(work, chip("rtx3090"), clock_ghz=1.695)
    assert 0.9 < at_boost.microseconds(at_boost.warm) / published()["attention_rtx3090"].microseconds[kernel] <= 1


def test_attention_on_a100() -> None:
    bounds, share = with_published("attention_a100", "reference", attention(4))
    assert bounds.warm_limiter == "tensor"
    assert 0.7 < share <= 1


def test_the_tag_rate_explains_the_uncoalesced_kernel_and_is_no_bound() -> None:
    """33 tags per multiply-add: the estimate is near the measured time, and may be above it."""
    a6000 = chip("a6000")
    found = estimate(SGEMM["1"], a6000)
    assert found.limiter == "tags and issue"
    assert found.microseconds(found.high) == pytest.approx(published()["sgemm_a6000"].microseconds["1"], rel=0.1)
    assert lower_bounds(SGEMM["1"], a6000).warm == lower_bounds(SGEMM["2"], a6000).warm


def test_the_page_has_these_shares() -> None:
    points = [("sgemm_a6000", kernel, work) for kernel, work in SGEMM.items()]
    points += [("gemm_ncu_a6000", "tiled", tiled(1024)), ("gemm_ncu_a6000", "untiled", untiled(1024, 1))]
    points += [("attention_rtx3090", "1", attention(32)), ("attention_rtx3090", "2", attention(4))]
    points += [("attention_a100", "reference", attention(4))]
    section = re.split(r"\n## .*published measurements.*\n", PAGE.read_text())[1].split("\n## ")[0]
    rows = [line.split(" | ")[1:4] for line in section.splitlines() if line.startswith("| ") and "0." in line]
    expected = []
    for series, kernel, work in points:
        bounds, share = with_published(series, kernel, work)
        expected.append([kernel, bounds.cold_limiter, f"{share:.3f}"])
    assert rows == expected
