"""Every tracked value of a recorded run: its tag, its number, and the instruction and lane that computed it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from weft.core.records import Dim3, Place
from weft.ptx.module import Instruction
from weft.vm.reference.machine import RunningWarp

from .tags import Ids, Kind, Sizes, Tags

MIX_NODE = 1
"""The node of bytes that come from several nodes."""
Numbers = npt.NDArray[np.float64]
Lanes = npt.NDArray[np.int8]


class Where(NamedTuple):
    """The event that uses or computes values, and the lane of each."""

    event: int
    lanes: npt.NDArray[np.int64]
    in_steps: bool = False
    """Whether the values are those of several steps in turn, so that an element's first observation counts."""

    def only(self, which: npt.NDArray[np.bool_]) -> "Where":
        """Return it for some of the values."""
        return Where(self.event, self.lanes[which], self.in_steps)


@dataclass(frozen=True)
class Event:
    """One execution of an instruction by a warp."""

    launch: int
    cta: Dim3
    warp: int
    step: int
    """The number of instructions this warp had executed."""
    opcode: str
    ptx_line: int
    place: Place | None


class Nodes:
    """A growing table. Node 0 stands for everything that is not tracked, MIX_NODE for values of unknown kind."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.launch = 0
        self.events: list[Event] = [Event(0, (0, 0, 0), 0, 0, "input", 0, None)]
        self.count = 1 + MIX_NODE
        self.tags: Tags = np.zeros(1 << 16, sizes.dtype())
        self.tags["kind"][MIX_NODE] = Kind.MIX
        self.values: Numbers = np.zeros(1 << 16)
        self.event_of: Ids = np.zeros(1 << 16, np.int32)
        self.lane_of: Lanes = np.zeros(1 << 16, np.int8)

    def event(self, w: RunningWarp, ins: Instruction) -> int:
        """Add an event for what `w` executes now."""
        self.events.append(Event(self.launch, w.cta.index, w.number, w.steps, ins.opcode, ins.line, ins.place))
        return len(self.events) - 1

    def add(self, tags: Tags, values: Numbers, where: Where) -> Ids:
        """Add nodes; a score is its own source."""
        first, last = self.count, self.count + len(tags)
        while last > len(self.tags):
            self.tags, self.values, self.event_of, self.lane_of = (
                np.concatenate([old, np.zeros_like(old)])
                for old in (self.tags, self.values, self.event_of, self.lane_of)
            )
        ids: Ids = np.arange(first, last, dtype=np.int32)
        self.tags[first:last] = tags
        self.tags["node"][first:last] = ids
        scores = tags["kind"] == Kind.S
        self.tags["source"][first:last][scores] = ids[scores]
        self.values[first:last] = values
        self.event_of[first:last] = where.event
        self.lane_of[first:last] = where.lanes
        self.count = last
        return ids

    def add_input(self, kind: Kind, values: Numbers) -> int:
        """Add the elements of an input (rows, columns), numbered in order; return the first."""
        rows, columns = values.shape
        tags = np.zeros(rows * columns, self.sizes.dtype())
        tags["kind"] = kind
        tags["row"], tags["col"] = np.divmod(np.arange(rows * columns), columns)
        untouched = Where(0, np.zeros(rows * columns, np.int64))
        return int(self.add(tags, values.reshape(-1), untouched)[0])


def single(ids: Ids) -> Ids:
    """Convert (…, bytes) to (…): the one node in those bytes, MIX_NODE where there are several."""
    highest = ids.max(axis=-1)
    several = ((ids != highest[..., None]) & (ids != 0)).any(axis=-1)
    return np.where(several, np.int32(MIX_NODE), highest)
