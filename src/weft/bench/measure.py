"""The timed loop: rounds in which every contender runs once, in an order that turns, on inputs it has not seen."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from weft.engines.cuda_device import CudaDevice
from weft.tasks.task import Outputs, Problem

from .contender import Contender

_QUIET = ("none", "gpu_idle")
"""Reasons for a low clock that say nothing about the run."""
MOST_WRITES = 64
"""Beyond so many writes of the buffer before a call, the host is too slow to be hidden."""


class Cache(StrEnum):
    """What L2 holds when a timed call begins."""

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
    """What the loop saw."""

    times_ms: Mapping[str, tuple[float, ...]]
    """Per contender, one per round."""
    kept: Mapping[str, tuple[Kept, ...]]
    host_bound: Mapping[str, int]
    """Per contender, in how many rounds the GPU waited for the host while it was timed."""
    clocks_mhz: tuple[int, ...]
    clock_reasons: tuple[str, ...] = ()
    """Why the clock was below its maximum, as the driver says."""
    clocks_missing: str = ""
    """Why clocks were not logged; empty if they were."""


@dataclass(frozen=True)
class BenchSettings:
    """How it is timed."""

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
    room = _Room(device, contenders, settings.cache)
    for number in range(-settings.warmup, settings.rounds):
        which = number % len(problems)
        # The one that goes second finds a warmer chip: everybody is first, second … equally often.
        turn = number % len(contenders)
        for contender in [*contenders[turn:], *contenders[:turn]]:
            contender.upload(problems[which])
            elapsed, alone = room.timed(contender)
            if number >= 0:
                times[contender.name].append(elapsed)
                host_bound[contender.name] += not alone
            if number in checked:
                kept[contender.name].append(Kept(which, contender.outputs()))
        if number >= 0:
            clocks.note()
    room.free()
    return Measured(
        {name: tuple(found) for name, found in times.items()},
        {name: tuple(found) for name, found in kept.items()},
        host_bound,
        tuple(clocks.mhz),
        tuple(dict.fromkeys(clocks.reasons)),
        clocks.missing,
    )


class _Room:
    """A buffer four times as large as L2: writing it pushes everything out, and keeps the GPU busy meanwhile."""

    def __init__(self, device: CudaDevice, contenders: Sequence[Contender], cache: Cache) -> None:
        self.device, self.cache = device, cache
        largest = max(size for each in contenders for size in each.inputs().values())
        self.size_bytes = max(4 * int(device.properties.l2_cache_size), largest)
        self.buffer = device.allocate(self.size_bytes)
        self.writes = 1

    def timed(self, contender: Contender) -> tuple[float, bool]:
        """Milliseconds between two events around a call, and whether the GPU did nothing but the call between them.

        If it reached the first event before all was in the stream, it may have waited for the host: once more then,
        with more work in front.
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
    """Notes the SM clock and why it is limited, from NVML through cuda-core. Where it is missing, it says so."""

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
        """One reading."""
        if self.missing:
            return
        self.mhz.append(int(self._clock.get_current_mhz()))
        self.reasons += [str(reason) for reason in self._system.current_clock_event_reasons if reason not in _QUIET]
