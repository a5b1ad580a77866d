"""Profile launches: one by one, or every launch of a kernel file through an engine that counts as it runs."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import Any

from weft.core.records import Binary, Dim3, Run
from weft.engines.host_arrays import dim3
from weft.engines.protocol import Capabilities
from weft.engines.sample import Sample
from weft.engines.virtual import VirtualGPU
from weft.engines.written import EVERYTHING_WRITTEN, Written
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

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
    """That ran: fewer than the grid has if it was sampled."""


class Profiler:
    """An engine that is a virtual GPU and keeps the Counts of every launch, in order."""

    name = "profile"
    capabilities = Capabilities(can_watch=False, can_sample=True, exact=True)

    def __init__(self, gpu: VirtualGPU) -> None:
        self.gpu = gpu
        self.arch, self.shared_limit_bytes = gpu.arch, gpu.shared_limit_bytes
        self.set_symbol: Callable[[Binary, str, str, Any], None] = gpu.set_symbol
        self.static_shared_bytes: Callable[[Binary, str], int] = gpu.static_shared_bytes
        self.check_sample: Callable[[Binary, str], None] = gpu.check_sample
        self.sequence: Callable[[Binary, str], AbstractContextManager[None]] = gpu.sequence
        self.counts: list[tuple[str, Counts]] = []
        """Entry and Counts of each launch."""
        self.launches: list[Launched] = []
        """How each of them was made."""
        self._kernels: dict[tuple[str, str], KernelMatch] = {}

    def launch(
        self,
        binary: Binary,
        entry: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        *,
        shared_bytes: int = 0,
        names: Sequence[str] = (),
        max_steps: int = 1 << 32,
        watch: Instrumentation = PLAIN,
        ctas: Sample | None = None,
        written: Written = EVERYTHING_WRITTEN,
    ) -> Run:
        """Launch as the virtual GPU does; the Counts are the last of `counts`. Only sampled CTAs are counted."""
        kernel = self.kernel(binary, entry)
        run = self.gpu.launch(
            binary,
            entry,
            grid,
            block,
            args,
            shared_bytes=shared_bytes,
            names=names,
            max_steps=max_steps,
            watch=SiteProbe(kernel.last_line, kernel.widths()),
            ctas=ctas,
            written=written,
        )
        self.counts.append((entry, count_launch(kernel, run)))
        whole, shared = dim3(grid), shared_bytes + self.static_shared_bytes(binary, entry)
        ran = len(ctas.cta_numbers(whole)) if ctas else prod(whole)
        self.launches.append(Launched(binary, entry, whole, dim3(block), shared, ran))
        return run

    def kernel(self, binary: Binary, entry: str) -> KernelMatch:
        """The kernel matched to its SASS; once for each."""
        key = (binary.ptx_digest, binary.entries.get(entry, entry))
        if key not in self._kernels:
            self._kernels[key] = match_kernel(binary, entry)
        return self._kernels[key]
