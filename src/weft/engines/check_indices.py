"""Finds indices of a kernel file that overflow 32 bits at sizes too large to run here. Nothing is allocated or run.

What a call's launches show depends only on their PTX and numbers, so it is kept in the cache: a warm start does not
parse it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

from weft.core.errors import CompileError, LaunchError, UsageError
from weft.core.finding_json import finding_of, finding_record
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
from weft.ptx.parse import parse, parse_declarations
from weft.toolchain.cache import Cache, cache_key
from weft.vm.jit import emitter_version
from weft.vm.launch import LARGEST_GRID

from .arguments import pack_parameters
from .bound_kernel import BoundKernel
from .kernel_file import KernelFile
from .launch import Launch
from .suppress import sift

GPU_BYTES = 80 << 30
"""Memory of the GPU that must hold the arrays of a call, workspaces included: an A100 or H100."""
_APART = 1 << 44
"""Distance between arrays, larger than any of them, so that an address belongs to one array."""

Shapes = Mapping[str, tuple[int, ...]]
"""Input → its shape."""


def check_indices(kernel: KernelFile, calls: Sequence[Sequence[Shapes]]) -> Run:
    """Check index arithmetic in each group of calls, at the first call that the kernel takes and a GPU can hold."""
    found: dict[object, Finding] = {}
    for group in calls:
        try:
            accepted = next(((bound, shapes) for shapes in group if (bound := _accepted(kernel, shapes))), None)
        except CompileError:  # there is no such kernel to check
            continue
        for finding in _of_call(kernel, *accepted) if accepted else ():
            found.setdefault(finding.place or finding.ptx_line, finding)  # the first size that shows it
    sifted = sift(found.values(), kernel.allows)
    return Run((), sifted.kept, "", 0, "", "", suppressed=sifted.suppressed)


def _accepted(kernel: KernelFile, shapes: Shapes) -> BoundKernel | None:
    """Return the call's launches; None where its arrays do not fit a GPU, or launch lines or arguments exclude it."""
    try:
        if sum(array.nbytes for array in kernel.outline(shapes).values()) > GPU_BYTES:
            return None
        bound = kernel.bind_outline(shapes)
    except (LaunchError, UsageError):
        return None
    return bound if all(map(_can_be_launched, bound.launches)) else None


def _can_be_launched(launch: Launch) -> bool:
    """Whether the grid is within limits and every number fits an int: passing more is an error in the host code."""
    fits = all(1 <= size <= limit for size, limit in zip(launch.grid, LARGEST_GRID, strict=True))
    numbers = zip(launch.args, _parameters(launch), strict=True)
    return fits and all(value < 1 << 31 for value, (_, _, size) in numbers if isinstance(value, int) and size == 4)


def _parameters(launch: Launch) -> tuple[tuple[str, int, int], ...]:
    """Return name, offset and size of each parameter of the kernel, whose body is not read."""
    return parameter_layout(parse_declarations(launch.binary.ptx).functions[launch.symbol])


def _of_call(kernel: KernelFile, bound: BoundKernel, shapes: Shapes) -> Iterator[Finding]:
    sizes = " ".join(f"{name}={size}" for name, size in kernel.sizes_of(shapes).items())
    followed = [(launch, _index_launch(bound, launch)) for launch in bound.launches]
    parts = [f"{launch.binary.ptx_digest} {launch.symbol} {numbers}" for launch, numbers in followed]
    key = cache_key(["indices", _version(), sizes, *parts])
    stored = Cache("indices").get(key)
    if stored is None:
        found = [_finding(each, sizes) for launch, numbers in followed for each in _overflows(launch, numbers)]
        Cache("indices").put(key, json.dumps([finding_record(finding) for finding in found]).encode())
    else:
        found = [finding_of(record) for record in json.loads(stored)]
    return map(bound.spelled, found)


def _index_launch(bound: BoundKernel, launch: Launch) -> IndexLaunch:
    places = {id(array): (number + 1) * _APART for number, array in enumerate(bound.arrays.values())}
    block = pack_parameters(_parameters(launch), launch.args, lambda array, _: places[id(array)], launch.names)
    arrays = tuple(ArrayPlace(name, places[id(array)], array.nbytes) for name, array in bound.arrays.items())
    return IndexLaunch(launch.grid, launch.block, block, arrays)


def _overflows(launch: Launch, numbers: IndexLaunch) -> tuple[Overflow, ...]:
    function, steps = _kernel(launch.binary.ptx, launch.symbol)
    return find_overflows(function, steps, numbers)


@cache
def _version() -> str:
    """Return what the result depends on apart from the launches: the source of parser, analysis and this file."""
    return emitter_version() + Path(__file__).read_text()


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
    """Return a kernel of a PTX text and its index arithmetic."""
    module = _module(ptx)
    return module.functions[symbol], index_steps(module, symbol)


@lru_cache(maxsize=4)
def _module(ptx: str) -> Module:
    return parse(ptx)
