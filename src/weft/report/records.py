"""What a page shows, as plain frozen values: gathered by one stage, drawn by the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from weft.attention.dtypes import Array
from weft.diagnose.shown import RowExcerpt
from weft.profile.roofline_points import Roofline


@dataclass(frozen=True)
class Named:
    """A name and what stands beside it."""

    name: str
    value: str


@dataclass(frozen=True)
class WorkloadResult:
    """One judged workload."""

    row: str
    """Shape, type and mask: its line in the table."""
    column: str
    """How the inputs were drawn."""
    label: str
    status: str
    message: str
    passed: bool


@dataclass(frozen=True, eq=False)
class ErrorMap:
    """The error over rows and columns, slice by slice. In large ones a cell is the worst of several."""

    name: str
    """For the selector: `O as it failed first`."""
    about: str
    """Sizes and origin of the workload."""
    row_name: str
    column_name: str
    slices: tuple[str, ...]
    """`batch 0 head 1`."""
    error: Array
    """(slices, rows, columns): |actual - expected|; NaN: not observed; infinite: a NaN on either side."""
    relative: bool = False
    """Whether the error is given in units of each element's own limit."""
    first_slice: int = 0
    first_row: int = 0
    first_column: int = 0
    rows_per_cell: int = 1
    columns_per_cell: int = 1
    actual: Array | None = None
    """(rows, columns) of `first_slice`, where that is small enough."""
    expected: Array | None = None
    limits: Array | None = None
    tiles: tuple[int, ...] = ()
    """Rows at which a CTA's tile begins, but the first."""
    warps: tuple[int | None, ...] = ()
    """The warp of each row of `first_slice`, where it was seen."""
    warp_columns: tuple[int, ...] = ()


class StageState(StrEnum):
    """What a recorded run says of a stage."""

    RIGHT = "right"
    WRONG = "wrong"
    LOST = "out of sight"
    UNSEEN = "not observed"
    AFTER = "comes later"


@dataclass(frozen=True)
class Stage:
    """One stage in the order a kernel makes them."""

    name: str
    meaning: str
    state: StageState
    detail: str = ""


@dataclass(frozen=True)
class Diagnosed:
    """What is wrong, as far as it is known."""

    sentence: str
    case: str
    cure: str
    stages: tuple[Stage, ...]
    where: str = ""
    """Of the first wrong stage."""
    made_by: str = ""
    excerpt: RowExcerpt | None = None
    arithmetic: tuple[str, ...] = ()
    known_as: tuple[Named, ...] = ()
    """Mistakes that leave this mark, and how much of the error they explain."""
    notes: tuple[Named, ...] = ()
    line: int | None = None
    """Of the kernel's own file: where it shows."""
    mend_line: int | None = None
    """Where the cure goes, if that is another line."""


@dataclass(frozen=True)
class SourceFinding:
    """Something said of a line."""

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
    """What a line keeps busy, over all launches."""

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
    """Line → how often warps came to it, for lines with code, where it was counted."""


@dataclass(frozen=True)
class LaunchCost:
    """One launch on the chip."""

    entry: str
    shape: str
    """Grid and block."""
    facts: tuple[Named, ...]
    bounds: tuple[tuple[str, float], ...]
    """Cycles at least by unit, the longest first."""
    estimate: tuple[float, float]
    """EST_warm in cycles."""
    limiter: str
    occupancy: tuple[tuple[str, int], ...]
    """Blocks per SM by each limit."""
    warps: tuple[int, int]
    """Held by an SM, of how many."""
    counters: tuple[tuple[str, float], ...]
    """Under ncu's names."""
    own_counters: tuple[tuple[str, float], ...]
    advice: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Cost:
    """What the model says of a kernel on a chip. Modelled, not measured."""

    title: str
    """Chip, sizes, compiler."""
    facts: tuple[Named, ...]
    launches: tuple[LaunchCost, ...]
    roofline: Roofline


@dataclass(frozen=True)
class KernelReport:
    """A kernel that was judged, looked into where it is wrong, and put on a chip."""

    target: str
    status: str
    message: str
    """Of the verdicts together."""
    passed: bool
    sentence: str
    """The headline: the diagnosis in a sentence, where there is one."""
    facts: tuple[Named, ...]
    commands: tuple[Named, ...]
    results: tuple[WorkloadResult, ...]
    source: SourceView | None
    maps: tuple[ErrorMap, ...] = ()
    no_map: str = ""
    """Why there is none."""
    diagnosed: Diagnosed | None = None
    cost: Cost | None = None
    no_cost: str = ""


@dataclass(frozen=True)
class DiffLine:
    """Of a child against its parent."""

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
    """Its place among all that were proposed, from 1."""
    kind: str
    """winner, elite, kept, passed, failed or duplicate."""
    status: str
    score: float | None
    against_parent: float | None
    """Score over that of its parent."""
    changes: tuple[str, ...]
    hypothesis: str
    facts: tuple[Named, ...]
    diff: tuple[DiffLine, ...]


@dataclass(frozen=True)
class InsightView:
    """An expectation and what came of it."""

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
    """Geometric mean of score over the parent's, of those that passed."""


@dataclass(frozen=True)
class SearchReport:
    """A search as it stands."""

    run: int
    title: str
    """Task and start."""
    state: str
    sentence: str
    unit: str
    """Of scores: cycles by the model, or microseconds."""
    facts: tuple[Named, ...]
    commands: tuple[Named, ...]
    candidates: tuple[CandidateView, ...]
    levers: tuple[LeverView, ...]
    insights: tuple[InsightView, ...]
    cost: tuple[Named, ...]
    winning_line: tuple[int, ...] = ()
    """The best candidate and its ancestors, the start first."""
