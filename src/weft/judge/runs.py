"""The interface between the judge and the place where a candidate runs: this process, any engine, or a child process.

The judge requests runs and decides; a `Runs` only runs. It receives macros, inputs and the names of outputs, never the
expected results.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from weft.attention.dtypes import Array
from weft.core.errors import CompileError, LaunchError, ParseError, ResourceError, Unsupported, UsageError, WeftError
from weft.core.records import Dim3, Run
from weft.core.status import Status
from weft.coverage.records import Boundary, Coverage
from weft.engines.check_indices import Shapes
from weft.engines.sample import CtaSample
from weft.tasks.task import Declared, Outputs

from .look import Look

OTHER_SCHEDULES = (1, 2)
"""Other orders of CTAs and warps: a right kernel gives the same bits."""


@dataclass(frozen=True)
class Call:
    """One call of a candidate."""

    defines: Mapping[str, str]
    """Macros that select type, mask and encoding, as far as the candidate has them."""
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]
    """Arrays that the judge reads."""


@dataclass(frozen=True)
class Watch:
    """How a run is watched and where it ends."""

    tools: tuple[str, ...]
    max_steps: int
    ctas: CtaSample | None = None
    """The part of the grid that runs; None: all of it."""
    kept: bool = False
    """Whether the device keeps what the previous calls left in its variables, instead of starting fresh. The arrays of
    two such calls in sequence are at the same addresses."""


@dataclass(frozen=True)
class Ran:
    """The result of a run."""

    run: Run
    outputs: Outputs
    numbers: Mapping[str, str]
    """Macros and scalars of this call."""


def same_bits(one: Outputs, other: Outputs) -> bool:
    """Return whether two runs gave bitwise identical outputs."""
    return not different(one, other)


def different(one: Outputs, other: Outputs) -> tuple[str, ...]:
    """Return the outputs that are not bitwise identical, or that only one of two runs has."""
    both = one.keys() & other.keys()
    return tuple(name for name in {**one, **other} if name not in both or one[name].tobytes() != other[name].tobytes())


class Runs(Protocol):
    """A candidate in a place where it can run. What cannot run raises one of REFUSALS."""

    @property
    def declared(self) -> Declared:
        """What the candidate declares about its arithmetic."""
        ...

    @property
    def max_steps(self) -> int:
        """Loop iterations that it may use; MAX_STEPS means that the judge chooses."""
        ...

    @property
    def repeated_by(self) -> str:
        """What `again` changes, for the message about different bits."""
        ...

    @property
    def one_order(self) -> bool:
        """Whether `run` has a fixed order of CTAs and warps: equal calls then differ only by the device's state."""
        ...

    def run(self, call: Call, watch: Watch) -> Ran:
        """Run the call on a fresh device, or on the state that the previous calls left (`watch.kept`)."""
        ...

    def again(self) -> Iterator[Ran]:
        """Repeat the last call, unwatched, on the same device, in each order that must give the same bits."""
        ...

    def run_debug(self, call: Call) -> Run | None:
        """Run the -G build under initcheck; None where there is no such build."""
        ...

    def look(self, look: Look) -> tuple[Boundary, ...]:
        """Find the sizes at which the kernels that ran take another branch; none where their code is not available."""
        ...

    def coverage(self) -> Coverage:
        """Return the part of its code that all runs so far executed; empty where that is not counted."""
        ...

    def check_indices(self, defines: Mapping[str, str], calls: Sequence[Sequence[Shapes]]) -> Run:
        """Check index arithmetic in calls that are too large to run; see `engines/check_indices.py`."""
        ...

    def grids(self, call: Call) -> tuple[Dim3, ...]:
        """Return the grid of every launch of a call. Raises CannotSample where a part of it cannot run."""
        ...


class Refused(WeftError):
    """The candidate was not run, or it cannot be judged; `status` says which."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


REFUSALS = (Refused, CompileError, ParseError, Unsupported, LaunchError, UsageError)


def status_of(error: Exception) -> Status:
    """Return the status of a run that ended with this error; CRASHED for one that no candidate should cause."""
    if isinstance(error, Refused):
        return error.status
    for kind, status in (
        (CompileError, Status.COMPILE_ERROR),
        (Unsupported, Status.UNSUPPORTED),
        (ParseError, Status.UNSUPPORTED),
        (ResourceError, Status.RESOURCE_ERROR),
        (LaunchError, Status.LAUNCH_ERROR),
        (UsageError, Status.LAUNCH_ERROR),
    ):
        if isinstance(error, kind):
            return status
    return Status.CRASHED
