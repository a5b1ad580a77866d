"""The counts of a candidate's launches from a child, and their modelled cost. Modelled, not measured."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from weft.core.chips import chip as find_chip
from weft.core.records import Dim3, Resources
from weft.engines.kernel_file import KernelFile
from weft.model.bounds import lower_bounds
from weft.model.counters import work_of
from weft.model.estimate import estimate
from weft.model.occupancy import LaunchShape, occupancy
from weft.profile.kernel_profile import KernelProfile, LaunchProfile
from weft.profile.profiler import Launched, Profiler
from weft.profile.records import Counts


@dataclass(frozen=True)
class CountedLaunch:
    """One launch as plain data."""

    entry: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    resources: Resources
    sass: Mapping[str, int]
    ncu: Mapping[str, int]
    vm: Mapping[str, int]
    matched: float
    notes: tuple[str, ...]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "CountedLaunch":
        """Return the launch. Raises ValueError, KeyError or TypeError for an invalid record of a child."""
        return cls(
            entry=str(record["entry"]),
            grid=_dim3(record["grid"]),
            block=_dim3(record["block"]),
            shared_bytes=_count(record["shared_bytes"]),
            resources=Resources(**{name: _count(value) for name, value in record["resources"].items()}),
            sass=_counts(record["sass"]),
            ncu=_counts(record["ncu"]),
            vm=_counts(record["vm"]),
            matched=float(record["matched"]),
            notes=tuple(str(note) for note in record["notes"]),
        )


@dataclass(frozen=True)
class Profile:
    """Every launch of the score workload on one chip."""

    chip: str
    clock_ghz: float | None
    sizes: Mapping[str, int]
    launches: tuple[CountedLaunch, ...]

    @cached_property
    def kernel(self) -> KernelProfile:
        """Return the profile of `weft profile`, without costs by source line."""
        chip = find_chip(self.chip)
        made = tuple(self._on_chip(launch) for launch in self.launches)
        return KernelProfile("candidate", "candidate", chip, self.sizes, {}, "", made)

    @property
    def est_low(self) -> float:
        """Return the low end of EST in cycles, inputs in L2."""
        return self.kernel.estimate[0]

    @property
    def est_high(self) -> float:
        """Return the high end of EST in cycles, inputs in L2."""
        return self.kernel.estimate[1]

    @property
    def lb_warm(self) -> int:
        """Return the lower bound in cycles, inputs in L2."""
        return self.kernel.warm

    @property
    def lb_cold(self) -> int:
        """Return the lower bound in cycles, inputs in DRAM."""
        return self.kernel.cold

    @property
    def limiter(self) -> str:
        """Return the limiter of the bound of the longest launch."""
        return self.kernel.longest.bounds.warm_limiter

    @property
    def est_limiter(self) -> str:
        """Return the limiter of the estimate of the longest launch."""
        return self.kernel.longest.warm.limiter

    @property
    def registers(self) -> int:
        """Return the most registers per thread."""
        return max(launch.resources.registers for launch in self.launches)

    @property
    def spill_bytes(self) -> int:
        """Return the bytes stored and loaded by spills, per thread, of all launches."""
        return sum(each.resources.spill_store_bytes + each.resources.spill_load_bytes for each in self.launches)

    @property
    def shared_bytes(self) -> int:
        """Return the most shared memory per CTA."""
        return max(launch.shared_bytes for launch in self.launches)

    def estimate(self, issue_weight: float) -> float:
        """Return EST in cycles at a given weight of issue slots, to compare kernels at the same weight."""
        chip, launches = self.kernel.chip, self.kernel.launches
        return sum(
            estimate(each.work, chip, clock_ghz=self.clock_ghz, issue_weight=issue_weight).high for each in launches
        )

    def counters(self) -> dict[str, int]:
        """Return the counters of all launches together, with ncu's and Weft's names."""
        ncu, vm = self.kernel.counters()
        return {**vm, **ncu}

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        record: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Profile":
        """Read the result of `record`. Raises ValueError, KeyError or TypeError for anything else."""
        launches = tuple(CountedLaunch.from_record(launch) for launch in record["launches"])
        if not launches:
            raise ValueError("a profile without launches")
        clock = record["clock_ghz"]
        return cls(str(record["chip"]), None if clock is None else float(clock), _counts(record["sizes"]), launches)

    def _on_chip(self, counted: CountedLaunch) -> LaunchProfile:
        chip = find_chip(self.chip)
        launch = LaunchShape(prod(counted.block), prod(counted.grid), counted.resources.registers, counted.shared_bytes)
        work = work_of(launch, counted.sass, counted.ncu, counted.vm)
        return LaunchProfile(
            entry=counted.entry,
            grid=counted.grid,
            block=counted.block,
            shared_bytes=counted.shared_bytes,
            resources=counted.resources,
            counts=Counts(counted.sass, counted.ncu, counted.vm, counted.matched, notes=counted.notes),
            work=work,
            occupancy=occupancy(launch, chip),
            bounds=lower_bounds(work, chip),
            warm=estimate(work, chip, clock_ghz=self.clock_ghz),
            cold=estimate(work, chip, cold=True, clock_ghz=self.clock_ghz),
            lines=(),
        )


def counted_launches(profiler: Profiler, kernel: KernelFile) -> tuple[list[dict[str, Any]], str]:
    """In the child: return the records of all launches, or none and the reason."""
    records = []
    for launched, (_, counts) in zip(profiler.launches, profiler.counts, strict=True):
        resources = _resources(launched)
        if not counts.sass or resources is None:
            why = "; ".join(counts.notes) or "ptxas did not report its resources"
            return [], f"{launched.entry} of {kernel.path} cannot be profiled: {why}"
        made = CountedLaunch(
            launched.entry,
            launched.grid,
            launched.block,
            launched.shared_bytes,
            resources,
            counts.sass,
            counts.ncu,
            counts.vm,
            counts.matched,
            counts.notes,
        )
        records.append(dataclasses.asdict(made))
    return records, ""


def _resources(launched: Launched) -> Resources | None:
    return launched.binary.resources.get(launched.binary.entries.get(launched.entry, launched.entry))


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _counts(record: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): _count(value) for name, value in record.items()}


def _dim3(record: Any) -> Dim3:
    x, y, z = (_count(size) for size in record)
    return x, y, z
