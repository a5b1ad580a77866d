"""The answers of the tools: small typed values, the cure first. Fields with their default are not in the JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mcp.types import CallToolResult, TextContent
from pydantic import TypeAdapter

from weft.core.records import Finding, Place, worst_first

MODELLED = "modelled, not measured: counters of the virtual GPU and the cubin's SASS, cycles of a model"


@dataclass(frozen=True)
class FindingAnswer:
    """One finding of a checker."""

    cure: str
    code: str
    what: str
    where: str
    severity: str
    times: int = 1
    actor: str = ""
    """CTA, warp and lanes, and the other access of a race: only with `detail`."""


@dataclass(frozen=True)
class CheckAnswer:
    """A verdict. Judging ends at the first workload that fails."""

    verdict: Literal["passed", "failed", "not_judged"]
    cure: str
    status: str
    next: str
    judged: int
    planned: int
    message: str = ""
    failure: dict[str, Any] | None = None
    """The status of the verdict that decided; docs/reference/verdict_json.md lists them."""
    isolated: bool = False
    """Whether it ran in a separate process with limits, as text does."""
    seconds: float = 0.0
    judged_for: tuple[str, ...] = ()
    """Limits of the verdict if the kernel supports less than its task: `f16`, `HQ = HKV`, `D = 64`."""
    skipped: tuple[str, ...] = ()
    """Workloads that the kernel does not support: `12 skipped: the kernel has one head count (H)`."""
    hint: str = ""
    """What a wrong kernel seems to be made for (another mask, one head dimension), and the line that shows it."""


@dataclass(frozen=True)
class DiagnoseAnswer:
    """The first error in a kernel."""

    cure: str
    where: str
    source_line: str
    what: str
    status: str
    healthy: bool
    next: str
    stage: str = ""
    known_as: str = ""
    explained: float | None = None
    """The share of the error that `known_as` explains, 0 to 1; null if it is not measured."""
    right_before: tuple[str, ...] = ()
    not_observed: tuple[str, ...] = ()
    """Stages with an unknown result: they were not observed."""
    not_observed_because: str = ""
    arithmetic: tuple[str, ...] = ()
    """How one wrong element is computed correctly."""
    verify: "VerifyWith | None" = None
    case: str = ""
    findings: tuple[FindingAnswer, ...] = ()
    other_explanations: tuple[str, ...] = ()
    """Only with `detail`."""
    expected_row: tuple[str, ...] = ()
    actual_row: tuple[str, ...] = ()
    judged: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class VerifyWith:
    """Arguments of `check`, in addition to the source and the task, that judge the workload that failed first."""

    shapes: tuple[str, ...]
    masks: tuple[str, ...]
    regimes: tuple[str, ...]
    dtypes: tuple[str, ...]
    encodings: tuple[str, ...]
    seeds: int


@dataclass(frozen=True)
class CostlyLine:
    """A source line that costs cycles."""

    advice: str
    where: str
    cycles: int
    unit: str


@dataclass(frozen=True)
class LaunchAnswer:
    """One launch on one GPU."""

    entry: str
    advice: tuple[str, ...]
    limiter: str
    lb_warm_cycles: int
    est_warm_cycles: tuple[int, int] | None
    """None for a GPU that the model was not compared with."""
    warps_per_sm: str
    limited_by: tuple[str, ...]
    registers: int
    shared_bytes: int
    spilled_bytes: int
    lines: tuple[CostlyLine, ...]
    counters: dict[str, float] | None = None
    """Counters by their ncu names; only with `detail`."""


@dataclass(frozen=True)
class ProfileAnswer:
    """The modelled cost of a kernel. Nothing is measured."""

    summary: str
    gpu: str
    lb_warm_us: float
    lb_warm_cycles: int
    lb_cold_cycles: int
    est_warm_cycles: tuple[int, int] | None
    """None for a GPU that the model was not compared with."""
    sizes: dict[str, int]
    launches: tuple[LaunchAnswer, ...]
    note: str = MODELLED


@dataclass(frozen=True)
class ShowAnswer:
    """What a kernel compiles to, or a part of it."""

    form: str
    entries: tuple[str, ...]
    compiler: str
    text: str
    first_line: int
    lines_in_all: int
    next: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class CodeAnswer:
    """One row of the table of findings."""

    code: str
    name: str
    severity: str


@dataclass(frozen=True)
class ExplainAnswer:
    """What a finding's code means."""

    cure: str
    code: str = ""
    name: str = ""
    tool: str = ""
    severity: str = ""
    page: str = ""
    codes: tuple[CodeAnswer, ...] = ()
    """All codes, if no code was given."""


@dataclass(frozen=True)
class CandidateAnswer:
    """A candidate of a search."""

    id: int
    score_cycles: float | None
    limiter: str
    changes: tuple[str, ...]
    hypothesis: str
    status: str


@dataclass(frozen=True)
class SearchAnswer:
    """The state of a search."""

    run: int
    state: str
    task: str
    start: str
    gpu: str
    evaluations: int
    outcomes: dict[str, int]
    start_cycles: float | None = None
    best_cycles: float | None = None
    ratio: float | None = None
    winner: int | None = None
    why: str = ""
    elites: tuple[CandidateAnswer, ...] = ()
    insights: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvolveAnswer:
    """The searches of a store, the newest first."""

    next: str
    searches: tuple[SearchAnswer, ...]
    searches_in_all: int


def reply(answer: Any) -> CallToolResult:
    """Return the answer as structured content, and as text for clients that read only text."""
    adapter: TypeAdapter[Any] = TypeAdapter(type(answer))
    content = adapter.dump_python(answer, mode="json", exclude_defaults=True)
    text = adapter.dump_json(answer, exclude_defaults=True).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=content)


def finding_answers(findings: Sequence[Finding], limit: int, *, detail: bool) -> tuple[FindingAnswer, ...]:
    """Return the most severe findings, at most `limit`."""
    return tuple(_finding(each, detail) for each in worst_first(findings)[:limit])


def where(place: Place | None) -> str:
    """file:line."""
    return str(place) if place is not None else ""


def _finding(finding: Finding, detail: bool) -> FindingAnswer:
    return FindingAnswer(
        cure=finding.remedy,
        code=finding.code,
        what=finding.message,
        where=where(finding.place) or f"PTX line {finding.ptx_line}",
        severity=str(finding.level),
        times=finding.count,
        actor=str(finding) if detail else "",
    )
