"""The sizes of attention at which a compiled kernel takes another branch.

They are computed where the kernel is compiled, in this process or in a child; `follow.py` makes workloads from them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.attention.shapes import Shape, sized
from weft.core.errors import WeftError
from weft.coverage.boundaries import Axis, Code, find_boundaries
from weft.coverage.records import Boundary, Coverage
from weft.engines.check_indices import Shapes
from weft.engines.kernel_file import KernelFile
from weft.tasks.task import Task, Workload

from .input_axes import InputAxes, input_axes, shapes_of
from .limits import Limit, fit, free


@dataclass(frozen=True)
class Vary:
    """A size to vary, or sizes that are varied together."""

    shape: Callable[[int, int, int], Shape]
    """Value, head dimension, number of queries → the shape with it."""
    largest: int
    queries: tuple[int, ...] = (5, 1)
    """Kernels often have a separate path for a single query."""


AXES: Mapping[str, Vary] = {
    "B": Vary(lambda n, d, sq: sized(n, 2, 1, sq, 40, d), 64),
    "heads": Vary(lambda n, d, sq: sized(1, n, n, sq, 40, d), 64),
    "group": Vary(lambda n, d, sq: sized(1, 2 * n, 2, sq, 40, d), 32),
    "SQ": Vary(lambda n, d, sq: sized(1, 2, 1, n, 40, d), 4096, (5,)),
    "SKV": Vary(lambda n, d, sq: sized(1, 2, 1, sq, n, d), 32768),
    "S": Vary(lambda n, d, sq: sized(1, 2, 2, n, n, d), 2048, (5,)),
    "D": Vary(lambda n, d, sq: sized(1, 2, 1, sq, 40, n), 512),
}
"""By the axis name of a Boundary. `largest` is the highest value that is searched, which a CPU still runs quickly."""


@dataclass(frozen=True)
class Look:
    """What to search for in a kernel."""

    inputs: InputAxes
    axes: tuple[str, ...]
    """Names in AXES."""
    d: int
    """The head dimension, where it is not varied."""
    limits: tuple[Limit, ...] = ()
    """Limits on the shapes that the kernel takes."""

    def shape(self, axis: str, value: int, queries: int) -> Shape:
        """Return a shape with this value of a size, adjusted to the limits of the kernel."""
        keep = axis.lower() if axis in ("B", "SQ", "SKV", "D") else ""
        return fit(AXES[axis].shape(value, self.d, queries), self.limits, keep)


def look_for(task: Task, workload: Workload, limits: tuple[Limit, ...] = ()) -> Look:
    """Return what to search for in a kernel that runs workloads like this one."""
    return Look(input_axes(task, workload), free(task.any_size, limits), workload.shape.d, limits)


def boundaries_of(kernel: KernelFile, codes: Sequence[Code], look: Look, coverage: Coverage) -> tuple[Boundary, ...]:
    """Return the sizes at which the kernel takes another branch. `codes` are compiled for head dimension look.d."""
    found: dict[Boundary, None] = {}
    for name in look.axes:
        if name == "S" and "SQ" in look.axes and _launched(kernel, shapes_of(look.inputs, look.shape("SQ", 7, 7))):
            continue  # the lengths have been varied separately
        vary = AXES[name]
        launched: set[object] = set()
        for queries in vary.queries:

            def shapes(value: int, name: str = name, queries: int = queries) -> Shapes:
                return shapes_of(look.inputs, look.shape(name, value, queries))

            launches = _launched(kernel, shapes(look.d if name == "D" else 2))
            if launches in launched:
                continue  # the same code: the number of queries is one of the values that it compares
            launched.add(launches)
            axis = Axis(name, shapes, vary.largest)
            found |= dict.fromkeys(find_boundaries(kernel, codes, axis, coverage.open_lines))
            if name == "D":
                found |= dict.fromkeys(_compiled_in(kernel, axis, look.d))
    return tuple(found)


def _launched(kernel: KernelFile, shapes: Shapes) -> tuple[str, ...]:
    """Return the kernels that a call launches; none where the launch lines exclude the call."""
    try:
        return tuple(launch.entry for launch in kernel.launches_at(shapes))
    except WeftError:
        return ()


_TEMPLATE = re.compile(r"template\s*<([^<>]*)>")
_INTEGER = re.compile(r"\b(?:int|unsigned|size_t)\s+(\w+)")
LEAST_D, MOST_D = 8, 256


def _compiled_in(kernel: KernelFile, axis: Axis, d: int) -> Iterator[Boundary]:
    """Yield head dimensions that the source compares a template parameter with, where each has a separate kernel.

    Code that a template argument excludes is in no compiled kernel; only the source text shows it.
    """
    try:
        one, other = (kernel.launches_at(axis.shapes(value))[0].entry for value in (d, d + 1))
    except WeftError:
        return
    names = {name for params in _TEMPLATE.findall(kernel.source.text) for name in _INTEGER.findall(params)}
    if one == other or not names:
        return
    any_name = "|".join(map(re.escape, sorted(names)))
    compared = re.compile(rf"\b(?:{any_name})\s*(?:<=|>=|==|!=|<|>)\s*(\d+)\b")
    for number, line in enumerate(kernel.source.text.splitlines(), 1):
        for literal in compared.findall(line.partition("//")[0]):
            if LEAST_D <= int(literal) < MOST_D:
                yield Boundary("D", int(literal) + 1, kernel.path, number)
