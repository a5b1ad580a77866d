"""The timed loop: in each round every contender runs once, in rotating order, on inputs it has not seen."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from weft.engines.cuda_device import CudaDevice
from weft.tasks.task import Outputs, Problem

from .contender import Contender

_QUIET = ("none", "gpu_idle")
"""Reasons for a low clock that do not concern the run."""
MOST_WRITES = 64
"""With more writes of the buffer before a call than this, the host is too slow to be hidden."""


class Cache(StrEnum):
    """Contents of L2 when a timed call begins."""

    COLD = "cold"
    """Bytes that no kernel uses: a buffer larger than L2 was written."""
    WARM = "warm"
    """The inputs, as far as they fit: they were just copied from one place of the device to another."""


@dataclass(frozen=True)
class Kept:
    """The outputs of one call, to be judged after the timing."""

    problem: int
    outputs: Outputs


@dataclass(frozen=True)
class Measured:
    """The results of the loop."""

    times_ms: Mapping[str, tuple[float, ...]]
    """Per contender, one per round."""
    kept: Mapping[str, tuple[Kept, ...]]
    host_bound: Mapping[str, int]
    """Per contender, the number of timed rounds in which the GPU waited for the host."""
    clocks_mhz: tuple[int, ...]
    clock_reasons: tuple[str, ...] = ()
    """Why the clock was below its maximum, as the driver says."""
    clocks_missing: str = ""
    """Why clocks were not logged; empty if they were."""


@dataclass(frozen=True)
class BenchSettings:
    """Settings of the timing."""

    rounds: int = 100
    warmup: int = 10
    cache: Cache = Cache.COLD
    checked: int = 2
    """Rounds, chosen at random, whose outputs are judged in addition to the last one's."""
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(1 << 31))


def measure(
    device: CudaDevice, contenders: Sequence[Contender], problems: Sequence[Problem], settings: BenchSettings
) -> Measured:
    """Time every contender `rounds` times. Round r has problem r modulo their number, a new one for every call."""
    rng = random.Random(settings.seed)
    checked = {*rng.sample(range(settings.rounds), min(settings.checked, settings.rounds)), settings.rounds - 1}
    times: dict[str, list[float]] = {each.name: [] for each in contenders}
    kept: dict[str, list[Kept]] = {each.name: [] for each in contenders}
    host_bound = dict.fromkeys(times, 0)
    clocks = ClockLog(device)
    buffer = _FlushBuffer(device, contenders, settings.cache)
    for number in range(-settings.warmup, settings.rounds):
        which = number % len(problems)
        # The second contender finds a warmer chip: each is first, second and so on equally often.
        turn = number % len(contenders)
        for contender in [*contenders[turn:], *contenders[:turn]]:
            contender.upload(problems[which])
            elapsed, alone = buffer.timed(contender)
            if number >= 0:
                times[contender.name].append(elapsed)
                host_bound[contender.name] += not alone
            if number in checked:
                kept[contender.name].append(Kept(which, contender.outputs()))
        if number >= 0:
            clocks.note()
    buffer.free()
    return Measured(
        {name: tuple(found) for name, found in times.items()},
        {name: tuple(found) for name, found in kept.items()},
        host_bound,
        tuple(clocks.mhz),
        tuple(dict.fromkeys(clocks.reasons)),
        clocks.missing,
    )


class _FlushBuffer:
    """A buffer four times as large as L2: writing it evicts everything, and keeps the GPU busy meanwhile."""

    def __init__(self, device: CudaDevice, contenders: Sequence[Contender], cache: Cache) -> None:
        self.device, self.cache = device, cache
        largest = max(size for each in contenders for size in each.inputs().values())
        self.size_bytes = max(4 * int(device.properties.l2_cache_size), largest)
        self.buffer = device.allocate(self.size_bytes)
        self.writes = 1

    def timed(self, contender: Contender) -> tuple[float, bool]:
        """Return milliseconds between two events around a call, and whether the GPU ran only the call between them.

        If it reached the first event before everything was in the stream, it may have waited for the host: the call is
        then repeated with more work before it.
        """
        while True:
            contender.poison()
            self._prepare(contender)
            start, stop = self.device.timed_event(), self.device.timed_event()
            self.device.record(start)
            contender.enqueue()
            self.device.record(stop)
            alone = not start.is_done
            self.device.require_no_fault(contender.name)
            if alone or self.writes >= MOST_WRITES:
                return float(stop - start), alone
            self.writes *= 2

    def _prepare(self, contender: Contender) -> None:
        """Put L2 into the state that the timed call must find; persisting lines are reset to normal."""
        device, at = self.device, int(self.buffer.handle)
        device.reset_persisting_l2()
        for _ in range(self.writes):
            device.fill(at, 0, self.size_bytes)
        if self.cache is Cache.WARM:
            for address, size in contender.inputs().items():
                device.copy(at, address, size)

    def free(self) -> None:
        self.device.free(self.buffer)


class ClockLog:
    """Records the SM clock and why it is limited, from NVML through cuda-core; or why it is not available."""

    def __init__(self, device: CudaDevice) -> None:
        self.mhz: list[int] = []
        self.reasons: list[str] = []
        self.missing = ""
        self._system: Any = None
        try:
            self._system = device.device.to_system_device()
            self._clock = self._system.get_clock("sm")
        except Exception as error:  # cuda-core has a type for each of NVML's reasons
            self.missing = f"clocks were not logged: {' '.join(str(error).split())}"

    def note(self) -> None:
        """Record one reading."""
        if self.missing:
            return
        self.mhz.append(int(self._clock.get_current_mhz()))
        self.reasons += [str(reason) for reason in self._system.current_clock_event_reasons if reason not in _QUIET]
