"""An estimate in cycles: the bounds, plus the time that units wait for each other. Never below the bound."""

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.chips import Chip
from weft.core.errors import UsageError

from .bounds import Bounds, busiest_share, checked_clock, dram_cycles, lower_bounds, sm_cycles
from .work import Work

UNCALIBRATED = (0.4, 1.4)
"""Range of c where no measurements of this GPU were available to fit it."""
TAGS_PER_CLOCK = 1
SHUFFLES_PER_CLOCK = 1


@dataclass(frozen=True)
class Estimate:
    """The two ends of a range; they are equal if c was fitted for the GPU."""

    chip: str
    clock_ghz: float
    low: float
    """Cycles."""
    high: float
    limiter: str
    """The limiter at the high end."""
    wave_factor: float
    tensor_cycles: float
    label: str

    @property
    def tensor_utilisation(self) -> tuple[float, float]:
        """Return the share of the time that the tensor cores are busy, at the high and at the low end."""
        return self.tensor_cycles / self.high, self.tensor_cycles / self.low

    def microseconds(self, cycles: float) -> float:
        """Return the time at the given clock."""
        return cycles / self.clock_ghz / 1e3

    @property
    def named(self) -> Mapping[str, float | tuple[float, float]]:
        """Return the values under Weft's names."""
        return {"est__cycles": (self.low, self.high), "est__tensor_utilisation": self.tensor_utilisation}


def estimate(
    work: Work, chip: Chip, *, cold: bool = False, clock_ghz: float | None = None, issue_weight: float | None = None
) -> Estimate:
    """Return EST = max(LB, factor × max over units u of (T_u + c · I_other(u)), T_dram / η).

    u is the tensor cores, or the busiest part of the memory path: load/store units, shared memory, tags. I_other(u) are
    the issue cycles of all other instructions: a unit and the rest of the program overlap only in part.
    The clock is the boost clock unless one is given. `issue_weight` sets c by hand, to compare kernels with the same c.
    """
    if issue_weight is not None and issue_weight < 0:
        raise UsageError(f"c is {issue_weight}: the weight of an issue slot must not be negative")
    clock = checked_clock(chip, clock_ghz, chip.boost_ghz)
    bounds = lower_bounds(work, chip, clock_ghz=clock)
    factor = busiest_share(work.launch, chip) * chip.sms
    c_low, c_high, label = _weights(chip, issue_weight)
    low, _ = _cycles(work, chip, bounds, c=c_low, cold=cold, factor=factor)
    high, limiter = _cycles(work, chip, bounds, c=c_high, cold=cold, factor=factor)
    if high <= 0:
        raise UsageError("a launch that executes nothing has no estimate")
    tensor = sm_cycles(work, chip)["tensor"] / chip.sms
    return Estimate(chip.name, clock, low, high, limiter, factor, tensor, label)


def _weights(chip: Chip, given: float | None) -> tuple[float, float, str]:
    if given is not None:
        return given, given, f"c = {given} as given"
    if chip.issue_weight is not None:
        return chip.issue_weight, chip.issue_weight, f"calibrated on {chip.title}: c = {chip.issue_weight}"
    low, high = UNCALIBRATED
    return low, high, f"uncalibrated: c = {low} to {high}"


def _cycles(work: Work, chip: Chip, bounds: Bounds, *, c: float, cold: bool, factor: float) -> tuple[float, str]:
    done, memory, arch = work.instructions, work.memory, chip.architecture
    one_sm = sm_cycles(work, chip)
    issued = done.executed + done.unsure
    wavefronts = memory.shared_wavefronts + memory.other_wavefronts
    path = {
        "lsu": one_sm["lsu"],
        "smem": wavefronts / arch.shared_wavefronts + done.shuffles / SHUFFLES_PER_CLOCK,
        "tags": memory.tags / TAGS_PER_CLOCK,
    }
    busiest = max(path, key=path.__getitem__)
    tensor = one_sm["tensor"] / (1 if done.warp_group else chip.mma_sync_share)
    one_sm_terms = {
        "tensor and issue": tensor + c * (issued - done.tensor) / arch.issue_slots,
        f"{busiest} and issue": path[busiest] + c * (issued - done.lsu - done.shuffles) / arch.issue_slots,
    }
    terms = {name: value * factor / chip.sms for name, value in one_sm_terms.items()}
    if cold:
        terms["dram"] = dram_cycles(work, chip, bounds.clock_ghz) / chip.dram_reachable
    lower = bounds.cold_limiter if cold else bounds.warm_limiter
    terms[f"{lower} (bound)"] = bounds.terms[lower]
    limiter = max(terms, key=terms.__getitem__)
    return terms[limiter], limiter
