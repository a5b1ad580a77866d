"""The regions a kernel names with WEFT_REGION: parts of a shared array, each moved to its own place.

An area for them follows the kernel's shared memory. A region is there at its own offset modulo 128, between gaps,
like a `__shared__` array; its bytes in the original array have no owner any more. The declarations of a CTA end with
the CTA.

    shared array:  | piece |  scores  | piece | table |          area:  … | scores | gap | table | gap
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .layout import BANK_ROW, MOST_GAP, Placed, gap_behind
from .memory import SHARED_GRANULE, SHARED_START

MOST_REGIONS = 64
"""Limit per CTA."""


@dataclass(frozen=True)
class Region:
    """A region's original address and its new one. Both are shared addresses."""

    name: str
    cut_from: int
    size_bytes: int
    address: int


@dataclass(frozen=True)
class DeclaredRegion:
    """The answer to a declaration: the region's address, and what is wrong with it, if anything."""

    address: int
    problem: str = ""


def area(shared_end: int, shared_bytes: int) -> tuple[int, int]:
    """Return the area of the regions of a CTA with this much shared memory, whose last array ends at `shared_end`.

    The first and last address are returned. The area has room for every byte once, for gaps no larger than the regions,
    and for the least gaps. The space in front of it is as large as the arrays, so that an overrun reaches no region.
    """
    start = shared_end + shared_bytes + MOST_GAP
    return start, start + 2 * shared_bytes + MOST_REGIONS * 2 * BANK_ROW


class Regions:
    """The shared memory map of one worker: granule → object, object → offset and size (see `runtime/bounds.py`).

    Row 0 of `extents` has the number of rows in use in place of an offset. A granule shared by several pieces has no
    owner in the map; a look-up that finds none searches the rows.
    """

    def __init__(self, objects: Sequence[Placed], area: tuple[int, int], shared: int) -> None:
        self.objects = tuple(objects)
        self.area = area
        self.shared = shared
        """Host address of shared address 0."""
        limit = area[1]
        self.owners: npt.NDArray[np.uint32] = np.zeros(limit // SHARED_GRANULE + 1, np.uint32)
        most = MOST_REGIONS if area[1] > area[0] else 0
        self.extents: npt.NDArray[np.int64] = np.zeros((len(objects) + 2 * most + 1, 2), np.int64)
        self.seen: dict[Region, None] = {}
        """Every region of the launch, for findings."""
        self.clear()

    def clear(self) -> None:
        """Start a new CTA: no regions."""
        self.live: list[Region] = []
        self.answers: dict[tuple[str, int, int], DeclaredRegion] = {}
        self.top = self.area[0]
        self._write_map()

    def declare(self, mark: str, address: int, size_bytes: int) -> tuple[DeclaredRegion, bool]:
        """Return the region, and whether it is new in this CTA; `mark` is `weft.region NAME` or `weft.reuse NAME`."""
        known = self.answers.get((mark, address, size_bytes))
        if known is not None:
            return known, False
        kind, _, name = mark.partition(" ")
        answer = self._place(name, self._cut_from(address), size_bytes, address, reuse=kind == "weft.reuse")
        self.answers[mark, address, size_bytes] = answer
        return answer, True

    def _cut_from(self, address: int) -> int:
        """Return the original bytes of a pointer into a region."""
        for region in self.live:
            if region.address <= address < region.address + region.size_bytes:
                return region.cut_from + address - region.address
        return address

    def _place(self, name: str, start: int, size_bytes: int, address: int, *, reuse: bool) -> DeclaredRegion:
        end = start + size_bytes
        whole = next((each for each in self.objects if each.address <= start < _end(each)), None)
        if whole is None:
            return DeclaredRegion(
                address, f"region {name} starts at shared address {start:#x}, which is in no shared array"
            )
        span = f"region {name} [{start - whole.address:#x}, {end - whole.address:#x})"
        beyond = end - _end(whole)
        if beyond > 0:
            return DeclaredRegion(
                address, f"{span} reaches {beyond} bytes beyond {whole.name} ({whole.size_bytes} bytes)"
            )
        problem = ""
        for other in self.live:
            common = min(end, other.cut_from + other.size_bytes) - max(start, other.cut_from)
            if common <= 0:
                continue
            if reuse and common == size_bytes:
                return DeclaredRegion(other.address + start - other.cut_from)
            word = "reuses" if reuse else "overlaps"
            rest = f" of its {size_bytes}" if reuse else ""
            problem = f"{span} {word} {other.name} by {common}{rest} bytes"
            break
        place = self.top + (start - self.top) % BANK_ROW
        top = place + size_bytes + gap_behind(size_bytes)
        if len(self.live) == MOST_REGIONS or top > self.area[1]:
            return DeclaredRegion(address, problem or f"{span} is one too many: a CTA can have {MOST_REGIONS} regions")
        region = Region(name, start, size_bytes, place)
        self.top = top
        self.live.append(region)
        self.seen[region] = None
        self._write_map()
        ctypes.memmove(self.shared + place, self.shared + start, size_bytes)
        return DeclaredRegion(place, problem)

    def _write_map(self) -> None:
        self.owners[:] = 0
        rows = [(0, 0)]
        for whole in self.objects:
            for start, end in self._pieces(whole):
                self._own(start, end, len(rows), first=start == whole.address, last=end == _end(whole))
                rows.append((start - SHARED_START, end - start))
        for region in self.live:
            self._own(region.address, region.address + region.size_bytes, len(rows), first=True, last=True)
            rows.append((region.address - SHARED_START, region.size_bytes))
        rows[0] = (len(rows) - 1, 0)
        self.extents[: len(rows)] = rows

    def _pieces(self, whole: Placed) -> list[tuple[int, int]]:
        """Return the parts of an array that no region has taken: first and last address."""
        pieces, at = [], whole.address
        for region in sorted(self.live, key=lambda region: region.cut_from):
            if whole.address <= region.cut_from < _end(whole):
                if region.cut_from > at:
                    pieces.append((at, region.cut_from))
                at = max(at, region.cut_from + region.size_bytes)
        return [*pieces, (at, _end(whole))] if at < _end(whole) else pieces

    def _own(self, start: int, end: int, number: int, *, first: bool, last: bool) -> None:
        """Mark the granules of a piece; at an edge where another piece may begin, only complete ones."""
        low, high = start - SHARED_START, end - SHARED_START
        begin = low // SHARED_GRANULE if first else -(-low // SHARED_GRANULE)
        stop = -(-high // SHARED_GRANULE) if last else high // SHARED_GRANULE
        self.owners[begin : max(begin, stop)] = number


def _end(placed: Placed) -> int:
    return placed.address + placed.size_bytes
