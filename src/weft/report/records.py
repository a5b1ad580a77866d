"""The data of a page as plain frozen values: collected by one stage, drawn by the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from weft.attention.dtypes import Array
from weft.diagnose.shown import RowExcerpt
from weft.profile.roofline_points import Roofline


@dataclass(frozen=True)
class Named:
    """A name and its value."""

    name: str
    value: str


@dataclass(frozen=True)
class WorkloadResult:
    """One judged workload."""

    row: str
    """Shape, type and mask: its row in the table."""
    column: str
    """How the inputs were drawn."""
    label: str
    status: str
    message: str
    passed: bool


@dataclass(frozen=True, eq=False)
class ErrorMap:
    """The error over rows and columns, slice by slice. In large maps a cell is the worst of several elements."""

    name: str
    """The name in the selector: `O as it failed first`."""
    about: str
    """Sizes and origin of the workload."""
    row_name: str
    column_name: str
    slices: tuple[str, ...]
    """`batch 0 head 1`."""
    error: Array
    """(slices, rows, columns): |actual - expected|; NaN: not observed; infinite: a NaN on either side."""
    relative: bool = False
    """Whether the error is in units of each element's limit."""
    first_slice: int = 0
    first_row: int = 0
    first_column: int = 0
    rows_per_cell: int = 1
    columns_per_cell: int = 1
    actual: Array | None = None
    """(rows, columns) of `first_slice`, if it is small enough."""
    expected: Array | None = None
    limits: Array | None = None
    tiles: tuple[int, ...] = ()
    """Rows at which a CTA's tile begins, except the first."""
    warps: tuple[int | None, ...] = ()
    """The warp of each row of `first_slice`, if it was observed."""
    warp_columns: tuple[int, ...] = ()


class StageState(StrEnum):
    """The state of a stage in a recorded run."""

    RIGHT = "right"
    WRONG = "wrong"
    LOST = "out of sight"
    UNSEEN = "not observed"
    AFTER = "comes later"


@dataclass(frozen=True)
class Stage:
    """One stage, in the order of computation."""

    name: str
    meaning: str
    state: StageState
    detail: str = ""


@dataclass(frozen=True)
class Diagnosed:
    """What is known about the error."""

    sentence: str
    case: str
    cure: str
    stages: tuple[Stage, ...]
    where: str = ""
    """Place of the first wrong stage."""
    made_by: str = ""
    excerpt: RowExcerpt | None = None
    arithmetic: tuple[str, ...] = ()
    known_as: tuple[Named, ...] = ()
    """Mistakes with this signature, and how much of the error they explain."""
    notes: tuple[Named, ...] = ()
    line: int | None = None
    """Line of the kernel's file where the error shows."""
    fix_line: int | None = None
    """Line to fix, if it is another one."""


@dataclass(frozen=True)
class SourceFinding:
    """A finding about a line."""

    code: str
    level: str
    """error, warning or info; `cause` for the line the diagnosis names."""
    message: str
    cure: str
    line: int | None
    """None: it has no line in this file."""
    place: str
    other_line: int | None = None


@dataclass(frozen=True)
class LineCost:
    """The cost of a line over all launches, with the unit that it keeps busy."""

    line: int
    cycles: float
    unit: str
    advice: str


@dataclass(frozen=True)
class SourceView:
    """The kernel's file."""

    name: str
    language: str
    """cuda, ptx or python."""
    text: str
    findings: tuple[SourceFinding, ...] = ()
    costs: tuple[LineCost, ...] = ()
    runs: Mapping[int, int] = field(default_factory=dict)
    """Line → how often warps executed it, for lines with code, if it was counted."""


@dataclass(frozen=True)
class LaunchCost:
    """One launch on the chip."""

    entry: str
    shape: str
    """Grid and block."""
    facts: tuple[Named, ...]
    bounds: tuple[tuple[str, float], ...]
    """Lower bounds in cycles by unit, the largest first."""
    estimate: tuple[float, float]
    """EST_warm in cycles."""
    limiter: str
    occupancy: tuple[tuple[str, int], ...]
    """Blocks per SM by each limit."""
    warps: tuple[int, int]
    """Warps on an SM, and the maximum."""
    counters: tuple[tuple[str, float], ...]
    """Counters by ncu's names."""
    own_counters: tuple[tuple[str, float], ...]
    advice: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Cost:
    """The modelled cost of a kernel on a GPU. Modelled, not measured."""

    title: str
    """Chip, sizes, compiler."""
    facts: tuple[Named, ...]
    launches: tuple[LaunchCost, ...]
    roofline: Roofline


@dataclass(frozen=True)
class KernelReport:
    """A kernel with its verdicts, its diagnosis and its cost."""

    target: str
    status: str
    message: str
    """Status of all verdicts together."""
    passed: bool
    sentence: str
    """The headline: the diagnosis in one sentence, if there is one."""
    facts: tuple[Named, ...]
    commands: tuple[Named, ...]
    results: tuple[WorkloadResult, ...]
    source: SourceView | None
    maps: tuple[ErrorMap, ...] = ()
    no_map: str = ""
    """Why there is no map."""
    diagnosed: Diagnosed | None = None
    cost: Cost | None = None
    no_cost: str = ""


@dataclass(frozen=True)
class DiffLine:
    """A line of the diff between parent and child."""

    sign: str
    """`+`, `-`, a blank, or `@` for a gap."""
    text: str


@dataclass(frozen=True)
class CandidateView:
    """One candidate of a search."""

    id: int
    parents: tuple[int, ...]
    generation: int
    order: int
    """Its number in the order of proposal, from 1."""
    kind: str
    """winner, elite, kept, passed, failed or duplicate."""
    status: str
    score: float | None
    against_parent: float | None
    """Score divided by that of its parent."""
    changes: tuple[str, ...]
    hypothesis: str
    facts: tuple[Named, ...]
    diff: tuple[DiffLine, ...]


@dataclass(frozen=True)
class InsightView:
    """An expectation and its result."""

    candidate: int
    outcome: str
    """confirmed, refuted or open."""
    hypothesis: str
    counter: str
    before: float
    after: float | None
    note: str


@dataclass(frozen=True)
class LeverView:
    """A value that a lever was set to."""

    change: str
    """`DEQUANT: lut → arithmetic`."""
    tried: int
    passed: int
    kept: int
    ratio: float | None
    """Geometric mean of the score divided by the parent's, of those that passed."""


@dataclass(frozen=True)
class SearchReport:
    """The state of a search."""

    run: int
    title: str
    """Task and start."""
    state: str
    sentence: str
    unit: str
    """Unit of the scores: cycles by the model, or microseconds."""
    facts: tuple[Named, ...]
    commands: tuple[Named, ...]
    candidates: tuple[CandidateView, ...]
    levers: tuple[LeverView, ...]
    insights: tuple[InsightView, ...]
    cost: tuple[Named, ...]
    winning_line: tuple[int, ...] = ()
    """The best candidate and its ancestors, the start first."""
