"""Points of the attention family: they pass every gate, one is the `wmma` rung, and levers have their effects."""

import pytest

from weft.attention.shapes import Shape
from weft.core.chips import chip
from weft.engines.kernel_file import load
from weft.evolve.levers import Point, family, observed, predicted, start_of
from weft.evolve.levers.space import Change
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.kernels import RUNGS
from weft.model.estimate import estimate
from weft.profile.kernel_profile import KernelProfile, profile_kernel
from weft.tasks.sdpa import SDPA
from weft.tasks.task import Workload

RAGGED_GQA = Shape("ragged_gqa", 1, 4, 2, 37, 141, 20)  # rows that are neither complete fragments nor complete chunks
FEW_KEYS = Shape("few_keys_d32", 1, 2, 2, 100, 20, 32)
LONG = Shape("long_d16", 1, 1, 1, 130, 333, 16)
RAGGED = Shape("ragged_d48", 1, 2, 1, 85, 150, 48)

# Each value of each lever is in at least one of them.
CASES = (
    (
        "PRODUCT=wmma BLOCK_M=48 BLOCK_N=32 WARPS=3 COPY=async STAGES=3 LAYOUT=plain Q_AT=shared EXP=fused "
        "RESCALE=lazy TAIL=edge",
        Workload(RAGGED_GQA, "f16", "bottom_right", "unit_normal", 1),
    ),
    (
        "PRODUCT=wmma BLOCK_M=16 BLOCK_N=128 WARPS=6 COPY=plain STAGES=2 LAYOUT=padded Q_AT=shared EXP=exp2 "
        "RESCALE=moved TAIL=every",
        Workload(RAGGED, "bf16", "top_left", "v_offset", 0),
    ),
    (
        "PRODUCT=mma BLOCK_M=32 BLOCK_N=32 WARPS=1 COPY=plain STAGES=1 LAYOUT=plain Q_AT=shared EXP=exp "
        "RESCALE=lazy TAIL=every",
        Workload(LONG, "f16", "none", "sorted_keys", 0),
    ),
    (
        "PRODUCT=mma BLOCK_M=80 BLOCK_N=64 WARPS=5 COPY=async STAGES=4 LAYOUT=swizzled Q_AT=registers EXP=fused "
        "RESCALE=lazy TAIL=edge",
        Workload(FEW_KEYS, "f16", "bottom_right", "logits_32", 0),
    ),
    (
        "PRODUCT=mma BLOCK_M=128 BLOCK_N=32 WARPS=4 COPY=async STAGES=2 LAYOUT=padded Q_AT=registers EXP=exp2 "
        "RESCALE=moved TAIL=edge",
        Workload(RAGGED_GQA, "bf16", "top_left", "large_magnitude", 2),
    ),
    (
        "PRODUCT=mma BLOCK_M=96 BLOCK_N=32 WARPS=8 COPY=plain STAGES=3 LAYOUT=swizzled Q_AT=shared EXP=fused "
        "RESCALE=always TAIL=edge",
        Workload(LONG, "f16", "none", "large_magnitude", 1),
    ),
    (
        "PRODUCT=mma BLOCK_M=64 BLOCK_N=32 WARPS=2 COPY=async STAGES=1 LAYOUT=padded Q_AT=registers EXP=exp "
        "RESCALE=always TAIL=every",
        Workload(RAGGED, "f16", "bottom_right", "unit_normal", 0),
    ),
)


def test_the_cases_have_every_value() -> None:
    points = [Point.parse(text) for text, _ in CASES] + [start_of("wmma")]
    for lever in family("sdpa").levers:
        assert {point[lever.name] for point in points} == set(lever.values), lever.name


@pytest.mark.parametrize(("text", "workload"), CASES, ids=[str(number) for number in range(len(CASES))])
def test_points_are_right(text: str, workload: Workload) -> None:
    space, point = family("sdpa"), Point.parse(text)
    assert space.refusal(point) is None
    verdict = check(Candidate(space.path, defines=point.defines), SDPA, workload)
    assert verdict.passed, verdict.message
    assert not verdict.findings


def profiled(point: Point | None, shape: Shape) -> KernelProfile:
    """Return the profile of a point, or of the rung."""
    path, defines = (RUNGS["wmma"].path, {}) if point is None else (family("sdpa").path, point.defines)
    sizes = {"B": shape.b, "HQ": shape.hq, "HKV": shape.hkv, "SQ": shape.sq, "SKV": shape.skv, "D": shape.d}
    return profile_kernel(load(path, defines=defines), chip("l4"), sizes=sizes)


def cycles(profile: KernelProfile) -> float:
    return sum(estimate(launch.work, profile.chip, issue_weight=0.5).high for launch in profile.launches)


def test_the_rung_is_a_point_of_the_family() -> None:
    shape = Shape("one_head", 1, 1, 1, 128, 128, 64)
    rung, start = profiled(None, shape), profiled(start_of("wmma"), shape)
    # The same work in the same order: counters of the source are equal, counters of the compiler are close.
    for counter in ("mma", "shuffles", "shared_wavefronts", "excess_wavefronts", "global_sectors", "ldg"):
        assert observed(start)[counter] == observed(rung)[counter], counter
    assert rung.launches[0].occupancy.blocks == start.launches[0].occupancy.blocks
    assert cycles(start) == pytest.approx(cycles(rung), rel=0.1)


def test_the_family_reaches_far_below_its_start() -> None:
    shape = Shape("mission", 1, 8, 8, 512, 512, 64)
    start = profiled(start_of("wmma"), shape)
    text = (
        "PRODUCT=mma BLOCK_M=80 BLOCK_N=64 WARPS=5 COPY=async STAGES=2 LAYOUT=padded Q_AT=registers EXP=fused "
        "RESCALE=lazy TAIL=edge"
    )
    best = profiled(Point.parse(text), shape)
    assert cycles(best) < 0.3 * cycles(start)
    assert best.warm <= cycles(best)
    before, after = observed(start), observed(best)
    for change in (Change("PRODUCT", "wmma", "mma"), Change("COPY", "plain", "async")):
        for effect in predicted(change):
            if effect.counter not in ("registers", "shared_bytes"):  # other levers move them, too
                assert effect.holds(before[effect.counter], after[effect.counter]), str(effect)
