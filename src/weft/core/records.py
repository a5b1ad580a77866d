"""The nouns of Weft: frozen values that pass between the stages."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """A line of the user's source. `inlined_at` leads to the call it was inlined into."""

    file: str
    line: int
    column: int = 0
    inlined_at: "Place | None" = None

    def __str__(self) -> str:
        chain = f" (inlined at {self.inlined_at})" if self.inlined_at else ""
        return f"{self.file}:{self.line}{chain}"


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
class Resources:
    """What ptxas says one kernel needs."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    local_bytes: int
    constant_bytes: int = 0


@dataclass(frozen=True)
class SharedSymbol:
    """One `__shared__` array in the cubin: where the hardware puts it."""

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
    """Known at compile time only for Triton."""
    num_warps: int = 0
    """Likewise."""
    source_digest: str = ""
    ptx_digest: str = ""
    defines: Mapping[str, str] = field(default_factory=dict)
    """Macros of the user's `-D`, as the compiler saw them; "(unused)" marks one that no file mentions."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Warnings about the user's files."""


Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Finding:
    """Something wrong that a run showed: code, place, actor, numbers and cure."""

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

    def __str__(self) -> str:
        where = str(self.place) if self.place else f"PTX line {self.ptx_line}"
        lane = (self.lanes & -self.lanes).bit_length() - 1
        return f"{self.code} {self.message} · {where} · CTA {self.cta} warp {self.warp} lane {max(lane, 0)}"


@dataclass(frozen=True)
class Run:
    """What a launch, or a kernel file's sequence of launches, left beside its arrays."""

    entries: tuple[str, ...]
    findings: tuple[Finding, ...]
    printed: str
    instructions: int
    """Warp instructions executed."""
    source_digest: str
    ptx_digest: str
    defines: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings
