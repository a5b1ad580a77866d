"""Whether an SM has enough registers for a block, and for how many: one rule for judge, virtual GPU and model."""

from .chips import Architecture
from .errors import ResourceError

LANES = 32


def blocks_by_registers(architecture: Architecture, threads: int, registers: int) -> int:
    """Return how many blocks with this number of threads and registers per thread an SM holds.

    A warp's registers are in one sub-partition, so the remainders of the four do not add up to a warp.
    """
    unit = architecture.register_unit
    per_warp = -(-registers * LANES // unit) * unit
    per_sub_partition = architecture.registers // architecture.sub_partitions // per_warp
    return per_sub_partition * architecture.sub_partitions // -(-threads // LANES)


def require_registers(architecture: Architecture, threads: int, registers: int) -> None:
    """Raise ResourceError if not even one block fits."""
    # A launch check reports a block without threads.
    if threads > 0 and blocks_by_registers(architecture, threads, registers) == 0:
        raise ResourceError(
            f"{threads} threads with {registers} registers each need more than the {architecture.registers} registers "
            f"of an SM: use fewer threads, or add __launch_bounds__({threads}) so that the compiler allocates fewer"
        )
