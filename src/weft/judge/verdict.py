"""The verdict on one workload, and the conclusion from the verdicts on all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft.attention.error_report import ErrorReport
from weft.attention.gates import GateResult
from weft.core.finding_codes import Severity
from weft.core.records import Finding, Suppressed, first_of_each
from weft.core.status import Status
from weft.tasks.task import Workload

NOTHING_SELECTED = "the kernel supports none of the requested shapes, types, masks and encodings"


@dataclass(frozen=True)
class Sample:
    """One element of the output and what it should be."""

    index: tuple[int, ...]
    out: float
    expected: float


@dataclass(frozen=True)
class Verdict:
    """The decision about one workload, and what decided it."""

    workload: Workload
    status: Status
    message: str = ""
    gates: tuple[GateResult, ...] = ()
    error: ErrorReport | None = None
    """Error of the first output relative to the float64 reference on the same (dequantised) inputs."""
    parts: Mapping[str, ErrorReport] = field(default_factory=dict)
    """The parts of the error, where the task splits it: err_quant, err_algorithm, err_kernel."""
    not_judged: tuple[str, ...] = ()
    """Optional outputs of the task that the kernel lacks."""
    samples: tuple[Sample, ...] = ()
    """The first wrong elements."""
    findings: tuple[Finding, ...] = field(default=())
    suppressed: tuple[Suppressed, ...] = ()
    """Findings that the source's allow lines excuse."""
    ctas_left_out: int = 0
    """CTAs that did not run because the workload was sampled."""
    debug_build: bool = False
    """Whether this is about the kernel's -G build, which is checked for uninitialised reads only."""
    seconds: float = 0.0
    limit: bool = False
    """Whether the kernel itself refuses these sizes: a note, where the judge chose them."""
    large_sizes: bool = False
    """Whether this is about index arithmetic at large sizes, for the build of this workload; nothing ran."""
    order_dependent: tuple[str, ...] = ()
    """Outputs that have other bits in another order of CTAs and warps, as declared; the gates pass in every order."""

    @property
    def label(self) -> str:
        """The workload, and whether this is about the -G build or about large sizes."""
        return f"{self.workload}{' (-G build)' * self.debug_build}{' (large sizes)' * self.large_sizes}"

    @property
    def by_findings(self) -> bool:
        """Whether findings decided; the first of them is the message."""
        return bool(self.findings) and self.status in (Status.UNSAFE, Status.TIMEOUT)

    @property
    def further_findings(self) -> tuple[Finding, ...]:
        """Findings that the message does not name."""
        return self.findings[self.by_findings :]

    @property
    def extra(self) -> bool:
        """Whether it does not count as a workload: it is judged once, after them, or the kernel refuses it."""
        return self.debug_build or self.large_sizes or self.limit

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED

    @property
    def aside(self) -> bool:
        """Whether it is a note next to a pass: a -G build that cannot be judged, or sizes that the kernel refuses."""
        return self.limit or (self.debug_build and self.status is Status.UNSUPPORTED)


@dataclass(frozen=True)
class Conclusion:
    """The conclusion from the verdicts on one candidate."""

    status: Status
    message: str
    failure: Verdict | None
    """The first verdict that decides against it; None if it passed."""
    judged: int
    planned: int
    """Number of workloads, without what is judged once after them."""

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED


def conclude(verdicts: Sequence[Verdict], planned: int) -> Conclusion:
    """Return the status of a candidate: of the first failure, else of the first workload that was not judged."""
    judged = sum(not verdict.extra for verdict in verdicts)
    wrong = [verdict for verdict in verdicts if not verdict.passed and not verdict.aside]
    failure = next((verdict for verdict in wrong if verdict.status.decided), wrong[0] if wrong else None)
    if failure is not None:
        return Conclusion(failure.status, failure.message, failure, judged, planned)
    if not judged:
        return Conclusion(Status.REJECTED, NOTHING_SELECTED, None, judged, planned)
    notes = [verdict.message for verdict in verdicts if verdict.aside]
    notes += map(str, warnings_of(verdicts))
    return Conclusion(Status.PASSED, "; ".join(notes), None, judged, planned)


def warnings_of(verdicts: Sequence[Verdict]) -> tuple[Finding, ...]:
    """Return the warnings of workloads that passed, each once."""
    findings = (finding for verdict in verdicts if verdict.passed for finding in verdict.findings)
    return first_of_each(finding for finding in findings if finding.level is Severity.WARNING)
