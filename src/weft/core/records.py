"""The records of Weft: frozen values that pass between the stages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .finding_codes import FINDING_CODES, Severity


@dataclass(frozen=True)
class Place:
    """A line of the user's source. `inlined_at` leads to the call it was inlined into."""

    file: str
    line: int
    column: int = 0
    inlined_at: "Place | None" = None

    def __str__(self) -> str:
        call = f" (inlined at {self.inlined_at})" if self.inlined_at else ""
        return f"{self.file}:{self.line}{call}"


def inlining_chain(place: Place | None) -> Iterator[Place]:
    """Yield the place, then the call it was inlined into, and so on outwards."""
    while place is not None:
        yield place
        place = place.inlined_at


def shared_place(a: Place | None, b: Place | None) -> Place | None:
    """Return what two places have in common: the line, and the enclosing calls as far as they agree."""
    if a is None or b is None or (a.file, a.line, a.column) != (b.file, b.line, b.column):
        return None
    return replace(a, inlined_at=shared_place(a.inlined_at, b.inlined_at))


@dataclass(frozen=True)
class Diagnostic:
    """One message of a compiler."""

    severity: str
    message: str
    place: Place | None = None

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        return f"{where}{self.severity}: {self.message}"


@dataclass(frozen=True)
class AssemblerNote:
    """A note of ptxas about code that it changed: products that wait for each other, a `setmaxnreg` without effect."""

    code: str
    """C7508, for example."""
    message: str
    function: str = ""
    """Its mangled name; empty if the note does not say it."""
    line: int = 0
    """PTX line, about; 0 if the note does not say it."""


@dataclass(frozen=True)
class Resources:
    """The resources that ptxas reports for a kernel."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    local_bytes: int
    constant_bytes: int = 0


@dataclass(frozen=True)
class SharedSymbol:
    """A `__shared__` array in the cubin: where the hardware puts it."""

    name: str
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class Binary:
    """A compiled source: PTX for the virtual GPU, a cubin for the real one."""

    source_name: str
    arch: str
    compiler: str
    flags: tuple[str, ...]
    ptx: str
    cubin: bytes = b""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Name as the user writes it (template expressions included) → mangled name in the PTX."""
    resources: Mapping[str, Resources] = field(default_factory=dict)
    """By mangled entry name."""
    shared: Mapping[str, tuple[SharedSymbol, ...]] = field(default_factory=dict)
    """By mangled entry name."""
    dynamic_shared_bytes: int = 0
    """Known at compile time for Triton only."""
    num_warps: int = 0
    """Known at compile time for Triton only."""
    source_digest: str = ""
    ptx_digest: str = ""
    defines: Mapping[str, str] = field(default_factory=dict)
    """Macros of the user's `-D`, as the compiler saw them; "(unused)" marks one that no file mentions."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Warnings about the user's files."""
    notes: tuple[AssemblerNote, ...] = ()
    """From the log of ptxas, if there is one."""


Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Finding:
    """A problem that a run showed: code, place, actor, numbers and cure."""

    code: str
    message: str
    ptx_line: int = 0
    place: Place | None = None
    cta: Dim3 = (0, 0, 0)
    warp: int = 0
    lanes: int = 0
    """Bit mask of the lanes concerned."""
    address: int = 0
    count: int = 1
    severity: str = ""
    """error, warning or info; empty: the severity of its code."""
    cure: str = ""
    """What to do here; empty: the cure of its code."""
    name: str = ""
    """Name of the variable or buffer concerned."""
    other: Place | None = None
    """Place of the other access of a race, of the conflicting copy, or of the use of a bad value (without a warp)."""
    other_warp: int = -1
    """-1: not known."""
    other_lanes: int = 0
    other_cta: Dim3 | None = None
    """Of a race between CTAs, the CTA of the other access."""
    cure_place: Place | None = None
    """The line after which the barrier of a race's cure belongs."""

    @property
    def level(self) -> Severity:
        """Return how severe it is: its own severity, or that of its code."""
        return Severity(self.severity) if self.severity else FINDING_CODES[self.code].severity

    @property
    def remedy(self) -> str:
        """Return what to do: its own cure, or that of its code."""
        return self.cure or FINDING_CODES[self.code].cure

    def __str__(self) -> str:
        parts = [self.message if self.level is Severity.ERROR else f"{self.level}: {self.message}"]
        parts.append(str(self.place) if self.place else f"PTX line {self.ptx_line}")
        if self.lanes:  # a finding about an argument or a line has no actor
            parts.append(f"CTA {self.cta} {_actor(self.warp, self.lanes)}")
        if self.other:
            known = self.other_warp >= 0
            parts[-1] += f" / {_actor(self.other_warp, self.other_lanes)} at " if known else " → "
            parts[-1] += str(self.other)
        if self.count > 1:
            parts.append(f"{self.count} times")
        return f"{self.code} {' · '.join(parts)} · cure: {self.remedy}"


