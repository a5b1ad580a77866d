"""Occupancy three times: NVIDIA's calculator, a brute force that places warps, and a capture of ncu."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.chips import Architecture, chip
from weft.core.errors import ResourceError, UsageError
from weft.model.occupancy import LaunchShape, occupancy, shared_per_block

BY_CAPABILITY = {"80": "a100", "86": "a6000", "89": "l4", "90": "h100", "120": "rtx5090"}
ROWS = [
    tuple(line.split())
    for line in (Path(__file__).parent / "cuda_occupancy.txt").read_text().splitlines()
    if not line.startswith("#")
]


def test_there_are_rows_of_every_capability() -> None:
    assert len(ROWS) == 250
    assert {row[0] for row in ROWS} == set(BY_CAPABILITY)


@pytest.mark.parametrize("capability", BY_CAPABILITY)
def test_nvidias_calculator_says_the_same(capability: str) -> None:
    one = chip(BY_CAPABILITY[capability])
    for row in ROWS:
        if row[0] != capability:
            continue
        registers, threads, shared, blocks, *limits = (int(number) for number in row[1:])
        launch = LaunchShape(threads, 1, registers, shared)
        if blocks == 0:
            with pytest.raises(ResourceError):
                occupancy(launch, one)
            continue
        found = occupancy(launch, one)
        assert found.blocks == blocks, row
        assert [found.by_registers, found.by_shared, found.by_warps, found.by_blocks] == limits, row


def blocks_that_fit(launch: LaunchShape, arch: Architecture) -> int:
    """Places block after block, its warps one by one into the sub-partition with most registers left."""
    free = [arch.registers // 4] * 4
    shared, warps, blocks = arch.shared_bytes, 0, 0
    while True:
        shared -= 1024 + (launch.shared_bytes + 127) // 128 * 128
        for _ in range((launch.threads + 31) // 32):
            free[free.index(max(free))] -= (launch.registers * 32 + 255) // 256 * 256
            warps += 1
        if blocks == arch.max_blocks or warps > arch.max_warps or shared < 0 or min(free) < 0:
            return blocks
        blocks += 1


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(BY_CAPABILITY.values())),
    threads=st.integers(1, 1024),
    registers=st.integers(1, 255),
    shared=st.integers(0, 232448),
)
def test_brute_force(name: str, threads: int, registers: int, shared: int) -> None:
    launch, one = LaunchShape(threads, 1, registers, shared), chip(name)
    most = blocks_that_fit(launch, one.architecture)
    if shared > one.architecture.shared_bytes_per_block or most == 0:
        with pytest.raises(ResourceError):
            occupancy(launch, one)
        return
    assert occupancy(launch, one).blocks == most


def test_the_captured_gemm() -> None:
    """ncu on an A6000: 1024 threads, 37 registers, 8192 bytes of tiles; 66.67 %, one block by warps or registers."""
    found = occupancy(LaunchShape(1024, 1024, 37, 8192), chip("a6000"))
    assert shared_per_block(8192, chip("a6000").architecture) == 9216
    assert found.warps == 32
    assert found.ncu["sm__maximum_warps_per_active_cycle_pct"] == pytest.approx(66.67, abs=0.005)
    assert found.ncu["launch__waves_per_multiprocessor"] == pytest.approx(12.19, abs=0.005)
    assert found.ncu["launch__occupancy_limit_registers"] == 1
    assert found.ncu["launch__occupancy_limit_shared_mem"] == 11
    assert found.ncu["launch__occupancy_limit_warps"] == 1
    assert found.ncu["launch__occupancy_limit_blocks"] == 16
    assert found.limiters == ("registers", "warps")


@pytest.mark.parametrize(
    "wrong", [(0, 1, 32, 0), (1025, 1, 32, 0), (32, 0, 32, 0), (32, 1, 0, 0), (32, 1, 256, 0), (32, 1, 32, -1)]
)
def test_impossible_launches_are_refused(wrong: tuple[int, int, int, int]) -> None:
    with pytest.raises(UsageError):
        LaunchShape(*wrong)
