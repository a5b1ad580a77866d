"""What the judge needs of the place where a candidate runs: this process, any engine, or a supervised child.

The judge asks for runs and decides; a `Runs` only runs. It receives macros, inputs and the names of outputs, never what
should come out.
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
    """Arrays that the judge looks at."""


@dataclass(frozen=True)
class Watch:
    """How a run is watched and where it ends."""

    tools: tuple[str, ...]
    max_steps: int
    ctas: CtaSample | None = None
    """The part of the grid that runs; None: all of it."""
    kept: bool = False
    """Whether the device keeps what the calls before left in its variables, instead of its first state. The arrays of
    two such calls in sequence lie at the same addresses."""


@dataclass(frozen=True)
class Ran:
    """What a run left."""

    run: Run
    outputs: Outputs
    numbers: Mapping[str, str]
    """Macros and scalars of this call."""


def same_bits(one: Outputs, other: Outputs) -> bool:
    """Return whether two runs left the same."""
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


class Runs(Protocol):
    """A candidate in a place where it can run. What cannot run raises one of REFUSALS."""

    @property
    def declared(self) -> Declared:
        """What the candidate says about its arithmetic."""
        ...

    @property
    def max_steps(self) -> int:
        """Loop iterations that it may use; MAX_STEPS stands for what the judge thinks right."""
        ...

    @property
    def repeated_by(self) -> str:
        """What `again` changes, for the message about other bits."""
        ...

    @property
    def one_order(self) -> bool:
        """Whether `run` has one order of CTAs and warps: equal calls then differ by the device's state alone."""
        ...

    def run(self, call: Call, watch: Watch) -> Ran:
        """Run the call on a device in its first state, or on the one that the calls before left (`watch.kept`)."""
        ...

    def again(self) -> Iterator[Ran]:
        """Repeat the last call, unwatched, on the same device, in each way that must leave the same bits."""
        ...

    def run_debug(self, call: Call) -> Run | None:
        """Run the -G build under initcheck; None where there is no such thing."""
        ...

    def look(self, look: Look) -> tuple[Boundary, ...]:
        """Find the sizes at which the kernels that ran take another way; none where their code is out of sight."""
        ...

    def coverage(self) -> Coverage:
        """Return what of its code all runs so far executed; nothing where that is not counted."""
        ...

    def check_indices(self, defines: Mapping[str, str], calls: Sequence[Sequence[Shapes]]) -> Run:
        """Look at index arithmetic in calls that are too large to run; see `engines/check_indices.py`."""
        ...

    def grids(self, call: Call) -> tuple[Dim3, ...]:
        """Return the grid of every launch of a call. Raises CannotSample where a part of it cannot run."""
        ...


class Refused(WeftError):
    """It was not run, or it cannot be judged; `status` says which."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


REFUSALS = (Refused, CompileError, ParseError, Unsupported, LaunchError, UsageError)


def status_of(error: Exception) -> Status:
    """Return the status of what this error ended; CRASHED for one that no candidate should bring about."""
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