def _actor(warp: int, lanes: int) -> str:
    return f"warp {warp} {lane_list(lanes)}" if lanes else f"warp {warp}"


def lane_list(lanes: int) -> str:
    """Return a bit mask as text: 0b1101 → lanes 0,2-3."""
    runs: list[list[int]] = []
    for lane in range(lanes.bit_length()):
        if lanes >> lane & 1:
            if runs and runs[-1][-1] == lane - 1:
                runs[-1][1:] = [lane]
            else:
                runs.append([lane])
    text = ",".join("-".join(map(str, run)) for run in runs)
    return f"lane {text}" if lanes.bit_count() == 1 else f"lanes {text}"


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return errors, then warnings, then infos; otherwise in their order."""
    return tuple(sorted(findings, key=lambda finding: list(Severity).index(finding.level)))


def first_of_each(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the first finding of each code and severity at each line: shapes and seeds only repeat a bug."""
    first: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        first.setdefault((finding.code, finding.place or finding.ptx_line, finding.severity), finding)
    return tuple(first.values())


@dataclass(frozen=True)
class Suppressed:
    """A finding that the source allows, and the reason."""

    finding: Finding
    reason: str


@dataclass(frozen=True)
class Visits:
    """The code of a kernel that a launch executed."""

    ptx_digest: str
    entry: str
    """The kernel's name in the PTX."""
    blocks: tuple[int, ...]
    """How often warps entered each basic block (`ptx/passes/build_cfg.py`)."""
    ways: frozenset[tuple[int, int]]
    """Hidden paths out of branches (`ptx/passes/find_hidden_ways.py`) that were taken."""


@dataclass(frozen=True)
class Run:
    """The result of a launch, or of a kernel file's sequence of launches, apart from its arrays."""

    entries: tuple[str, ...]
    findings: tuple[Finding, ...]
    printed: str
    instructions: int
    """Warp instructions executed."""
    source_digest: str
    ptx_digest: str
    defines: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    suppressed: tuple[Suppressed, ...] = ()
    """Findings that the source's allow lines suppress."""
    visits: tuple[Visits, ...] = ()
    """One per launch, if the engine counts them."""

    @property
    def clean(self) -> bool:
        """Return whether no error was found."""
        return self.passes(strict=False)

    def passes(self, *, strict: bool) -> bool:
        """Return whether the run does not fail: no error, and with `strict` no warning either."""
        fails = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
        return not any(finding.level in fails for finding in self.findings)


def merge_runs(runs: Sequence[Run]) -> Run:
    """Return one Run for consecutive launches; it is named after the binary of the first one."""
    counters: dict[str, int] = {}
    for run in runs:
        for name, count in run.counters.items():
            counters[name] = counters.get(name, 0) + count
    return Run(
        entries=tuple(entry for run in runs for entry in run.entries),
        findings=tuple(finding for run in runs for finding in run.findings),
        printed="".join(run.printed for run in runs),
        instructions=sum(run.instructions for run in runs),
        source_digest=runs[0].source_digest,
        ptx_digest=runs[0].ptx_digest,
        defines=runs[0].defines,
        counters=counters,
        visits=tuple(each for run in runs for each in run.visits),
    )
