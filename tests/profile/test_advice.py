"""The advice for a line or a launch, from counts made by hand; and counters of launches that differ in certainty."""

from dataclasses import replace

import pytest

from weft.core.chips import chip
from weft.core.records import Resources
from weft.model.bounds import lower_bounds
from weft.model.estimate import estimate
from weft.model.occupancy import LaunchShape, occupancy
from weft.model.work import Instructions, Memory, Work
from weft.profile.advice import launch_advice, line_advice
from weft.profile.kernel_profile import KernelProfile, LaunchProfile
from weft.profile.line_costs import LineCost
from weft.profile.records import Counts, SourceLine

L4 = chip("l4")
NOTHING = Counts({}, {}, {}, 1.0)


def line(*accesses: SourceLine, unit: str = "issue", **sass: int) -> LineCost:
    return LineCost(None, 1.0, unit, sass, accesses)


def launch(
    *,
    threads: int = 128,
    grid: int = 464,
    registers: int = 64,
    shared: int = 0,
    spilled: int = 0,
    counts: Counts = NOTHING,
) -> LaunchProfile:
    asked = LaunchShape(threads, grid, registers, shared)
    work = Work(asked, Instructions(1000), Memory())
    return LaunchProfile(
        "k",
        (grid, 1, 1),
        (threads, 1, 1),
        shared,
        Resources(registers, spilled, 2 * spilled, shared, 0),
        counts,
        work,
        occupancy(asked, L4),
        lower_bounds(work, L4),
        estimate(work, L4),
        estimate(work, L4, cold=True),
        (),
    )


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        # ldmatrix.x4 of rows that start in the same bank: 8 rows, one after the other, for each of 4 matrices
        (
            line(SourceLine(1, "ldmatrix", None, 10, 320, 40, lane_bytes=16)),
            "8-way bank conflict: 28 of 32 wavefronts wasted per access, 280 in all; "
            "pad the row to D+8 halves (16 bytes more) or XOR-swizzle",
        ),
        (
            line(SourceLine(1, "st.shared", None, 4, 6, 4, lane_bytes=4)),
            "1.5-way bank conflict: 0.5 of 1.5 wavefronts wasted per access, 2 in all; "
            "pad the row by one word or XOR-swizzle",
        ),
        (
            line(SourceLine(1, "ld.global", None, 10, sectors=320, lane_bytes=4)),
            "uncoalesced: 32 sectors per request instead of 4; let neighbouring lanes access neighbouring addresses",
        ),
        (
            line(SourceLine(1, "ld.global", None, 10, sectors=50, lane_bytes=4)),
            "misaligned: 5 sectors per request instead of 4; align rows to 32 bytes",
        ),
        (
            line(SourceLine(1, "ld.global", None, 10, sectors=20, lane_bytes=2), unit="lsu"),
            "10 accesses of 2 bytes per lane: load up to 16 at once, or keep values",
        ),
        (
            line(SourceLine(1, "ld.global", None, 10, sectors=160, lane_bytes=16), unit="sectors"),
            "the accesses are wide and without conflicts: reuse what is loaded, in registers or larger tiles",
        ),
        (
            line(LDL=6, STL=2, FFMA=90),
            "8 accesses to local memory (spills or indexed arrays): use fewer live values or unroll less",
        ),
        (line(IMAD=5, FFMA=9), "issue slots: 14 warp instructions, most of them FFMA, IMAD"),
    ],
)
def test_advice_for_a_line(cost: LineCost, said: str) -> None:
    assert line_advice(cost) == said


def test_a_launch_without_problems_gets_no_advice() -> None:
    assert launch_advice(launch(), L4.sms) == ()


def test_spills_few_warps_and_idle_sms() -> None:
    """One block of 60 KB fits the 100 KB of an SM: 4 warps."""
    spills, few, idle = launch_advice(launch(grid=40, shared=60 * 1024, spilled=8), L4.sms)
    assert spills.startswith("spills: 8 bytes stored and 16 loaded per thread at 64 registers")
    assert few == "low occupancy: 4 of 48 warps, limited by shared memory"
    assert idle == "40 blocks leave 18 of 58 SMs idle: split the work further"


def test_a_sum_has_ncus_name_only_if_every_launch_has_it() -> None:
    tags, requests = "memory_l1_tag_requests_global", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
    first = launch(counts=Counts({}, {tags: 5, requests: 2}, {"vm__shfl": 1}, 1.0))
    second = launch(counts=Counts({}, {requests: 3}, {"vm__global_tags": 7, "vm__shfl": 1}, 1.0))
    both = KernelProfile("k", "k.cu", L4, {}, {}, "nvrtc", (first, second))
    assert both.counters() == ({requests: 5}, {"vm__global_tags": 12, "vm__shfl": 2})
    assert both.warm == 2 * first.bounds.warm
    assert replace(both, launches=(first,)).counters()[0] == {tags: 5, requests: 2}
