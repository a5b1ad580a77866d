"""Replacements for torch.cuda that describe the virtual GPU."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import nan
from types import SimpleNamespace
from typing import Any

import torch

from weft.core.errors import Unsupported
from weft.core.records import Run
from weft.engines.launch import Launch
from weft.engines.protocol import RunOptions
from weft.vm.launch import PLAIN

from .cuda_generator import DefaultGenerator
from .device import Device
from .estimates import Estimator, say_once, total_ms

MAX_THREADS_PER_BLOCK = 1024
TOTAL_MEMORY_BYTES = 16 << 30


class Clock:
    """The device's time for events: the sum of the estimates of all launches since it was started."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.ms = 0.0
        self._estimator = Estimator(device)
        self._running = False

    def start(self) -> None:
        """Count every launch from the first timing event on; checkers that are on stay on."""
        say_once(self.device)
        if self.device.watch is not PLAIN:
            self.ms = nan
        elif not self._running:
            self._running = True
            self.device.engine = self._count

    def _count(self, launches: Sequence[Launch], options: RunOptions) -> Run:
        """Run and count."""
        runs: list[Run] = []
        self.ms += total_ms(self._estimator.run(lambda: runs.append(self._estimator.engine.run(launches, options))))
        return runs[0]


def make_event(clock: Clock) -> type:
    """Return torch.cuda.Event for this device."""

    class Event:
        """Complete as soon as it is recorded; times are estimates."""

        def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
            self._timing = enable_timing
            self._at: float | None = None

        def record(self, stream: Any = None) -> None:
            if self._timing:
                clock.start()
            self._at = clock.ms

        def elapsed_time(self, other: Any) -> float:
            """Return estimated milliseconds of the kernels launched between the two; NaN where checkers are on."""
            if self._at is None or other._at is None or not self._timing or not other._timing:
                raise RuntimeError("both events must be recorded, and made with enable_timing=True")
            return float(other._at - self._at)

        def synchronize(self) -> None:
            pass

        def wait(self, stream: Any = None) -> None:
            pass

        def query(self) -> bool:
            return True

    return Event


class Stream:
    """Launches are complete when they return, so all streams are equal."""

    cuda_stream = 0
    device_index = 0

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.priority = priority

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        event = event if event is not None else torch.cuda.Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return True


class StreamContext:
    """torch.cuda.stream(…): all streams are equal."""

    def __init__(self, stream: Any = None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class DeviceGuard:
    """torch.cuda.device(…): there is one device."""

    def __init__(self, device: Any = None) -> None:
        self.idx = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def properties(device: Device) -> Any:
    """Return torch.cuda.get_device_properties, as far as the chip's table has them. The memory is a fixed 16 GB."""
    architecture = device.chip.architecture
    major, minor = device.capability
    return SimpleNamespace(
        name=f"NVIDIA {device.chip.title} (virtual)",
        major=major,
        minor=minor,
        warp_size=32,
        multi_processor_count=device.chip.sms,
        total_memory=TOTAL_MEMORY_BYTES,
        L2_cache_size=device.chip.l2_bytes,
        max_threads_per_multi_processor=32 * architecture.max_warps,
        max_threads_per_block=MAX_THREADS_PER_BLOCK,
        regs_per_multiprocessor=architecture.registers,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=architecture.shared_bytes_per_block,
        shared_memory_per_multiprocessor=architecture.shared_bytes,
        gcnArchName="",
        is_integrated=0,
        is_multi_gpu_board=0,
    )


def answers(device: Device) -> Mapping[str, Any]:
    """Return name in torch.cuda → its replacement while the device answers requests of CUDA.

    Each name has a separate object: torch.compile's tables identify functions by object identity.
    """
    facts = properties(device)
    values = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": device.capability,
        "get_device_name": facts.name,
        "get_device_properties": facts,
        "get_arch_list": [device.arch],
        "is_bf16_supported": True,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "mem_get_info": (TOTAL_MEMORY_BYTES, TOTAL_MEMORY_BYTES),
        "_is_compiled": True,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
    }
    generator = DefaultGenerator()

    def seed_all(seed: int) -> None:
        """Seed CUDA's generator, and the CPU's, from which PyTorch's random tensors come."""
        torch.default_generator.manual_seed(seed)
        generator.manual_seed(seed)

    silent = (
        "init",
        "_lazy_init",
        "_set_stream_by_id",
        "set_device",
        "synchronize",
        "empty_cache",
        "ipc_collect",
        "set_stream",
        "reset_peak_memory_stats",
    )
    return {
        **{name: _answer(value) for name, value in values.items()},
        **{name: _answer(None) for name in silent},
        **{name: _refused_class(name) for name in ("CUDAGraph", "graph", "MemPool")},
        "make_graphed_callables": _refuse("make_graphed_callables"),
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
        "initial_seed": lambda: torch.initial_seed(),
        "seed": lambda: torch.seed(),
        "seed_all": lambda: torch.seed(),
        "current_stream": lambda *_: Stream(),
        "default_stream": lambda *_: Stream(),
        "Stream": Stream,
        "ExternalStream": type("ExternalStream", (Stream,), {}),
        "Event": make_event(Clock(device)),
        "stream": StreamContext,
        "StreamContext": StreamContext,
        "device": DeviceGuard,
        "_DeviceGuard": DeviceGuard,
        "device_of": type("device_of", (DeviceGuard,), {}),
        "default_generators": (generator,),
        "manual_seed": seed_all,
        "manual_seed_all": seed_all,
    }


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise Unsupported(f"torch.cuda.{what} is not supported on the virtual GPU; launch without it")

    return refuse


def _refused_class(name: str) -> type:
    """Return a class, because libraries derive from it or ask `isinstance`; making an object is refused."""
    return type(name, (), {"__init__": _refuse(name)})


@contextmanager
def patched(owner: Any, replacements: Mapping[str, Any]) -> Iterator[None]:
    """Replace attributes of a module or class inside."""
    missing = object()
    before = {name: vars(owner).get(name, missing) for name in replacements}
    for name, value in replacements.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
