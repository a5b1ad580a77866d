"""A kernel file on the virtual GPU → the model's result for every launch: occupancy, bounds, estimate, costly lines."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from weft.attention.dtypes import Array
from weft.core.chips import Chip
from weft.core.errors import Unsupported
from weft.core.records import Dim3, Finding, Resources, worst_first
from weft.engines.kernel_file import MAX_STEPS, KernelFile
from weft.engines.virtual import VirtualGPU
from weft.model.bounds import Bounds, lower_bounds
from weft.model.counters import work_of
from weft.model.estimate import Estimate, estimate
from weft.model.occupancy import LaunchShape, Occupancy, occupancy
from weft.model.work import Work

from .count import OURS
from .line_costs import LineCost, line_costs
from .profiler import Launched, Profiler
from .records import Counts

_BUILD = re.compile(r"^// Cuda compilation tools, release [\d.]+, (V[\d.]+)", re.MULTILINE)


class NotClean(Unsupported):
    """The run has errors: counts of a wrong kernel do not describe the right one."""

    def __init__(self, file: str, findings: tuple[Finding, ...]) -> None:
        super().__init__(f"{file} was not profiled because its run has errors; `weft run {file}` shows them all")
        self.findings = findings


@dataclass(frozen=True)
class LaunchProfile:
    """One launch on one chip."""

    entry: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    resources: Resources
    counts: Counts
    work: Work
    """The counts as the model reads them."""
    occupancy: Occupancy
    bounds: Bounds
    """At the chip's maximum clock."""
    warm: Estimate
    """The inputs are in L2."""
    cold: Estimate
    lines: tuple[LineCost, ...]
    """By source line, the costliest first."""


FIRST_WITHOUT_ESTIMATE = 9.0
"""The first compute capability whose estimates are not shown."""


@dataclass(frozen=True)
class KernelProfile:
    """All launches of a file at one size, in order. Modelled, not measured."""

    target: str
    file: str
    chip: Chip
    sizes: Mapping[str, int]
    defines: Mapping[str, str]
    compiler: str
    """Name and version of the compiler, which includes ptxas."""
    launches: tuple[LaunchProfile, ...]

    @property
    def longest(self) -> LaunchProfile:
        """The launch with the largest bound."""
        return max(self.launches, key=lambda launch: launch.bounds.warm)

    @property
    def warm(self) -> int:
        """LB_warm in cycles: launches follow each other."""
        return sum(launch.bounds.warm for launch in self.launches)

    @property
    def cold(self) -> int:
        """LB_cold in cycles: after the first launch everything may be in L2."""
        return self.launches[0].bounds.cold + sum(launch.bounds.warm for launch in self.launches[1:])

    @property
    def has_estimate(self) -> bool:
        """Whether EST says something about this GPU: the model knows no rates of wgmma and of bulk copies (9.0 on)."""
        return float(self.chip.architecture.capability) < FIRST_WITHOUT_ESTIMATE

    @property
    def estimate(self) -> tuple[float, float]:
        """EST in cycles, warm, both ends. Searches compare candidates by it on every GPU."""
        return sum(launch.warm.low for launch in self.launches), sum(launch.warm.high for launch in self.launches)

    @property
    def estimate_cold(self) -> tuple[float, float]:
        """EST in cycles, both ends: the first launch reads its inputs from DRAM, later ones from L2."""
        first, later = self.launches[0].cold, [launch.warm for launch in self.launches[1:]]
        return first.low + sum(each.low for each in later), first.high + sum(each.high for each in later)

    def counters(self) -> tuple[dict[str, int], dict[str, int]]:
        """Counters of all launches together: under ncu's names where every launch has them, all others under Weft's."""
        sure = {name for name in self.launches[0].counts.ncu if all(name in each.counts.ncu for each in self.launches)}
        ncu: Counter[str] = Counter()
        vm: Counter[str] = Counter()
        for launch in self.launches:
            vm.update(launch.counts.vm)
            for name, value in launch.counts.ncu.items():
                if name in sure:
                    ncu[name] += value
                else:
                    vm[OURS[name]] += value
        return dict(ncu), dict(vm)


def profile_kernel(
    kernel: KernelFile,
    chip: Chip,
    *,
    target: str = "",
    arrays: Mapping[str, Array] = {},
    sizes: Mapping[str, int] = {},
    clock_ghz: float | None = None,
    seed: int = 0,
) -> KernelProfile:
    """Run every launch completely and apply the model of the chip; raises NotClean if the run has errors.

    Given `arrays` determine the sizes of their launch lines and are not changed; the others are generated from `seed`.
    `clock_ghz` is the clock of the estimates; bounds are at the chip's maximum.
    """
    profiler = Profiler(VirtualGPU(kernel.gpu))
    copies = {name: array.copy() for name, array in arrays.items()}
    run, _ = kernel.run(profiler, copies, sizes=sizes, seed=seed, max_steps=MAX_STEPS)
    if not run.clean:
        raise NotClean(kernel.path, worst_first(run.findings))
    made = zip(profiler.launches, profiler.counts, strict=True)
    launches = tuple(_on_chip(launched, counts, chip, clock_ghz, kernel) for launched, (_, counts) in made)
    compilers = dict.fromkeys(_compiler(launched) for launched in profiler.launches)
    settled = {name: kernel.defines[name] for name in sorted(kernel.defines)}
    whole = {**kernel.sizes, **sizes}
    return KernelProfile(target or kernel.path, kernel.path, chip, whole, settled, ", ".join(compilers), launches)


def _compiler(launched: Launched) -> str:
    """Return the compiler's name from the binary, with the build number from the PTX."""
    build = _BUILD.search(launched.binary.ptx)
    return f"{launched.binary.compiler} ({build[1]})" if build else launched.binary.compiler


def _on_chip(
    launched: Launched, counts: Counts, chip: Chip, clock_ghz: float | None, kernel: KernelFile
) -> LaunchProfile:
    resources = launched.binary.resources.get(launched.binary.entries.get(launched.entry, launched.entry))
    if not counts.sass or resources is None:
        why = "; ".join(dict.fromkeys(counts.notes)) or "ptxas did not report its resources"
        raise Unsupported(f"{launched.entry}: no times for {chip.title} without its machine code: {why}")
    # CTAs may do different amounts of work: the bounds leave out the tail of the grid.
    launch = LaunchShape(prod(launched.block), prod(launched.grid), resources.registers, launched.shared_bytes)
    work = work_of(launch, counts.sass, counts.ncu, counts.vm)
    return LaunchProfile(
        entry=launched.entry,
        grid=launched.grid,
        block=launched.block,
        shared_bytes=launched.shared_bytes,
        resources=resources,
        counts=counts,
        work=work,
        occupancy=occupancy(launch, chip),
        bounds=lower_bounds(work, chip),
        warm=estimate(work, chip, clock_ghz=clock_ghz),
        cold=estimate(work, chip, cold=True, clock_ghz=clock_ghz),
        lines=line_costs(counts, launch, chip, kernel),
    )
