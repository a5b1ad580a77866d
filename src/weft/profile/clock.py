"""The clock of `weft exec --clock model`: a launch → the model's estimate of its time on the chip."""

from dataclasses import replace

from weft.core.chips import Chip
from weft.core.errors import Unsupported
from weft.core.records import Binary, Run
from weft.driver.records import KernelCode
from weft.model.counters import work_of
from weft.model.estimate import estimate
from weft.model.occupancy import LaunchShape
from weft.vm.launch_spec import DeviceRun

from .count import count_launch
from .kernel_match import KernelMatch, match_kernel
from .site_probe import SiteProbe


class ModelClock:
    """Counts launches while they run, and estimates them, as `weft.triton` does: each starts with an empty L2."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self._matched: dict[KernelCode, KernelMatch] = {}

    def watch(self, code: KernelCode) -> SiteProbe:
        """Return the probe that counts a launch. Raises Unsupported for a kernel without an estimate."""
        kernel = self._kernel(code)
        return SiteProbe(kernel.last_line, kernel.widths())

    def nanoseconds(self, code: KernelCode, shape: LaunchShape, outcome: DeviceRun) -> float:
        """Return the middle of the estimate's range for a launch that the probe watched."""
        run = Run((code.entry,), (), outcome.printed, outcome.instructions, "", "", counters=dict(outcome.counters))
        counts = count_launch(self._kernel(code), run)
        if not counts.sass:
            raise Unsupported("; ".join(counts.notes))
        given = estimate(work_of(shape, counts.sass, counts.ncu, counts.vm), self.chip, cold=True)
        return 1e3 * given.microseconds((given.low + given.high) / 2)

    def _kernel(self, code: KernelCode) -> KernelMatch:
        if code not in self._matched:
            binary = Binary(code.entry, self.chip.architecture.target, "", (), code.ptx, code.cubin)
            kernel = match_kernel(replace(binary, shared={code.entry: code.shared}), code.entry)
            if not kernel.blocks:
                raise Unsupported("; ".join(kernel.notes))
            self._matched[code] = kernel
        return self._matched[code]
