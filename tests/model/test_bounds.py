"""Bounds computed by hand, and compared with machines without any latency that schedule entire blocks."""

import heapq
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.chips import TensorKind, chip
from weft.core.errors import UsageError
from weft.model.bounds import lower_bounds, sm_cycles
from weft.model.occupancy import LaunchShape, occupancy
from weft.model.work import Instructions, Memory, Work, instructions_of

ONE_WARP = LaunchShape(threads=32, grid=1, registers=32, shared_bytes=0)


def work(sass: dict[str, int], launch: LaunchShape = ONE_WARP, memory: Memory | None = None) -> Work:
    return Work(launch, instructions_of(sass), memory or Memory())


@pytest.mark.parametrize(
    ("name", "opcode", "cycles"),
    [
        ("a100", "HMMA.16816.F32", 8),
        ("a6000", "HMMA.16816.F32", 16),
        ("l4", "HMMA.16816.F32", 16),
        ("l40s", "HMMA.16816.F32", 16),
        ("rtx3090", "HMMA.16816.F32", 32),
        ("rtx4090", "HMMA.16816.F32", 32),
        ("rtx4090", "HMMA.16816.F16", 16),
        ("h100", "HMMA.16816.F32", 4),
        ("l4", "IMMA.16832.S8.S8", 16),
        ("l4", "QMMA.16832.F32.E4M3.E4M3", 16),
        ("rtx4090", "QMMA.16832.F32.E4M3.E4M3", 16),
        ("a100", "MUFU.EX2", 8),
        ("a100", "FFMA", 2),
        ("a6000", "FFMA", 1),
        ("a6000", "IMAD.WIDE", 2),
        ("l4", "LOP3.LUT", 2),
    ],
)
def test_cycles_of_a_warp_instruction_in_its_sub_partition(name: str, opcode: str, cycles: int) -> None:
    """Four of them, one per sub-partition, take an SM these cycles; so does one warp that is alone."""
    one = chip(name)
    assert max(sm_cycles(work({opcode: 4}), one).values()) == cycles
    assert lower_bounds(work({opcode: 100}), one).terms["latency"] == 100 * cycles


def test_what_an_sm_shares() -> None:
    """Load/store units and shared memory belong to the SM, not to a sub-partition."""
    memory = Memory(shared_wavefronts=64)
    for name, cycles in (("a100", 16), ("a6000", 32), ("l4", 32), ("h100", 16)):
        found = sm_cycles(work({"LDS.128": 16}, memory=memory), chip(name))
        assert (found["lsu"], found["smem"], found["issue"]) == (cycles, 64, 4)


def test_the_tail_of_a_grid_counts_where_blocks_are_alike() -> None:
    """58 SMs: 59 equal blocks take as long as 116 of them, and unequal ones may balance."""
    l4 = chip("l4")
    per_block = 1000
    for grid, blocks_on_the_busiest in ((1, 1), (58, 1), (59, 2), (116, 2), (117, 3)):
        for uniform in (True, False):
            launch = LaunchShape(128, grid, 32, 0, uniform)
            terms = lower_bounds(work({"FFMA": per_block * grid}, launch), l4).terms
            busiest = blocks_on_the_busiest if uniform else grid / 58
            assert terms["fma"] == pytest.approx(busiest * per_block * 32 / 128)


