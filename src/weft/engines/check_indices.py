"""Indices of a kernel file that overflow 32 bits at sizes too large to run here: nothing is allocated, nothing runs."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from weft.core.errors import CompileError, LaunchError, UsageError
from weft.core.records import Finding, Run
from weft.ptx.indices.find_overflows import (
    ArrayPlace,
    IndexLaunch,
    Overflow,
    find_overflows,
    index_steps,
    parameter_layout,
)
from weft.ptx.indices.steps import Steps
from weft.ptx.module import Function, Module
from weft.ptx.parse import parse
from weft.vm.launch import LARGEST_GRID

from .arguments import Array, pack_parameters
from .bound_kernel import BoundKernel
from .kernel_file import KernelFile
from .launch import Launch
from .suppress import sift

GPU_BYTES = 80 << 30
"""Memory of the GPU on which the arrays of a call must fit, workspaces included: an A100 or H100."""
_APART = 1 << 44
"""Between arrays: more than any of them has, so that an address belongs to one."""

Shapes = Mapping[str, tuple[int, ...]]
"""Input → its shape."""


def check_indices(kernel: KernelFile, calls: Sequence[Sequence[Shapes]]) -> Run:
    """Look at index arithmetic: of each group of calls, at the first that the kernel takes and a GPU's memory holds."""
    found: dict[object, Finding] = {}
    for group in calls:
        try:
            accepted = next(((bound, shapes) for shapes in group if (bound := _accepted(kernel, shapes))), None)
        except CompileError:  # there is no such kernel, so none that is wrong
            continue
        for finding in _of_call(kernel, *accepted) if accepted else ():
            found.setdefault(finding.place or finding.ptx_line, finding)  # the first size that shows it
    sifted = sift(found.values(), kernel.allows)
    return Run((), sifted.kept, "", 0, "", "", suppressed=sifted.suppressed)


def _accepted(kernel: KernelFile, shapes: Shapes) -> BoundKernel | None:
    """The call's launches; None where its arrays do not fit a GPU, or launch lines and arguments refuse it."""
    try:
        if sum(array.nbytes for array in kernel.outline(shapes).values()) > GPU_BYTES:
            return None
        bound = kernel.bind_outline(shapes)
    except (LaunchError, UsageError):
        return None
    return bound if all(map(_can_be_launched, bound.launches)) else None


def _can_be_launched(launch: Launch) -> bool:
    """Whether the grid is within limits and every number fits an int: passing more is an error of the host."""
    fits = all(1 <= size <= limit for size, limit in zip(launch.grid, LARGEST_GRID, strict=True))
    params = parameter_layout(_kernel(launch.binary.ptx, launch.symbol)[0])
    numbers = zip(launch.args, params, strict=True)
    return fits and all(value < 1 << 31 for value, (_, _, size) in numbers if isinstance(value, int) and size == 4)


def _of_call(kernel: KernelFile, bound: BoundKernel, shapes: Shapes) -> Iterator[Finding]:
    sizes = " ".join(f"{name}={size}" for name, size in kernel.sizes_of(shapes).items())
    for launch in bound.launches:
        function, steps = _kernel(launch.binary.ptx, launch.symbol)
        places = {id(array): (number + 1) * _APART for number, array in enumerate(bound.arrays.values())}

        def address_of(array: Array, name: str, places: Mapping[int, int] = places) -> int:
            return places[id(array)]

        block = pack_parameters(parameter_layout(function), launch.args, address_of, launch.names)
        arrays = tuple(ArrayPlace(name, places[id(array)], array.nbytes) for name, array in bound.arrays.items())
        for overflow in find_overflows(function, steps, IndexLaunch(launch.grid, launch.block, block, arrays)):
            yield bound.spelled(_finding(overflow, sizes))


def _finding(overflow: Overflow, sizes: str) -> Finding:
    where = f"in the address of an element of {overflow.array}" if overflow.array else "in a comparison"
    message = f"index overflow: {overflow.value} does not fit in 32 bits, {where} at {sizes}"
    warp, lane = divmod(overflow.thread, 32)
    made, used = overflow.maker.place, overflow.site.place
    if made is None or not made.line:  # moved by the optimiser
        made = used
    return Finding(
        "M106",
        message,
        overflow.maker.line,
        made,
        overflow.cta,
        warp,
        1 << lane,
        name=overflow.array,
        other=used if used != made else None,
    )


@lru_cache(maxsize=32)
def _kernel(ptx: str, symbol: str) -> tuple[Function, tuple[Steps, ...]]:
    """A kernel of a PTX text and its index arithmetic."""
    module = _module(ptx)
    return module.functions[symbol], index_steps(module, symbol)


@lru_cache(maxsize=4)
def _module(ptx: str) -> Module:
    return parse(ptx)
