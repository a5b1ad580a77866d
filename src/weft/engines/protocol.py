"""What a kernel runs on. The virtual GPU is one engine; tests/engines/test_contract.py is what all must do."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from weft.core.errors import UsageError
from weft.core.records import Binary, Run
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .arguments import Array
from .sample import Sample
from .written import EVERYTHING_WRITTEN, Written


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


class Engine(Protocol):
    """A device that runs compiled kernels on NumPy arrays and CPU tensors."""

    @property
    def name(self) -> str:
        """Of the kind of engine, for messages and records: `virtual`."""
        ...

    @property
    def arch(self) -> str:
        """`sm_89`: binaries must be compiled for it."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What may be asked of it."""
        ...

    @property
    def shared_limit_bytes(self) -> int:
        """Most shared memory that a CTA can have, by opt-in."""
        ...

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
        """Run a kernel to its end. Arrays among `args` are copied in before and out after, so they change in place.

        One argument per parameter: arrays, numbers, bytes, or tuples for structs. Memory that is passed twice is one
        buffer. A launch that cannot be is a LaunchError (too large: ResourceError) and leaves every array as it was;
        a kernel that goes wrong is a Run with findings. Raises CannotWatch and CannotSample where it must.
        """
        ...

    def set_symbol(self, binary: Binary, entry: str, name: str, value: Array) -> None:
        """Initialise a `__constant__` or `__device__` variable, which then lives from launch to launch."""
        ...

    def sequence(self, binary: Binary, entry: str) -> AbstractContextManager[None]:
        """Launches of `binary` inside find every array at the address it had in the launch before."""
        ...

    def static_shared_bytes(self, binary: Binary, entry: str) -> int:
        """Shared memory that the kernel has without asking at its launch."""
        ...

    def check_sample(self, binary: Binary, entry: str) -> None:
        """Raise CannotSample if CTAs of this kernel cannot run alone."""
        ...


def require_watch(engine: Engine, watch: Instrumentation) -> None:
    """Raise CannotWatch if `watch` wants more than the engine has."""
    if watch.key != PLAIN.key and not engine.capabilities.can_watch:
        raise CannotWatch(
            f"the engine {engine.name!r} cannot watch a run: use the virtual GPU, or run without checkers"
        )