def test_dram_and_l2() -> None:
    """A launch that reads 300.1 MB from L4's DRAM takes a millisecond; what it stores may stay in 48 MiB of L2."""
    l4, sectors = chip("l4"), 300_100_000 // 32
    found = lower_bounds(work({"LDG.E": 1}, memory=Memory(load_sectors=sectors, store_sectors=1 << 20)), l4)
    assert found.cold_limiter == "dram"
    assert found.microseconds(found.cold) == pytest.approx(1000, rel=1e-5)
    assert found.cold == pytest.approx(2.04e6, rel=1e-5)
    assert found.warm_limiter == "l2"
    assert found.warm == sectors * 32 // (64 * 58)
    stored = lower_bounds(work({"STG.E": 1}, memory=Memory(store_sectors=(48 << 20) // 32 + sectors)), l4)
    assert stored.microseconds(stored.cold) == pytest.approx(1000, rel=1e-5)


def test_the_clock_is_the_highest_unless_it_is_known() -> None:
    a6000 = chip("a6000")
    one = work({"FFMA": 1_000_000}, memory=Memory(load_sectors=10**6))
    assert lower_bounds(one, a6000).clock_ghz == 2.1
    slow, fast = lower_bounds(one, a6000, clock_ghz=1.05), lower_bounds(one, a6000)
    assert slow.warm == fast.warm
    assert slow.terms["dram"] == pytest.approx(fast.terms["dram"] / 2)
    for wrong in (0.0, -1.0, 2.2, 1800.0, float("nan")):
        with pytest.raises(UsageError, match="allows at most"):
            lower_bounds(one, a6000, clock_ghz=wrong)


def test_names() -> None:
    found = lower_bounds(work({"FFMA": 100}), chip("l4")).named
    assert found["lb__warm_cycles"] == found["lb__latency_cycles"] == 100
    assert {"lb__tensor_cycles", "lb__dram_cycles", "lb__cold_cycles"} <= set(found)


OPCODES = ("HMMA.16816.F32", "FFMA", "IMAD", "LOP3.LUT", "MUFU.EX2", "LDS.128", "BRA")
COUNTS = st.dictionaries(st.sampled_from(OPCODES), st.integers(0, 10**6), min_size=1)


@settings(max_examples=60)
@given(
    sass=COUNTS, more=st.sampled_from(OPCODES), grid=st.integers(1, 2000), name=st.sampled_from(["a100", "l4", "h100"])
)
def test_more_work_is_never_faster(sass: dict[str, int], more: str, grid: int, name: str) -> None:
    launch = LaunchShape(128, grid, 64, 4096, uniform=True)
    before = lower_bounds(work(sass, launch), chip(name))
    after = lower_bounds(work(sass | {more: sass.get(more, 0) + 1}, launch), chip(name))
    assert after.warm >= before.warm
    assert before.cold >= before.warm
    assert before.warm <= before.terms[before.warm_limiter] < before.warm + 1


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("uniform", [False, True])
def test_no_placement_of_blocks_beats_the_bound(seed: int, uniform: bool) -> None:
    """Simulate SMs that work at full rate in every unit; blocks are assigned one by one to the least busy SM."""
    random, one = Random(seed), chip("l4")
    grid, warps = random.randint(1, 400), random.randint(1, 8)
    kinds = ("FFMA", "MUFU.EX2", "LDS.128", "HMMA.16816.F32")
    cost = {"FFMA": 32 / 128, "MUFU.EX2": 32 / 16, "LDS.128": 2.0, "HMMA.16816.F32": 2048 / 512}
    same = {kind: random.randint(0, 500) for kind in kinds}
    blocks = [same if uniform else {kind: random.randint(0, 500) for kind in kinds} for _ in range(grid)]
    busy = [dict.fromkeys(kinds, 0.0) for _ in range(one.sms)]
    for block in blocks:
        idlest = min(busy, key=lambda units: max(units.values()))
        for kind in kinds:
            idlest[kind] += block[kind] * cost[kind]
    makespan = max(max(units.values()) for units in busy)
    total = {kind: sum(block[kind] for block in blocks) for kind in kinds}
    terms = lower_bounds(work(total, LaunchShape(32 * warps, grid, 32, 0, uniform)), one).terms
    assert max(terms[unit] for unit in ("fma", "mufu", "lsu", "tensor", "issue")) <= makespan * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("uniform", [False, True])
def test_no_order_of_blocks_beats_the_latency(seed: int, uniform: bool) -> None:
    """Every warp issues one instruction per cycle, independent of the others; a block ends with its last warp."""
    random, one = Random(seed), chip("l4")
    warps, grid = random.randint(1, 16), random.randint(1, 3000)
    alike = random.randint(1, 900)
    blocks = [[alike if uniform else random.randint(1, 900) for _ in range(warps)] for _ in range(grid)]
    launch = LaunchShape(32 * warps, grid, random.choice([32, 64, 96]), random.choice([0, 16384, 40000]), uniform)
    free_at = [0] * (one.sms * occupancy(launch, one).blocks)
    for block in blocks:
        heapq.heapreplace(free_at, free_at[0] + max(block))
    executed = sum(sum(block) for block in blocks)
    terms = lower_bounds(Work(launch, Instructions(executed), Memory()), one).terms
    assert terms["latency"] <= max(free_at) * (1 + 1e-12)
    if uniform:
        assert terms["latency"] == pytest.approx(max(free_at))


def test_a_type_that_the_gpu_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="no fp8_f32"):
        lower_bounds(work({"QMMA.16832.F32.E4M3.E4M3": 1}), chip("a100"))
    assert TensorKind.FP8_F32 in chip("l4").tensor_macs
