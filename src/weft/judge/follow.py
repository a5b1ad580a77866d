"""Workloads at the sizes where a kernel takes another branch, found in its compiled code."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from weft.attention.shapes import Shape, sized
from weft.coverage.records import Boundary, Coverage
from weft.tasks.task import Workload

from .limits import fit
from .look import AXES
from .select import Supports

MOST_PRODUCTS = 1 << 26
"""Limit on the work of all workloads at boundaries together: about the work of the selection itself."""
MOST_WORKLOADS = 60
OF_A_LINE = 2
MOST_DIMENSIONS = 3
"""Most head dimensions at which it is run: each may have to be compiled."""
MOST_OF_A_CORNER = 1 << 25
BLIND_ROWS = 9
KEYS_IN_16_BITS, MORE_KEYS = 65_536, 65_601
RISING = "sorted_keys"
"""The regime in which the last keys weigh most."""
REFUSED, TOO_LONG = "the kernel does not take it", "it would take too long"


@dataclass(frozen=True)
class Followed:
    """Boundaries, and the workloads that run on both sides of them."""

    boundaries: tuple[Boundary, ...]
    """Each with the reason why it is not run; empty if it is run."""
    workloads: tuple[Workload, ...]


def workloads_at(
    boundaries: Sequence[Boundary], supports: Supports, like: Sequence[Workload], coverage: Coverage
) -> Followed:
    """Return workloads at each boundary and on both sides of it, as far as the kernel and the budget allow.

    Boundaries of branches that took only one side so far come first, then one of each line, the cheapest first. `like`
    are workloads of the selection: types, masks, regimes and seeds come from them in turn. One call has more than
    65536 keys, with the largest score last: no comparison shows that a number is stored in too few bits.
    """
    open_lines = coverage.open_lines
    chosen: dict[Workload, None] = {}
    said: list[Boundary] = []
    left = MOST_PRODUCTS

    def order(turn_and_boundary: tuple[int, Boundary]) -> tuple[bool, int, int]:
        turn, boundary = turn_and_boundary
        known = (boundary.file, boundary.line) not in open_lines
        return known, turn, AXES[boundary.axis].shape(boundary.value, 64, 5).products

    dimensions: set[int] = set()
    for _, boundary in sorted(_first_of_each_line(boundaries), key=order):
        if boundary.axis == "D" and len(dimensions | {boundary.value}) > MOST_DIMENSIONS:
            said.append(replace(boundary, why_not=TOO_LONG))
            continue
        taken = boundary.axis == "D" and supports.takes(fit(_at(boundary, like), supports.limits, "d"))
        dimensions |= {boundary.value} if taken else set()
        shapes = _around(boundary, supports, like[0].shape.d)
        near = [replace(like[turn % len(like)], shape=shape) for turn, shape in enumerate(shapes, len(chosen))]
        known = {workload.shape for workload in chosen}
        work = [workload for workload in near if supports.takes_workload(workload)]
        more = [workload for workload in work if workload.shape not in known]
        cost = sum(workload.shape.products for workload in more)
        why_not = "" if work else REFUSED
        if more and (cost > left or len(chosen) + len(more) > MOST_WORKLOADS):
            why_not = TOO_LONG
        if not why_not:
            chosen |= dict.fromkeys(more)
            left -= cost
        said.append(replace(boundary, why_not=why_not))
    for shape, mask in _corners(boundaries, like[0].shape.d):
        corner = replace(like[0], shape=shape, mask=mask)
        chosen |= {corner: None} if supports.takes_workload(corner) else {}
    if "SKV" in supports.task.any_size:
        shape, last = sized(1, 1, 1, 1, MORE_KEYS, like[0].shape.d), RISING
        regime = last if last in {workload.regime for workload in like} else like[0].regime
        many = replace(like[0], shape=shape, regime=regime)
        why_not = "" if supports.takes_workload(many) else REFUSED
        said.append(Boundary("SKV", KEYS_IN_16_BITS, why_not=why_not))
        chosen |= {} if why_not else {many: None}
    return Followed(tuple(said), tuple(chosen))


def _first_of_each_line(boundaries: Sequence[Boundary]) -> list[tuple[int, Boundary]]:
    """Return each boundary with its number within its line: of a loop with many boundaries, two are enough."""
    found: dict[tuple[str, str, int], list[Boundary]] = {}
    for boundary in boundaries:
        found.setdefault((boundary.axis, boundary.file, boundary.line), []).append(boundary)
    return [each for group in found.values() for each in enumerate(group[:OF_A_LINE] if group[0].line else group)]


def _at(boundary: Boundary, like: Sequence[Workload]) -> Shape:
    return AXES[boundary.axis].shape(boundary.value, like[0].shape.d, 1)


def _around(boundary: Boundary, supports: Supports, d: int) -> Iterator[Shape]:
    """Yield shapes at the boundary, below and above it; and at it with a single query, where that is another shape."""
    vary = AXES[boundary.axis]
    few, *single = vary.queries
    steps = (0, -1) if boundary.axis == "D" else (0, -1, 1)  # a head dimension often has a separate kernel
    near = [(boundary.value + step, few) for step in steps] + [(boundary.value, queries) for queries in single]
    keep = boundary.axis.lower() if boundary.axis in ("B", "SQ", "SKV", "D") else ""
    for value, queries in near:
        if value >= 1:
            shape = fit(vary.shape(value, d, queries), supports.limits, keep)
            alone = sized(shape.b, shape.hkv, shape.hkv, shape.sq, shape.skv, shape.d)  # a group of one
            yield shape if supports.takes(shape) else alone


def _corners(boundaries: Sequence[Boundary], d: int) -> Iterator[tuple[Shape, str]]:
    """Yield shapes beyond a boundary of queries and of keys at once, and beyond one of keys with rows that see no key.

    Of each kind, the largest that runs quickly.
    """
    lengths = {axis: {each.value for each in boundaries if each.axis == axis} for axis in ("SQ", "SKV")}
    both = {(sq, skv) for sq in lengths["SQ"] for skv in lengths["SKV"]}
    blind = {(skv + BLIND_ROWS, skv) for skv in lengths["SKV"]}
    for pairs, mask in ((both, "none"), (blind, "bottom_right")):
        small = [(sq, skv) for sq, skv in pairs if sq * skv * d <= MOST_OF_A_CORNER]
        if small:
            sq, skv = max(small, key=lambda pair: (pair[0] * pair[1], pair))
            yield sized(1, 1, 1, sq, skv, d), mask
