"""How a kernel is called right: the statuses, in order of judgement, and what a verdict carries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from weft.attention.error_report import ErrorReport
from weft.attention.gates import GateResult
from weft.core.records import Finding, Suppressed
from weft.tasks.task import Workload


class Status(StrEnum):
    """The first thing that is wrong decides."""

    PASSED = "PASSED"
    COMPILE_ERROR = "COMPILE_ERROR"
    RESOURCE_ERROR = "RESOURCE_ERROR"
    """More shared memory or threads than the GPU has."""
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
    """The first output against the float64 reference on the same (dequantised) inputs."""
    parts: Mapping[str, ErrorReport] = field(default_factory=dict)
    """Where the error comes from, where the task splits it: err_quant, err_algorithm, err_kernel."""
    not_judged: tuple[str, ...] = ()
    """Optional outputs of the task that the kernel lacks."""
    samples: tuple[Sample, ...] = ()
    """The first wrong elements."""
    findings: tuple[Finding, ...] = field(default=())
    suppressed: tuple[Suppressed, ...] = ()
    """What the source's allow lines excuse."""
    ctas_left_out: int = 0
    """CTAs that did not run because the workload was sampled."""
    debug_build: bool = False
    """Whether this is about the kernel's -G build, which is judged for uninitialised reads alone."""
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """The workload, and whether this is about the -G build."""
        return f"{self.workload} (-G build)" if self.debug_build else str(self.workload)

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED
