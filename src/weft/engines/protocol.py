"""What a kernel runs on. The virtual GPU is one engine; tests/engines/test_contract.py is what all must do."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.core.errors import ResourceError, UsageError
from weft.core.records import Binary, Run
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .arguments import Array
from .launch import Launch
from .sample import CtaSample

PLAIN_SHARED_BYTES = 48 * 1024
"""Shared memory that a CTA may have without opting in."""


class CannotWatch(UsageError):
    """The engine runs kernels but cannot watch them. Nothing ran."""


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do beyond running a kernel. It refuses the rest; it never leaves it out in silence."""

    can_watch: bool
    """Takes `watch`; and sees accesses out of bounds, deadlocks and endless loops without it."""
    can_sample: bool
    """Takes `ctas`."""
    exact: bool
    """The same inputs give the same bits on every machine."""


def no_error(run: Run) -> bool:
    """Whether a launch left no error: on hardware nothing would run after a fault."""
    return run.clean


@dataclass(frozen=True)
class RunOptions:
    """How launches are run."""

    watch: Instrumentation = PLAIN
    """Checkers and counters; memory, deadlocks and endless loops are always checked."""
    ctas: CtaSample | None = None
    """Run this part of every grid; the counter `ctas_left_out` then says how much is missing."""
    max_steps: int = 1 << 32
    """Ends endless loops: backward branches that one host thread may run in a launch."""
    uninitialised: tuple[Array, ...] = ()
    """Arrays that count as uninitialised until a kernel writes them, whatever bytes they hold; for initcheck."""
    goes_on: Callable[[Run], bool] = no_error
    """Whether the next launch is made after one that left this Run."""


DEFAULTS = RunOptions()


class Engine(ABC):
    """A device that runs compiled kernels on NumPy arrays and CPU tensors."""

    name: str
    """Of the kind of engine, for messages and records: `virtual`."""
    capabilities: Capabilities
    """What may be asked of it."""
    arch: str
    """`sm_89`: binaries must be compiled for it."""

    @property
    @abstractmethod
    def shared_limit_bytes(self) -> int:
        """Most shared memory that a CTA can have, by opt-in."""

    @abstractmethod
    def run(self, launches: Sequence[Launch], options: RunOptions = DEFAULTS) -> Run:
        """Run kernels in order, to their ends, and return what they left together.

        Arrays are copied in before the first launch and out after the last, so they change in place; each has one
        address in the whole run, and memory that is passed twice is one buffer. Launches that cannot be made are a
        LaunchError (too large: ResourceError) and leave every array as it was; a kernel that goes wrong is a Run with
        findings. Raises CannotWatch and CannotSample, before anything runs, where it must.
        """

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
        watch: Instrumentation = PLAIN,
        ctas: CtaSample | None = None,
        max_steps: int = 1 << 32,
    ) -> Run:
        """Run one kernel: `run` with one Launch. Arrays among `args` change in place.

        One argument per parameter: arrays, numbers, bytes, or tuples for structs. The options are those of `Launch`
        and `RunOptions`.
        """
        launch = Launch(binary, entry, grid, block, args, shared_bytes=shared_bytes, names=names)
        return self.run((launch,), RunOptions(watch=watch, ctas=ctas, max_steps=max_steps))

    @abstractmethod
    def set_symbol(self, binary: Binary, entry: str, name: str, value: Array) -> None:
        """Initialise a `__constant__` or `__device__` variable, which then lives from run to run."""

    @abstractmethod
    def static_shared_bytes(self, binary: Binary, entry: str) -> int:
        """Shared memory that the kernel has without asking at its launch."""

    def check_shared(self, launch: Launch) -> None:
        """Raise ResourceError for a launch with more shared memory than it may have."""
        static_bytes = self.static_shared_bytes(launch.binary, launch.entry)
        total = static_bytes + launch.shared_bytes
        if total > PLAIN_SHARED_BYTES and not launch.opt_in_shared:
            raise ResourceError(
                f"{launch.entry} asks for {total} bytes of shared memory, {static_bytes} of them static; "
                f"above {PLAIN_SHARED_BYTES} a launch must opt in: add opt_in_shared to its line "
                f"({self.arch} then gives a CTA up to {self.shared_limit_bytes})"
            )
        if total > self.shared_limit_bytes:
            raise ResourceError(
                f"{launch.entry} asks for {total} bytes of shared memory; {self.arch} has {self.shared_limit_bytes} "
                "per CTA. Smaller tiles or fewer pipeline stages help."
            )


def require_possible(engine: Engine, launches: Sequence[Launch], options: RunOptions) -> None:
    """Raise UsageError if there is nothing to run, CannotWatch if the engine cannot watch as `options` ask."""
    if not launches:
        raise UsageError("no launch to run")
    if options.watch.key != PLAIN.key and not engine.capabilities.can_watch:
        raise CannotWatch(
            f"the engine {engine.name!r} cannot watch a run: use the virtual GPU, or run without checkers"
        )
