"""How many CTAs of a launch the GPU holds at once."""

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from .ir import LANES
from .launch_spec import LaunchSpec

if TYPE_CHECKING:
    from .program import Plan


@dataclass(frozen=True)
class Chip:
    """What a GPU has for CTAs: the largest product of each architecture."""

    multiprocessors: int
    threads: int
    """Per multiprocessor, like all that follow."""
    ctas: int
    shared_bytes: int


CHIPS = {
    "sm_80": Chip(108, 2048, 32, 164 * 1024),
    "sm_86": Chip(84, 1536, 16, 100 * 1024),
    "sm_87": Chip(16, 1536, 16, 164 * 1024),
    "sm_89": Chip(128, 1536, 24, 100 * 1024),
    "sm_90": Chip(132, 2048, 32, 228 * 1024),
}
SYSTEM_SHARED_BYTES = 1024
"""Shared memory that every CTA takes beside its own."""
MOST_HOST_BYTES = 2 << 30
"""Of all CTAs' records, registers and local memory on this machine."""


def resident_ctas(plan: "Plan", launch: LaunchSpec) -> int:
    """CTAs that run at once, by threads and shared memory; registers are not counted, a spill would change them."""
    chip = CHIPS.get(plan.arch.removesuffix("a"), CHIPS["sm_89"])
    threads = -(-prod(launch.block) // LANES) * LANES
    shared = plan.layout.static_shared_bytes + launch.shared_bytes + SYSTEM_SHARED_BYTES
    held = chip.multiprocessors * min(chip.ctas, chip.threads // threads, chip.shared_bytes // shared)
    host_bytes = threads * (plan.layout.local_bytes + plan.frame_bytes // LANES + 64) + shared + (1 << 14)
    return max(1, min(held, MOST_HOST_BYTES // host_bytes))
