"""A launch through Triton → the model's estimate of its time on the device's chip. Nothing is timed."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan, prod
from typing import Any

from weft.core.errors import Unsupported
from weft.core.records import Binary, Dim3
from weft.model.counters import work_of
from weft.model.estimate import Estimate, estimate
from weft.model.occupancy import LaunchShape
from weft.profile.profiler import Launched, Profiler
from weft.profile.records import Counts
from weft.vm.launch import PLAIN

from .device import Device

_said: set[str] = set()


@dataclass(frozen=True)
class Estimated:
    """One launch."""

    binary: Binary
    entry: str
    grid: Dim3
    cold: Estimate
    """L2 is empty at its start."""
    warm: Estimate

    def milliseconds(self, *, cold: bool) -> float:
        """Return the middle of the range."""
        given = self.cold if cold else self.warm
        return given.microseconds((given.low + given.high) / 2) / 1e3


class Estimator:
    """Estimates launches in sequence while they run."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.engine = Profiler(device.gpu)
        """Runs launches and counts them."""

    def run(self, work: Callable[[], object]) -> list[Estimated]:
        """Return the launches that `work` makes."""
        first = len(self.engine.launches)
        with self.device.running(self.engine.run):
            work()
        made = list(zip(self.engine.launches[first:], self.engine.counts[first:], strict=True))
        del self.engine.launches[first:], self.engine.counts[first:]
        return [self._on_chip(launched, counts) for launched, (_, counts) in made]

    def _on_chip(self, launched: Launched, counts: Counts) -> Estimated:
        chip = self.device.chip
        registers = launched.binary.resources[launched.entry].registers
        if not counts.sass:
            raise Unsupported(f"{launched.entry} does not fit on {chip.title}: {'; '.join(counts.notes)}")
        launch = LaunchShape(prod(launched.block), prod(launched.grid), registers, launched.shared_bytes)
        work = work_of(launch, counts.sass, counts.ncu, counts.vm)
        cold, warm = estimate(work, chip, cold=True), estimate(work, chip)
        return Estimated(launched.binary, launched.entry, launched.grid, cold, warm)


def total_ms(made: Sequence[Estimated]) -> float:
    """Return the sum; only the first launch starts with an empty L2. NaN if nothing was launched."""
    if not made:
        return nan
    return made[0].milliseconds(cold=True) + sum(each.milliseconds(cold=False) for each in made[1:])


def say_once(device: Device) -> None:
    """Warn once that times are estimates."""
    if device.chip.name not in _said:
        _said.add(device.chip.name)
        warnings.warn(
            f"nothing was timed: times are estimates of kernels on {device.chip.title} at "
            f"{device.chip.boost_ghz} GHz (EST of the model, L2 empty at the start); work of PyTorch is not included",
            RuntimeWarning,
            stacklevel=3,
        )


class Bench:
    """Replaces triton.testing.do_bench: one run, and its estimate in milliseconds."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.estimator = Estimator(device)

    def __call__(
        self,
        fn: Callable[[], object],
        warmup: int = 25,
        rep: int = 100,
        grad_to_none: Sequence[Any] | None = None,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
    ) -> float | list[float]:
        """Return what do_bench returns; all quantiles are the estimate. NaN if no kernel was launched."""
        say_once(self.device)
        if self.device.watch is not PLAIN:
            fn()  # a counted launch runs without checkers
        for tensor in grad_to_none or ():
            tensor.grad = None
        return answer(total_ms(self.estimator.run(fn)), quantiles, return_mode)


def answer(milliseconds: float, quantiles: Sequence[float] | None, return_mode: str = "mean") -> float | list[float]:
    """Return one number in the form that do_bench returns."""
    if quantiles is not None:
        return [milliseconds] * len(quantiles) if len(quantiles) != 1 else milliseconds
    return [milliseconds] if return_mode == "all" else milliseconds
