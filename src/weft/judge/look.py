"""The sizes of attention at which a compiled kernel takes another way.

This is asked where the kernel is compiled, in this process or in a child; `follow.py` makes workloads of the answer.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.attention.shapes import Shape, sized
from weft.core.errors import UsageError, WeftError
from weft.coverage.boundaries import Axis, Code, find_boundaries
from weft.coverage.records import Boundary
from weft.engines.kernel_file import KernelFile
from weft.tasks.task import Task, Workload

Fields = Mapping[str, tuple[str, ...]]
"""Input array → the size of attention that each of its dimensions is; empty where it is none."""

_PROBE = Shape("probe", 3, 10, 5, 11, 13, 64)
"""All sizes differ, so that the dimensions of the inputs can be told apart."""


@dataclass(frozen=True)
class Vary:
    """A size, or sizes that go together."""

    shape: Callable[[int, int], Shape]
    """Value, head dimension → the shape with it."""
    largest: int


AXES: Mapping[str, Vary] = {
    "B": Vary(lambda n, d: sized(n, 2, 1, 5, 40, d), 64),
    "heads": Vary(lambda n, d: sized(1, n, n, 5, 40, d), 64),
    "group": Vary(lambda n, d: sized(1, 2 * n, 2, 5, 40, d), 32),
    "SQ": Vary(lambda n, d: sized(1, 2, 1, n, 40, d), 4096),
    "SKV": Vary(lambda n, d: sized(1, 2, 1, 5, n, d), 32768),
    "S": Vary(lambda n, d: sized(1, 2, 2, n, n, d), 2048),
    "D": Vary(lambda n, d: sized(1, 2, 1, 5, 40, n), 512),
}
"""By the name that a Boundary has. The largest that is looked for, and that a CPU runs in a moment."""


@dataclass(frozen=True)
class Look:
    """What is asked about a kernel."""

    fields: Fields
    axes: tuple[str, ...]
    """Names in AXES."""
    d: int
    """The head dimension, where it is not varied."""


def look_for(task: Task, workload: Workload) -> Look:
    """Return what to ask about a kernel that runs workloads like this one."""
    try:
        arrays = task.draw(replace(workload, shape=replace(_PROBE, d=workload.shape.d))).arrays
    except WeftError:
        return Look({}, (), workload.shape.d)
    names = {getattr(replace(_PROBE, d=workload.shape.d), name): name for name in ("b", "hq", "hkv", "sq", "skv", "d")}
    fields = {name: tuple(names.get(size, "") for size in array.shape) for name, array in arrays.items()}
    return Look(fields, task.any_size, workload.shape.d)


def boundaries_of(kernel: KernelFile, codes: Sequence[Code], look: Look) -> tuple[Boundary, ...]:
    """Return where the kernel takes another way, along each size. `codes` are compiled for head dimension look.d."""
    names = _size_names(kernel, look.fields)
    found: dict[Boundary, None] = {}
    for name in look.axes:
        vary = AXES[name]
        if name == "S" and {"sq", "skv"} not in names.values():
            continue  # the lengths were varied one by one

        def sizes(value: int, vary: Vary = vary) -> dict[str, int]:
            shape = vary.shape(value, look.d)
            chosen = {size: {getattr(shape, field) for field in fields} for size, fields in names.items()}
            if any(len(values) > 1 for values in chosen.values()):
                raise UsageError("one size of the launch lines stands for two that differ here")
            return {size: min(values) for size, values in chosen.items()}

        axis = Axis(name, sizes, vary.largest)
        found |= dict.fromkeys(find_boundaries(kernel, codes, axis))
        if name == "D":
            found |= dict.fromkeys(_compiled_in(kernel, axis, look.d))
    return tuple(found)


_TEMPLATE = re.compile(r"template\s*<([^<>]*)>")
_INTEGER = re.compile(r"\b(?:int|unsigned|size_t)\s+(\w+)")
LEAST_D, MOST_D = 8, 256


def _compiled_in(kernel: KernelFile, axis: Axis, d: int) -> Iterator[Boundary]:
    """Head dimensions that the source compares a template parameter with, where each has a kernel of its own.

    What a template argument rules out is in no compiled kernel of another: only the text shows it.
    """
    try:
        one, other = (kernel.outline(axis.sizes(value))[0].entry for value in (d, d + 1))
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


def _size_names(kernel: KernelFile, fields: Fields) -> dict[str, set[str]]:
    """Sizes of the launch lines → the sizes of attention that each stands for."""
    found: dict[str, set[str]] = {}
    for line in kernel.lines.arrays:
        for formula, field in zip(line.shape, fields.get(line.name, ()), strict=False):
            if field and formula.name in kernel.sizes:
                found.setdefault(formula.name, set()).add(field)
    return found
