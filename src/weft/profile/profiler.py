"""Profiles launches: one by one, or every launch of a kernel file through an engine that counts while it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from weft.core.records import Binary, Dim3, Run, merge_runs
from weft.engines.arguments import Array
from weft.engines.launch import Launch
from weft.engines.protocol import DEFAULTS, Capabilities, Engine, RunOptions, require_possible
from weft.engines.virtual import VirtualGPU

from .count import count_launch
from .kernel_match import KernelMatch, match_kernel
from .records import Counts
from .site_probe import SiteProbe


@dataclass(frozen=True)
class Launched:
    """How a launch was made."""

    binary: Binary
    entry: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    """Static and dynamic, per CTA."""
    ctas: int
    """CTAs that ran: fewer than the grid has if it was sampled."""


class Profiler(Engine):
    """A virtual GPU that keeps the Counts of every launch, in order."""

    name = "profile"
    capabilities = Capabilities(can_watch=False, can_sample=True, exact=True)

    def __init__(self, gpu: VirtualGPU) -> None:
        self.gpu, self.arch = gpu, gpu.arch
        self.counts: list[tuple[str, Counts]] = []
        """Entry and Counts of each launch."""
        self.launches: list[Launched] = []
        """How each of them was made."""
        self._kernels: dict[tuple[str, str], KernelMatch] = {}

    @property
    def shared_limit_bytes(self) -> int:
        """The limit of the virtual GPU."""
        return self.gpu.shared_limit_bytes

    def set_symbol(self, binary: Binary, entry: str, name: str, value: Array) -> None:
        """Initialise the variable on the virtual GPU."""
        self.gpu.set_symbol(binary, entry, name, value)

    def static_shared_bytes(self, binary: Binary, entry: str) -> int:
        """Return the static shared memory of the kernel."""
        return self.gpu.static_shared_bytes(binary, entry)

    def run(self, launches: Sequence[Launch], options: RunOptions = DEFAULTS) -> Run:
        """Run as the virtual GPU does; the Counts are the last of `counts`. Only sampled CTAs are counted."""
        require_possible(self, launches, options)
        kernels = [self.kernel(launch.binary, launch.entry) for launch in launches]
        probes = [SiteProbe(kernel.last_line, kernel.widths()) for kernel in kernels]
        runs = tuple(self.gpu.each(launches, options, probes))
        for launch, kernel, run in zip(launches, kernels, runs, strict=False):  # a finding ends the sequence
            self.counts.append((launch.entry, count_launch(kernel, run)))
            shared = launch.shared_bytes + self.static_shared_bytes(launch.binary, launch.entry)
            ran = len(options.ctas.cta_numbers(launch.grid)) if options.ctas else prod(launch.grid)
            self.launches.append(Launched(launch.binary, launch.entry, launch.grid, launch.block, shared, ran))
        return merge_runs(runs)

    def kernel(self, binary: Binary, entry: str) -> KernelMatch:
        """Return the kernel matched to its SASS; each is matched once."""
        key = (binary.ptx_digest, binary.entries.get(entry, entry))
        if key not in self._kernels:
            self._kernels[key] = match_kernel(binary, entry)
        return self._kernels[key]
