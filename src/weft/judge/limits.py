"""Which shapes of attention a file's launch lines can take: sizes that must be equal, and sizes that are fixed.

A file with `q : f16[B, H, N, D]` and `k : f16[B, H, N, D]` has one head count and one length: it cannot be called
with more query heads than key heads, which is not an error. Such workloads are left out and counted.
"""

import ast
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.attention.shapes import Shape, sized
from weft.engines.adapt_lines import ONE
from weft.engines.element_types import is_float
from weft.engines.expressions import Expression
from weft.engines.kernel_file import KernelFile

from .input_axes import TELLING, InputAxes

MOST_PRODUCTS = 3 << 20
"""Largest work of a shape that replaces one that the kernel does not take."""
TILES = (64, 128)
"""Lengths of such a shape, for a kernel that takes whole tiles only: `require N % 64 == 0`."""

_WHAT = {"b": "batch size", "hq": "head count", "hkv": "head count", "sq": "length", "skv": "length", "d": "D"}
_SIBLING = {"hq": "hkv", "hkv": "hq", "sq": "skv", "skv": "sq"}
_MISSING = {"b": "batch axis", "hq": "head axis", "hkv": "head axis"}


@dataclass(frozen=True)
class Limit:
    """Two sizes of attention that must be equal, or one that has a fixed value."""

    axis: str
    """Of a Shape: `b`, `hq`, `hkv`, `sq`, `skv` or `d`."""
    equals: str | int
    """Another axis, or a number."""
    why: str
    """The kernel has one head count (H)."""

    def holds(self, shape: Shape) -> bool:
        """Whether a shape is within it."""
        other = getattr(shape, self.equals) if isinstance(self.equals, str) else self.equals
        return bool(getattr(shape, self.axis) == other)

    def __str__(self) -> str:
        return f"{self.axis.upper()} = {str(self.equals).upper()}"


def limits_of(kernel: KernelFile, axes: InputAxes) -> tuple[Limit, ...]:
    """Return what the launch lines of a file rule out; `axes` are those of the task's inputs, if they are known."""
    found: dict[tuple[str, str | int], Limit] = {}
    stands_for: dict[str, list[str]] = {}
    for array, axis, size in _dimensions(kernel, axes):
        if size.name in kernel.sizes:
            stands_for.setdefault(size.name, []).append(axis)
        elif size is ONE and axis in _MISSING:
            found.setdefault((axis, 1), Limit(axis, 1, f"the kernel has no {_MISSING[axis]}"))
        elif not size.names:
            value = size.integer({}, array)
            found.setdefault((axis, value), Limit(axis, value, f"the kernel's {array} has {axis.upper()} = {value}"))
    for name, several in stands_for.items():
        first, *others = sorted(dict.fromkeys(several), key=tuple(_WHAT).index)
        for other in others:
            what = _WHAT[first] if _WHAT[first] == _WHAT[other] else f"size for {first.upper()} and {other.upper()}"
            found.setdefault((first, other), Limit(first, other, f"the kernel has one {what} ({name})"))
    for limit in (*_required(kernel, stands_for), *_unknown_sizes(kernel, stands_for)):
        found.setdefault((limit.axis, limit.equals), limit)
    return tuple(found.values())


def _required(kernel: KernelFile, stands_for: Mapping[str, Sequence[str]]) -> Iterator[Limit]:
    """Yield the limits of `require HQ == HKV` and `require D == 64`; other formulas are evaluated for each call."""
    for line in kernel.lines.requires:
        match line.formula.tree:
            case ast.Compare(left=ast.Name(id=one), ops=[ast.Eq()], comparators=[other]) if line.when is None:
                match other:
                    case ast.Name(id=second) if one in stands_for and second in stands_for:
                        first, last = sorted((stands_for[one][0], stands_for[second][0]), key=tuple(_WHAT).index)
                        yield Limit(first, last, line.text)
                    case ast.Constant(value=int() as value) if one in stands_for:
                        yield from (Limit(axis, value, line.text) for axis in dict.fromkeys(stands_for[one]))


def _dimensions(kernel: KernelFile, axes: InputAxes) -> Iterator[tuple[str, str, Expression]]:
    """Yield every dimension of the task's inputs: the array, its size of attention, the file's expression for it."""
    for line in kernel.arrays:
        names = axes.get(line.name, ())
        if len(names) == len(line.shape):
            for axis, size in zip(names, line.shape, strict=True):
                yield line.name, axis, size


