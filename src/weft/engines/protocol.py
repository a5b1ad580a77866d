"""The engine interface: what a kernel runs on. tests/engines/test_contract.py tests what every engine must do."""

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
"""Bytes of shared memory that a CTA may have without opting in."""


class CannotWatch(UsageError):
    """The engine runs kernels but cannot watch them. Nothing ran."""


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do in addition to running a kernel. It refuses the rest and never ignores it silently."""

    can_watch: bool
    """Takes `watch`, and without it still detects out-of-bounds accesses, deadlocks and infinite loops."""
    can_sample: bool
    """Takes `ctas`."""
    exact: bool
    """The same inputs give the same bits on every machine."""


def no_error(run: Run) -> bool:
    """Whether a launch ended without an error: on hardware nothing would run after a fault."""
    return run.clean


@dataclass(frozen=True)
class RunOptions:
    """How launches are run."""

    watch: Instrumentation = PLAIN
    """Checkers and counters; memory, deadlocks and infinite loops are always checked."""
    ctas: CtaSample | None = None
    """Run this part of every grid; the counter `ctas_left_out` then counts the CTAs that did not run."""
    max_steps: int = 1 << 32
    """Ends infinite loops: backward branches that one host thread may run in a launch."""
    uninitialised: tuple[Array, ...] = ()
    """Arrays that count as uninitialised until a kernel writes them, whatever bytes they hold; for initcheck."""
    goes_on: Callable[[Run], bool] = no_error
    """Whether the next launch is made after one with this Run."""


DEFAULTS = RunOptions()


class Engine(ABC):
    """A device that runs compiled kernels on NumPy arrays and CPU tensors."""

    name: str
    """Name of the kind of engine, for messages and records: `virtual`."""
    capabilities: Capabilities
    """What it supports."""
    arch: str
    """`sm_89`: binaries must be compiled for it."""

    @property
    @abstractmethod
    def shared_limit_bytes(self) -> int:
        """Bytes of shared memory that a CTA can have with opt-in."""

    @abstractmethod
    def run(self, launches: Sequence[Launch], options: RunOptions = DEFAULTS) -> Run:
        """Run kernels in order, to their ends, and return their combined result.

        Arrays are copied in before the first launch and out after the last, so they change in place; each has one
        address in the entire run, and memory that is passed twice is one buffer. Launches that cannot be made raise
        LaunchError (too large: ResourceError) and leave every array unchanged; a kernel that fails returns a Run with
        findings. CannotWatch and CannotSample are raised before anything runs.
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
        """Initialise a `__constant__` or `__device__` variable, which then persists from run to run."""

    @abstractmethod
    def static_shared_bytes(self, binary: Binary, entry: str) -> int:
        """Return the bytes of static shared memory of the kernel."""

    def check_shared(self, launch: Launch) -> None:
        """Raise ResourceError for a launch with more shared memory than allowed."""
        static_bytes = self.static_shared_bytes(launch.binary, launch.entry)
        total = static_bytes + launch.shared_bytes
        if total > PLAIN_SHARED_BYTES and not launch.opt_in_shared:
            raise ResourceError(
                f"{launch.entry} needs {total} bytes of shared memory, {static_bytes} of them static; "
                f"above {PLAIN_SHARED_BYTES} a launch must opt in: add opt_in_shared to its line "
                f"({self.arch} then gives a CTA up to {self.shared_limit_bytes})"
            )
        if total > self.shared_limit_bytes:
            raise ResourceError(
                f"{launch.entry} needs {total} bytes of shared memory; {self.arch} has {self.shared_limit_bytes} "
                "per CTA. Use smaller tiles or fewer pipeline stages."
            )


def require_possible(engine: Engine, launches: Sequence[Launch], options: RunOptions) -> None:
    """Raise UsageError if there is nothing to run, CannotWatch if the engine cannot watch as `options` require."""
    if not launches:
        raise UsageError("there is no launch to run")
    if options.watch.key != PLAIN.key and not engine.capabilities.can_watch:
        raise CannotWatch(
            f"the engine {engine.name!r} cannot watch a run: use the virtual GPU, or run without checkers"
        )
