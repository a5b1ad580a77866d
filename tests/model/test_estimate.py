"""The estimate's formula by hand; never below the bound."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.chips import chip, chips
from weft.core.errors import UsageError
from weft.model.bounds import lower_bounds
from weft.model.estimate import estimate
from weft.model.occupancy import LaunchShape
from weft.model.work import Memory, Work, instructions_of

HMMA = "HMMA.16816.F32"


def balanced(name: str, sass: dict[str, int], memory: Memory | None = None) -> Work:
    """Two blocks on every SM; the counts are those of one SM."""
    sms = chip(name).sms
    launch = LaunchShape(128, 2 * sms, 64, 0, uniform=True)
    return Work(launch, instructions_of({opcode: n * sms for opcode, n in sass.items()}), memory or Memory())


@pytest.mark.parametrize(("name", "hmma_cycles", "c"), [("a100", 8, 1.27), ("rtx3090", 32, 0.50)])
def test_calibrated(name: str, hmma_cycles: int, c: float) -> None:
    """1000 mma take 1000 · cycles / 4 of an SM, 4000 other instructions 1000 issue cycles, weighted."""
    found = estimate(balanced(name, {HMMA: 1000, "MOV": 4000}), chip(name))
    assert found.low == found.high == pytest.approx(250 * hmma_cycles + c * 1000)
    assert found.label.startswith("calibrated")
    assert found.tensor_utilisation[0] == pytest.approx(250 * hmma_cycles / found.high)
    assert found.clock_ghz == chip(name).boost_ghz


def test_uncalibrated_is_a_range_and_says_so() -> None:
    found = estimate(balanced("l4", {HMMA: 1000, "MOV": 4000}), chip("l4"))
    assert (found.low, found.high) == (pytest.approx(4400), pytest.approx(5400))
    assert found.label == "uncalibrated: c = 0.4 to 1.4"
    assert found.tensor_utilisation == (pytest.approx(4000 / 5400), pytest.approx(4000 / 4400))
    at_one = estimate(balanced("l4", {HMMA: 1000, "MOV": 4000}), chip("l4"), issue_weight=0.5)
    assert at_one.low == at_one.high == pytest.approx(4500)


def test_only_two_gpus_are_calibrated() -> None:
    assert {name for name, one in chips().items() if one.issue_weight is not None} == {"a100", "rtx3090"}


def test_mma_sync_on_hopper_is_slower_than_wgmma() -> None:
    h100 = chip("h100")
    sync = estimate(balanced("h100", {HMMA: 1000}), h100, issue_weight=0)
    group = estimate(balanced("h100", {"HGMMA.64x8x16.F32": 1000}), h100, issue_weight=0)
    assert sync.high == pytest.approx(1000 / 0.62)
    assert group.high == pytest.approx(1000)
    assert lower_bounds(balanced("h100", {HMMA: 1000}), h100).warm == 1000


def test_what_stays_out_of_the_bound() -> None:
    """cp.async's writes, shuffles and tags."""
    sms = chip("l4").sms
    memory = Memory(shared_wavefronts=300 * sms, other_wavefronts=500 * sms, tags=100 * sms)
    found = estimate(balanced("l4", {"SHFL.BFLY": 250, "LDS": 50}, memory), chip("l4"))
    assert (found.high, found.limiter) == (pytest.approx(300 + 500 + 250), "smem and issue")
    tags = estimate(balanced("l4", {"LDG.E": 50}, Memory(tags=1600 * sms)), chip("l4"))
    assert (tags.high, tags.limiter) == (pytest.approx(1600), "tags and issue")
    assert lower_bounds(balanced("l4", {"LDG.E": 50}, Memory(tags=1600 * sms)), chip("l4")).warm == 100


def test_memory_and_the_rest_overlap_in_part() -> None:
    """400 loads take 800 cycles of 16 load/store units; 4000 other instructions 1000 issue cycles, weighted."""
    found = estimate(balanced("rtx3090", {"LDS": 400, "MOV": 4000}), chip("rtx3090"))
    assert (found.high, found.limiter) == (pytest.approx(800 + 0.5 * 1000), "lsu and issue")


def test_uncertain_instructions_count_in_the_estimate() -> None:
    one = balanced("rtx3090", {HMMA: 1000, "MOV": 2000})
    unsure = replace(one, instructions=replace(one.instructions, unsure=2000 * chip("rtx3090").sms))
    assert estimate(unsure, chip("rtx3090")).high == pytest.approx(250 * 32 + 0.5 * 1000)
    assert lower_bounds(unsure, chip("rtx3090")) == lower_bounds(one, chip("rtx3090"))


def test_dram_counts_when_cold() -> None:
    l4 = chip("l4")
    one = balanced("l4", {"FFMA": 100}, Memory(load_sectors=300_100_000 // 32))
    cold = estimate(one, l4, cold=True)
    assert cold.limiter == "dram"
    assert cold.microseconds(cold.high) == pytest.approx(1000 / 0.78, rel=1e-5)
    assert estimate(one, l4).high < cold.low


def test_the_tail_of_the_grid() -> None:
    """59 blocks on 58 SMs: the busiest has two."""
    l4 = chip("l4")
    launch = LaunchShape(128, 59, 64, 0)
    found = estimate(Work(launch, instructions_of({"MOV": 59 * 4000}), Memory()), l4, issue_weight=1.0)
    assert found.wave_factor == pytest.approx(2 * 58 / 59)
    assert found.high == pytest.approx(2000)


OPCODES = (HMMA, "FFMA", "LOP3.LUT", "MUFU.EX2", "LDS.128", "SHFL.BFLY", "MOV")


@settings(max_examples=60)
@given(
    sass=st.dictionaries(st.sampled_from(OPCODES), st.integers(1, 10**7), min_size=1),
    numbers=st.tuples(*[st.integers(0, 10**7)] * 5),
    grid=st.integers(1, 3000),
    name=st.sampled_from(sorted(chips())),
    cold=st.booleans(),
)
def test_never_below_the_bound(
    sass: dict[str, int], numbers: tuple[int, ...], grid: int, name: str, cold: bool
) -> None:
    one = chip(name)
    for uniform in (True, False):
        done = Work(LaunchShape(256, grid, 96, 30000, uniform), instructions_of(sass), Memory(*numbers))
        found = estimate(done, one, cold=cold)
        bounds = lower_bounds(done, one, clock_ghz=found.clock_ghz)
        assert found.high >= found.low >= (bounds.cold if cold else bounds.warm)
        assert 0 <= found.tensor_utilisation[0] <= found.tensor_utilisation[1] <= 1 + 1e-12


def test_misuse() -> None:
    with pytest.raises(UsageError, match="must not be negative"):
        estimate(balanced("l4", {"MOV": 1}), chip("l4"), issue_weight=-1)
    with pytest.raises(UsageError, match="executes nothing"):
        estimate(balanced("l4", {}), chip("l4"))
