"""How a kernel is called right: the statuses, in order of judgement, and what a verdict carries."""

from dataclasses import dataclass, field
from enum import StrEnum

from weft.attention.error_report import ErrorReport
from weft.attention.gates import GateResult
from weft.attention.shapes import Shape
from weft.core.records import Finding


class Status(StrEnum):
    """The first thing that is wrong decides."""

    PASSED = "PASSED"
    COMPILE_ERROR = "COMPILE_ERROR"
    LAUNCH_ERROR = "LAUNCH_ERROR"
    UNSAFE = "UNSAFE"
    """Findings of the virtual GPU or of a probe."""
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    TIMEOUT = "TIMEOUT"
    UNSUPPORTED = "UNSUPPORTED"
    """The virtual GPU does not know something in the kernel: neither pass nor fail."""


@dataclass(frozen=True)
class Workload:
    """One problem: a shape, the types and mask, how the inputs are drawn, and the seed."""

    shape: Shape
    dtype: str
    mask: str
    regime: str
    seed: int

    def __str__(self) -> str:
        return f"{self.shape.name} {self.dtype} {self.mask} {self.regime} seed {self.seed}"


@dataclass(frozen=True)
class Sample:
    """One element of the output beside what it should be."""

    index: tuple[int, ...]
    out: float
    expected: float


@dataclass(frozen=True)
class Verdict:
    """What was decided about one workload, and by what."""

    workload: Workload
    status: Status
    message: str = ""
    gates: tuple[GateResult, ...] = ()
    error: ErrorReport | None = None
    """The output against float64 attention on the same (dequantised) inputs."""
    samples: tuple[Sample, ...] = ()
    """The first wrong elements."""
    findings: tuple[Finding, ...] = field(default=())
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED
