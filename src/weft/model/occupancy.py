"""Blocks and warps that an SM holds, by each limit. The integers are those of NVIDIA's occupancy calculator."""

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.chips import Architecture, Chip
from weft.core.errors import ResourceError, UsageError
from weft.core.register_file import LANES, blocks_by_registers, require_registers

MAX_THREADS = 1024
MAX_REGISTERS = 255


@dataclass(frozen=True)
class LaunchShape:
    """The resources that a launch requires."""

    threads: int
    """Per block."""
    grid: int
    """Blocks."""
    registers: int
    """Per thread."""
    shared_bytes: int
    """Static and dynamic, per block, without the driver's part."""
    uniform: bool = False
    """Every block does the same work. If False, as with a causal mask, the bounds ignore the tail of the grid."""

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= MAX_THREADS:
            raise UsageError(f"a block has 1 to {MAX_THREADS} threads, not {self.threads}")
        if self.grid < 1:
            raise UsageError(f"a grid has at least one block, not {self.grid}")
        if not 1 <= self.registers <= MAX_REGISTERS:
            raise UsageError(f"a thread has 1 to {MAX_REGISTERS} registers, not {self.registers}")
        if self.shared_bytes < 0:
            raise UsageError(f"shared memory of {self.shared_bytes} bytes: the size must not be negative")

    @property
    def warps(self) -> int:
        """Return the warps per block."""
        return -(-self.threads // LANES)


@dataclass(frozen=True)
class Occupancy:
    """Blocks per SM by each limit, and what follows from the smallest."""

    by_registers: int
    by_shared: int
    """At the largest share of L1 that shared memory can have; a driver may set a smaller one that limits no further."""
    by_warps: int
    by_blocks: int
    warps_per_block: int
    max_warps: int
    waves: float
    """Blocks of the grid divided by the blocks that the GPU holds at once."""

    @property
    def blocks(self) -> int:
        """Return the blocks per SM."""
        return min(self.by_registers, self.by_shared, self.by_warps, self.by_blocks)

    @property
    def warps(self) -> int:
        """Return the warps per SM."""
        return self.blocks * self.warps_per_block

    @property
    def limiters(self) -> tuple[str, ...]:
        """Return what to change to hold more blocks: every limit that is as small as the smallest."""
        limits = (
            ("registers", self.by_registers),
            ("shared_mem", self.by_shared),
            ("warps", self.by_warps),
            ("blocks", self.by_blocks),
        )
        return tuple(name for name, blocks in limits if blocks == self.blocks)

    @property
    def ncu(self) -> Mapping[str, float]:
        """Return the values under ncu's names."""
        return {
            "launch__occupancy_limit_registers": self.by_registers,
            "launch__occupancy_limit_shared_mem": self.by_shared,
            "launch__occupancy_limit_warps": self.by_warps,
            "launch__occupancy_limit_blocks": self.by_blocks,
            "launch__waves_per_multiprocessor": self.waves,
            "sm__maximum_warps_per_active_cycle_pct": 100 * self.warps / self.max_warps,
        }


def occupancy(launch: LaunchShape, chip: Chip) -> Occupancy:
    """Return the occupancy of a launch; raises ResourceError if not even one block fits."""
    arch = chip.architecture
    counted = shared_per_block(launch.shared_bytes, arch)
    if launch.shared_bytes > arch.shared_bytes_per_block:
        raise ResourceError(
            f"a block requires {launch.shared_bytes} bytes of shared memory, {chip.title} has at most "
            f"{arch.shared_bytes_per_block} per block: use smaller tiles or fewer stages"
        )
    require_registers(arch, launch.threads, launch.registers)
    by_registers = blocks_by_registers(arch, launch.threads, launch.registers)
    by_shared = arch.shared_bytes // counted
    by_warps = arch.max_warps // launch.warps
    held = min(by_registers, by_shared, by_warps, arch.max_blocks)
    return Occupancy(
        by_registers=by_registers,
        by_shared=by_shared,
        by_warps=by_warps,
        by_blocks=arch.max_blocks,
        warps_per_block=launch.warps,
        max_warps=arch.max_warps,
        waves=launch.grid / (chip.sms * held),
    )


def shared_per_block(shared_bytes: int, arch: Architecture) -> int:
    """Return the bytes that a block really takes: in complete units, plus the driver's part."""
    return -(-shared_bytes // arch.shared_unit) * arch.shared_unit + arch.reserved_shared_bytes
