"""What a recorded run shows of a kernel's stages: frozen values for those who compare."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.core.records import Dim3, Place, Run

from .acts import Act
from .board import Disagreement
from .nodes import Event

TAPPED = ("q", "k", "v", "products", "scores", "masked", "m", "p", "l", "u", "o", "lse")
"""The stages in the order a kernel makes them; `products` is Q·Kᵀ before any scale."""
WITHOUT_TILES = ("q", "o", "lse")

Key = tuple[str, int | None]


@dataclass(frozen=True)
class Site:
    """Who computed an element, and where."""

    place: Place | None
    ptx_line: int
    opcode: str
    launch: int
    cta: Dim3
    warp: int
    lane: int

    def __str__(self) -> str:
        where = str(self.place) if self.place else f"PTX line {self.ptx_line}"
        return f"{where} · CTA {self.cta} warp {self.warp} lane {self.lane}"


@dataclass(frozen=True)
class StageTap:
    """One stage, at one KV tile where it has tiles, in the shape of the emulated stage (see `expected`)."""

    stage: str
    tile: int | None
    values: Array
    """float64, NaN where nothing was observed (and where the kernel held NaN: ask `observed`)."""
    observed: npt.NDArray[np.bool_]
    event: npt.NDArray[np.int32]
    """Where each element was seen: an index into `Taps.events`."""
    lane: npt.NDArray[np.int8]
    made: npt.NDArray[np.int32]
    """Where its value was computed; 0 if it came from an input as it is, or by a look-up."""
    made_lane: npt.NDArray[np.int8]
    keys: npt.NDArray[np.bool_] | None = None
    """m, l and u: which keys each value covers, (…, skv)."""
    factor: float = 1.0
    """scores, masked and m: what the kernel's own numbers were multiplied with to be in the algorithm's units."""


@dataclass(frozen=True)
class Fact:
    """What dataflow alone says is odd about the stored result, whatever the numbers are."""

    code: str
    message: str
    count: int
    """Stored elements of O that it concerns."""
    row: tuple[int, int, int]
    """batch, head and query of the first."""


@dataclass(frozen=True)
class Taps:
    """Everything observed. A key that is missing, like an element that is not `observed`, is not known."""

    algorithm: Algorithm
    """What the stages are to be compared with: as declared, with the kernel's own tiles and base of exponentials."""
    taps: Mapping[Key, StageTap]
    facts: tuple[Fact, ...]
    disagreements: tuple[Disagreement, ...]
    """Elements of q, k, v, scores or p that were used with different values."""
    events: tuple[Event, ...]
    unit: float | None
    """What a difference of scores is multiplied with before a natural exponential: 1 for exp, ln 2 for exp2, the scale
    in a kernel that scales after subtracting. None if no exponential was seen, or several.
    """
    run: Run
    """The whole run on the compiled path, unless only the recorded CTAs ran."""
    arrays: Mapping[str, Array]
    """What it left."""
    recorded_instructions: int
    acts: tuple[Act, ...] = ()
    """In the order they were first seen."""
    cut_short: bool = False
    """Whether the recording ended before the kernel did: later stages are missing then."""

    def at(self, stage: str, tile: int | None = None) -> StageTap | None:
        """A stage, if any of it was observed."""
        return self.taps.get((stage, tile))

    def site(self, tap: StageTap, index: tuple[int, ...]) -> Site | None:
        """Who used an element as this stage (or computed it, for products, l and u); None if it was not observed."""
        return self._site(tap.event[index], tap.lane[index]) if tap.observed[index] else None

    def maker(self, tap: StageTap, index: tuple[int, ...]) -> Site | None:
        """Who computed an element; None if it was not observed or came from an input as it is."""
        known = tap.observed[index] and tap.made[index] != 0
        return self._site(tap.made[index], tap.made_lane[index]) if known else None

    def _site(self, number: int, lane: int) -> Site:
        event = self.events[int(number)]
        return Site(own_line(event.place), event.ptx_line, event.opcode, event.launch, event.cta, event.warp, int(lane))

    @property
    def observed(self) -> tuple[str, ...]:
        """Names of the stages that were seen at all, in order."""
        return tuple(stage for stage in TAPPED if any(name == stage for name, _ in self.taps))


def own_line(place: Place | None) -> Place | None:
    """The innermost line in the file that the kernel itself is in: a header's line means little to its user."""
    chain: list[Place] = []
    while place is not None:
        chain.append(place)
        place = place.inlined_at
    return next((line for line in chain if line.file == chain[-1].file), None)