def _unknown_sizes(kernel: KernelFile, stands_for: Mapping[str, Sequence[str]]) -> Iterator[Limit]:
    """Yield limits for sizes that are not passed to the kernel: K then has the length of Q, others are compiled in."""
    names = {axis: [name for name, axes in stands_for.items() if axis in axes] for axis in _WHAT}
    known_axes = {axis for axis, spelled in names.items() if any(_is_known(kernel, name) for name in spelled)}
    for axis, (name, *_) in ((axis, spelled) for axis, spelled in names.items() if spelled and axis not in known_axes):
        unknown = f"no argument or macro passes {name} to the kernel"
        other = _SIBLING.get(axis)
        if other in known_axes:
            first, last = sorted((axis, other), key=tuple(_WHAT).index)
            yield Limit(first, last, f"{unknown}: it can only be {names[other][0]}")
        else:
            value = kernel.sizes[name]
            yield Limit(axis, value, f"{unknown}: it is compiled for {name} = {value}")


def _is_known(kernel: KernelFile, size: str) -> bool:
    """Whether the kernel receives a size: by an argument, a template argument, a macro, its grid or its block.

    A fraction such as 1 / sqrt(D) passes no size. A `require` line states which values are valid. Triton passes sizes
    to constexprs of their names.
    """
    lines = kernel.lines
    if kernel.source.is_triton or kernel.compiled or any(size in line.formula.names for line in lines.requires):
        return True
    known = {size}
    for define in lines.defines:
        if isinstance(define.value, Expression) and define.value.names & known:
            return True
    known |= {each.name for each in lines.scalars if each.value.names & known and not is_float(each.element)}
    read = (formula for launch in lines.launches for formula in (*launch.formulas(), *launch.passed()))
    return any(formula.names & known for formula in read)


def fit(shape: Shape, limits: Sequence[Limit], keep: str = "") -> Shape:
    """Return the shape with the sizes that limits require; of two that must be equal the larger, or the one to `keep`.

    It is named after its sizes where they differ.
    """
    sizes = {axis.name: getattr(shape, axis.name) for axis in dataclasses.fields(shape) if axis.name != "name"}
    for limit in (each for each in limits if isinstance(each.equals, str)):
        pair = (limit.axis, str(limit.equals))
        sizes |= dict.fromkeys(pair, sizes[keep] if keep in pair else max(sizes[axis] for axis in pair))
    sizes |= {each.axis: each.equals for each in limits if isinstance(each.equals, int)}
    if sizes["hq"] % sizes["hkv"]:
        sizes["hkv"] = sizes["hq"]
    fitted = sized(**sizes)
    return shape if replace(fitted, name=shape.name) == shape else fitted


def stand_ins(shape: Shape, limits: Sequence[Limit]) -> Iterator[Shape]:
    """Shapes of moderate size that a kernel may take instead of one that it does not: ragged, then of whole tiles."""
    fitted = fit(shape, limits)
    if fitted.products > MOST_PRODUCTS:
        fitted = fit(replace(fitted, b=1, hq=1, hkv=1), limits)
    if fitted.products > MOST_PRODUCTS:
        length = math.isqrt(MOST_PRODUCTS // (fitted.b * fitted.hq * fitted.d))
        fitted = fit(replace(fitted, sq=min(fitted.sq, length), skv=min(fitted.skv, length)), limits)
    whole = (replace(fitted, sq=-(-fitted.sq // tile) * tile, skv=-(-fitted.skv // tile) * tile) for tile in TILES)
    for each in (fitted, *(fit(tiled, limits) for tiled in whole)):
        if all(limit.holds(each) for limit in limits):
            yield sized(each.b, each.hq, each.hkv, each.sq, each.skv, each.d)


def records(limits: Sequence[Limit]) -> list[list[str | int]]:
    """Return limits as plain data."""
    return [[limit.axis, limit.equals, limit.why] for limit in limits]


def of_records(rows: Sequence[Sequence[str | int]]) -> tuple[Limit, ...]:
    """Read what `records` wrote. Raises ValueError for anything else."""
    axes = {axis.name for axis in dataclasses.fields(TELLING)} - {"name"}
    found = tuple(Limit(str(axis), equals, str(why)) for axis, equals, why in rows)
    for limit in found:
        if limit.axis not in axes or not (isinstance(limit.equals, int) or limit.equals in axes):
            raise ValueError(f"{limit} is not a limit on the sizes of attention")
    return found


def free(names: Sequence[str], limits: Sequence[Limit]) -> tuple[str, ...]:
    """Return those of the sizes that are varied (`AXES` of look.py) which limits allow to vary independently."""
    fixed = {each.axis for each in limits if isinstance(each.equals, int)}
    tied = {(each.axis, str(each.equals)) for each in limits if isinstance(each.equals, str)}
    uses: Mapping[str, set[str]] = {"B": {"b"}, "heads": {"hq", "hkv"}, "SQ": {"sq"}, "SKV": {"skv"}, "D": {"d"}}
    left_out = {name for name, axes in uses.items() if axes & fixed}
    if ("hq", "hkv") in tied or {"hq", "hkv"} & fixed:
        left_out.add("group")
    if ("sq", "skv") in tied:
        left_out |= {"SQ", "SKV"}
    if {"sq", "skv"} & fixed:
        left_out.add("S")
    return tuple(name for name in names if name not in left_out)
