"""The zoo's record of one bug, and the kernel file made from it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft.attention.quantise import Quantiser, SimFp8
from weft.attention.shapes import SHAPES, Shape
from weft.attention.stages import STAGES
from weft.kernels import RUNGS

FOLDER = Path(__file__).parent

PLACES = (*STAGES, "quantiser", "launch", "build")
"""Where a bug may sit: a stage of the kernel, or before any stage exists."""

_DEFINE = r"^(// weft: +define +{name} *= *).*$"


@dataclass(frozen=True)
class Edit:
    """An exact replacement; `old` occurs once in the file."""

    old: str
    new: str

    def apply(self, text: str) -> str:
        """Return the text with `new` instead of `old`."""
        if text.count(self.old) != 1:
            raise ValueError(f"an edit's text must occur once, not {text.count(self.old)} times: {self.old!r}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Bug:
    """A realistic kernel, its one mistake, and the diagnosis it must get."""

    id: str
    title: str
    seen: str
    """What the engineer saw."""
    stage: str
    """The first stage that is wrong, one of PLACES."""
    cause: str
    """A short key such as `leading_dimension` or `missing_barrier`."""
    cure: str
    rung: str | None = None
    """The rung of the ladder that was edited; None: the file `source`, whose macro BUG is 1 or 0."""
    source: str = ""
    task: str = "sdpa"
    edits: tuple[Edit, ...] = ()
    """From the right kernel to the wrong one."""
    setup: tuple[Edit, ...] = ()
    """Made in the right twin as well, and before `edits`."""
    defines: Mapping[str, str] = field(default_factory=dict)
    """Values of `define` lines, in both."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Macros of the command line (`-D`) that the engineer gave."""
    twin_flags: Mapping[str, str] = field(default_factory=dict)
    faulty: str = ""
    """Text of the line that a diagnosis should name, and of no other line. Empty: it is no line of the kernel."""
    also: tuple[str, ...] = ()
    """Stages that may be named instead, because the first wrong values never leave a lane's registers."""
    launch: str = ""
    """The kernel at fault, where a file has several."""
    findings: tuple[str, ...] = ()
    """Codes that InitCheck and RaceCheck report in the wrong kernel; the twin has none."""
    shape: str = "ragged"
    regime: str = "unit_normal"
    mask: str = "none"
    quantiser: Quantiser = field(default_factory=SimFp8)
    """Makes the codes of an `fp8_sdpa` workload; the wrong one where the quantiser is the bug."""

    def __post_init__(self) -> None:
        if self.stage not in PLACES or not set(self.also) <= set(PLACES):
            raise ValueError(f"{self.id}: {self.stage} is none of {', '.join(PLACES)}")
        if (self.rung is None) == (not self.source):
            raise ValueError(f"{self.id} has either a rung or a source")

    @property
    def kind(self) -> str:
        """`zoo` for the sixteen, `transplant` for the same bug in another rung."""
        return "transplant" if "-" in self.id else "zoo"

    @property
    def sizes(self) -> Shape:
        """The shape at which the bug shows."""
        return SHAPES[self.shape]

    def text(self, *, fixed: bool = False) -> str:
        """Return the CUDA source, wrong or right."""
        path = FOLDER / self.source if self.rung is None else RUNGS[self.rung].path
        text = path.read_text()
        for edit in (*self.setup, *(() if fixed else self.edits)):
            text = edit.apply(text)
        for name, value in self.defines.items():
            text = _set_define(text, name, value)
        return text if self.rung is not None else _set_define(text, "BUG", "0" if fixed else "1")

    def faulty_line(self) -> int:
        """Return the number of the line that a diagnosis should name; 0 if it is no line of the kernel."""
        lines = self.text().splitlines()
        numbers = [number for number, line in enumerate(lines, 1) if self.faulty and self.faulty in line]
        if len(numbers) != bool(self.faulty):
            raise ValueError(f"{self.id}: {self.faulty!r} is in {len(numbers)} lines")
        return numbers[0] if numbers else 0


def build(bug: Bug, folder: Path, *, fixed: bool = False) -> Path:
    """Write the kernel, or its right twin, as a file with launch lines that every command accepts."""
    text = bug.text(fixed=fixed)
    # Twins are often the same: one name for one text lets the compiler's cache serve them all.
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    stem = f"{bug.rung or Path(bug.source).stem}_{digest}" if fixed else bug.id.lower().replace("-", "_")
    path = folder / f"{stem}.cu"
    path.write_text(text)
    return path


def _set_define(text: str, name: str, value: str) -> str:
    text, count = re.subn(_DEFINE.format(name=name), rf"\g<1>{value}", text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"the file has {count} `define` lines for {name}")
    return text
