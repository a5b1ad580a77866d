"""Lower bounds in cycles: no schedule on this GPU can be shorter. Each term is one unit working without a pause."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor
from types import MappingProxyType

from weft.core.chips import Chip
from weft.core.errors import UsageError
from weft.core.register_file import LANES

from .occupancy import LaunchShape, occupancy
from .work import Work

SECTOR_BYTES = 32


@dataclass(frozen=True)
class Bounds:
    """The least time of a launch, at one clock."""

    chip: str
    clock_ghz: float
    terms: Mapping[str, float]
    """Cycles by unit."""

    @property
    def warm(self) -> int:
        """Return LB_warm in cycles: the inputs are in L2."""
        return floor(self.terms[self.warm_limiter])

    @property
    def warm_limiter(self) -> str:
        return max((name for name in self.terms if name != "dram"), key=self.terms.__getitem__)

    @property
    def cold(self) -> int:
        """Return LB_cold in cycles: the inputs are in DRAM."""
        return floor(self.terms[self.cold_limiter])

    @property
    def cold_limiter(self) -> str:
        limiter = self.warm_limiter
        return "dram" if self.terms["dram"] > self.terms[limiter] else limiter

    def microseconds(self, cycles: float) -> float:
        """Return the time at the clock of these bounds."""
        return cycles / self.clock_ghz / 1e3

    @property
    def named(self) -> Mapping[str, float]:
        """Return the values under Weft's names."""
        rows = {f"lb__{name}_cycles": value for name, value in self.terms.items()}
        return rows | {"lb__warm_cycles": self.warm, "lb__cold_cycles": self.cold}


def lower_bounds(work: Work, chip: Chip, *, clock_ghz: float | None = None) -> Bounds:
    """Return bounds at the chip's maximum clock, so that they are valid at every clock, or at a given clock."""
    clock = checked_clock(chip, clock_ghz, chip.max_ghz)
    busiest = busiest_share(work.launch, chip) if work.launch.uniform else 1 / chip.sms
    terms = {name: total * busiest for name, total in sm_cycles(work, chip).items()}
    terms["l2"] = _l2_cycles(work, chip)
    terms["latency"] = _latency_cycles(work, chip)
    terms["dram"] = dram_cycles(work, chip, clock)
    return Bounds(chip.name, clock, MappingProxyType(terms))


def checked_clock(chip: Chip, given: float | None, default: float) -> float:
    """Return the clock in GHz if the chip can have it, else raise UsageError: a clock in MHz is the usual mistake."""
    clock = default if given is None else given
    if not 0 < clock <= chip.max_ghz:
        raise UsageError(f"clock {clock} GHz: {chip.title} allows at most {chip.max_ghz} GHz")
    return clock


def busiest_share(launch: LaunchShape, chip: Chip) -> float:
    """Return the share of the grid's blocks on the SM that has most: at least ceil(grid / SMs) of them."""
    return ceil(launch.grid / chip.sms) / launch.grid


def sm_cycles(work: Work, chip: Chip) -> dict[str, float]:
    """Return the cycles that one SM would take for the entire grid, by unit."""
    arch, done = chip.architecture, work.instructions
    return {
        "tensor": sum(macs / chip.peak_macs(kind) for kind, macs in done.tensor_macs.items()),
        # Whether float and integer multiply-adds share lanes is not documented: the longer of the two is certain.
        "fma": max(done.fp32 * LANES / arch.fp32_lanes, done.imad * LANES / arch.imad_lanes),
        "alu": done.alu * LANES / arch.alu_lanes,
        "mufu": done.mufu * LANES / arch.mufu_lanes,
        "issue": done.executed / arch.issue_slots,
        "lsu": done.lsu / arch.lsu_instructions,
        "smem": work.memory.shared_wavefronts / arch.shared_wavefronts,
    }


def dram_cycles(work: Work, chip: Chip, clock_ghz: float) -> float:
    """Return the DRAM cycles: reads come from DRAM once; writes may stay in L2 at the end, as far as they fit."""
    stored = max(0, work.memory.store_sectors * SECTOR_BYTES - chip.l2_bytes)
    moved = work.memory.load_sectors * SECTOR_BYTES + stored
    return moved / chip.dram_gbs * clock_ghz


def _l2_cycles(work: Work, chip: Chip) -> float:
    """Return the L2 cycles: every sector enters at least one L1, if all later reads of it hit there."""
    return work.memory.load_sectors * SECTOR_BYTES / (chip.architecture.l1_fill_bytes * chip.sms)


def _latency_cycles(work: Work, chip: Chip) -> float:
    """Return the latency bound: a warp stays in one sub-partition, and a block in its place until its last warp ends.

    The slowest warp of a block has at least the mean work of the block's warps, and the blocks share the places of the
    GPU: places × time ≥ the sum of the blocks' times.
    """
    launch, arch = work.launch, chip.architecture
    per_warp = 1 / (launch.grid * launch.warps)
    cycles = sm_cycles(work, chip)
    longest = max(cycles[unit] * arch.sub_partitions * per_warp for unit in ("tensor", "fma", "alu", "mufu", "issue"))
    rounds = occupancy(launch, chip).waves
    return longest * (ceil(rounds) if launch.uniform else max(1.0, rounds))
