"""The observed stages of a recorded run, as frozen values for comparison."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.core.records import Dim3, Place, Run, inlining_chain

from .acts import Act, Written
from .board import Disagreement
from .nodes import Event

TAPPED = ("q", "k", "v", "products", "scores", "masked", "m", "p", "l", "u", "o", "lse")
"""The stages in the order a kernel computes them; `products` is Q·Kᵀ before any scale."""
WITHOUT_TILES = ("q", "o", "lse")

Key = tuple[str, int | None]


@dataclass(frozen=True)
class Site:
    """The thread and the line that computed an element."""

    place: Place | None
    ptx_line: int
    opcode: str
    launch: int
    cta: Dim3
    warp: int
    lane: int

    @classmethod
    def of(cls, event: Event, lane: int) -> "Site":
        return cls(own_line(event.place), event.ptx_line, event.opcode, event.launch, event.cta, event.warp, lane)

    def __str__(self) -> str:
        where = str(self.place) if self.place else f"PTX line {self.ptx_line}"
        return f"{where} · CTA {self.cta} warp {self.warp} lane {self.lane}"


@dataclass(frozen=True)
class Operand:
    """A wrong operand of a stage."""

    site: Site
    """The thread and line that computed it."""
    words: str
    """`its mean is 0.0508, not -0.0116`."""


@dataclass(frozen=True)
class Maker:
    """An instruction of a line of the source, with all its copies in unrolled loops."""

    lines: tuple[int, ...]
    """Its line, then those of the calls that it is inlined at."""
    opcode: str

    @classmethod
    def of(cls, place: Place | None, opcode: str) -> "Maker":
        return cls(tuple(at.line for at in inlining_chain(place)), opcode)


@dataclass(frozen=True)
class StageTap:
    """One stage, at one KV tile where it has tiles, in the shape of the emulated stage (see `expected`)."""

    stage: str
    tile: int | None
    values: Array
    """float64, NaN where nothing was observed (and where the kernel's value is NaN: see `observed`)."""
    observed: npt.NDArray[np.bool_]
    event: npt.NDArray[np.int32]
    """Where each element was observed: an index into `Taps.events`."""
    lane: npt.NDArray[np.int8]
    made: npt.NDArray[np.int32]
    """Where its value was computed; 0 if it came from an input unchanged, or by a look-up."""
    made_lane: npt.NDArray[np.int8]
    keys: npt.NDArray[np.bool_] | None = None
    """m, l and u: which keys each value covers, (…, skv)."""
    factor: float = 1.0
    """scores, masked and m: the factor from the kernel's numbers to the algorithm's units."""


@dataclass(frozen=True)
class Fact:
    """An irregularity of the stored result that the dataflow alone shows, whatever the numbers are."""

    code: str
    message: str
    count: int
    """The number of stored elements of O that it concerns."""
    row: tuple[int, int, int]
    """Batch, head and query of the first."""
    place: Place | None = None
    """The line that computed the irregular value, where it is known."""
    event: int = 0
    """Who computed it, an index into `Taps.events`; 0 where it is not known."""


@dataclass(frozen=True)
class Taps:
    """Everything observed. A missing key, like an element that is not `observed`, is unknown."""

    algorithm: Algorithm
    """The algorithm to compare the stages with: as declared, with the kernel's own tiles and base of exponentials."""
    taps: Mapping[Key, StageTap]
    facts: tuple[Fact, ...]
    disagreements: tuple[Disagreement, ...]
    """Elements of q, k, v, scores or p that were used with different values."""
    events: tuple[Event, ...]
    unit: float | None
    """The factor of a difference of scores before a natural exponential: 1 for exp, ln 2 for exp2, the scale in a
    kernel that scales after subtracting. None if no exponential was observed, or several.
    """
    run: Run
    """The complete run on the compiled path, unless only the recorded CTAs ran."""
    arrays: Mapping[str, Array]
    """The arrays after the run."""
    recorded_instructions: int
    fetches: Mapping[str, npt.NDArray[np.int32]]
    """q, k and v: where each element was first loaded from global memory, an index into `events`; 0 if it was not."""
    reads: Mapping[str, npt.NDArray[np.int32]]
    """The same from shared memory."""
    acts: tuple[Act, ...] = ()
    """In the order they were first seen."""
    factors: Mapping[Key, StageTap] = field(default_factory=dict)
    """l and u: what the sum before a tile was multiplied with; o: what U was multiplied with. One value per row."""
    written: tuple[Written, ...] = ()
    """What the recorded CTAs wrote to global arrays."""
    cut_short: bool = False
    """Whether the recording ended before the kernel did: later stages are missing then."""

    def at(self, stage: str, tile: int | None = None) -> StageTap | None:
        """Return a stage, or None if none of it was observed."""
        return self.taps.get((stage, tile))

    def site(self, tap: StageTap, index: tuple[int, ...]) -> Site | None:
        """Return who used an element as this stage (or computed it, for products, l and u); None if not observed."""
        return self._site(tap.event[index], tap.lane[index]) if tap.observed[index] else None

    def maker(self, tap: StageTap, index: tuple[int, ...]) -> Site | None:
        """Return who computed an element; None if it was not observed or came from an input unchanged."""
        known = tap.observed[index] and tap.made[index] != 0
        return self._site(tap.made[index], tap.made_lane[index]) if known else None

    def _site(self, number: int, lane: int) -> Site:
        return Site.of(self.events[int(number)], int(lane))

    @property
    def observed(self) -> tuple[str, ...]:
        """The names of the stages that were observed at all, in order."""
        return tuple(stage for stage in TAPPED if any(name == stage for name, _ in self.taps))


def own_line(place: Place | None) -> Place | None:
    """Return the innermost line in the kernel's own file: a header's line means little to its user."""
    chain: list[Place] = []
    while place is not None:
        chain.append(place)
        place = place.inlined_at
    return next((line for line in chain if line.file == chain[-1].file), None)
