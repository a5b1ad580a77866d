"""How many CTAs of a launch the GPU holds at once."""

from math import prod
from typing import TYPE_CHECKING

from weft.core.chips import Chip
from weft.core.register_file import blocks_by_registers

from .ir import LANES
from .launch_spec import LaunchSpec

if TYPE_CHECKING:
    from .program import Plan

MOST_HOST_BYTES = 2 << 30
"""Limit of all CTAs' records, registers and local memory on this machine."""


def resident_ctas(plan: "Plan", launch: LaunchSpec, chip: Chip) -> int:
    """Return how many CTAs run at once, by threads, shared memory and, if they are known, registers."""
    sm = chip.architecture
    threads = prod(launch.block)
    warps = -(-threads // LANES)
    shared = plan.layout.static_shared_bytes + launch.shared_bytes + sm.reserved_shared_bytes
    held = min(sm.max_blocks, sm.max_warps // warps, sm.shared_bytes // shared)
    if launch.registers:
        held = min(held, blocks_by_registers(sm, threads, launch.registers))
    lane_bytes = plan.layout.local_bytes + plan.frame_bytes // LANES + 64
    host_bytes = warps * LANES * lane_bytes + shared + (1 << 14)
    return max(1, min(chip.sms * held, MOST_HOST_BYTES // host_bytes))
