"""Workloads at the sizes where a kernel takes another way: the judge looks at the kernel, not only at its own list."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from weft.attention.shapes import Shape, sized
from weft.coverage.records import Boundary, Coverage
from weft.tasks.task import Workload

from .look import AXES
from .select import Supports

MOST_PRODUCTS = 1 << 26
"""Of all workloads at boundaries together: about the work of the selection itself."""
MOST_WORKLOADS = 30
OF_A_LINE = 2


@dataclass(frozen=True)
class Followed:
    """Boundaries, and the workloads that run on both sides of them."""

    boundaries: tuple[Boundary, ...]
    """Each with the reason why it is not run, if it is not."""
    workloads: tuple[Workload, ...]


def workloads_at(
    boundaries: Sequence[Boundary], supports: Supports, like: Sequence[Workload], coverage: Coverage
) -> Followed:
    """Return workloads at each boundary and just below it, as far as the kernel and the budget take them.

    Boundaries of branches that went one way so far come first, then those that cost least. `like` are workloads of the
    selection: types, masks, regimes and seeds come from them in turn.
    """
    open_lines = {(os.path.abspath(branch.file), branch.line) for branch in coverage.one_way}
    chosen: dict[Workload, None] = {}
    said: list[Boundary] = []
    left = MOST_PRODUCTS

    def order(boundary: Boundary) -> tuple[bool, int]:
        return (boundary.file, boundary.line) not in open_lines, AXES[boundary.axis].shape(boundary.value, 64).products

    for boundary in sorted(_first_of_each_line(boundaries), key=order):
        shapes = _around(boundary, supports, like[0].shape.d)
        near = [replace(like[turn % len(like)], shape=shape) for turn, shape in enumerate(shapes, len(chosen))]
        known = {workload.shape for workload in chosen}
        work = [workload for workload in near if supports.takes_workload(workload)]
        more = [workload for workload in work if workload.shape not in known]
        cost = sum(workload.shape.products for workload in more)
        why_not = "" if work else "the kernel does not take it"
        if more and (cost > left or len(chosen) + len(more) > MOST_WORKLOADS):
            why_not = "it would take too long"
        if not why_not:
            chosen |= dict.fromkeys(more)
            left -= cost
        said.append(replace(boundary, why_not=why_not))
    return Followed(tuple(said), tuple(chosen))


def _first_of_each_line(boundaries: Sequence[Boundary]) -> list[Boundary]:
    """Where a loop would go round once more again and again, two of these are enough."""
    found: dict[tuple[str, str, int], list[Boundary]] = {}
    for boundary in boundaries:
        found.setdefault((boundary.axis, boundary.file, boundary.line), []).append(boundary)
    return [boundary for group in found.values() for boundary in (group[:OF_A_LINE] if group[0].line else group)]


def _around(boundary: Boundary, supports: Supports, d: int) -> Iterator[Shape]:
    for value in (boundary.value, boundary.value - 1):
        if value >= 1:
            shape = AXES[boundary.axis].shape(value, d)
            alone = sized(shape.b, shape.hkv, shape.hkv, shape.sq, shape.skv, shape.d)  # a group of one
            yield shape if supports.takes(shape) else alone
