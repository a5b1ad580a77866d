"""The largest real sizes of attention: index arithmetic is checked there, and nothing runs.

Each group of calls is in descending size. The check uses the first whose arrays, workspaces included, fit
the memory of a GPU and which the kernel's `require` lines and arguments accept. So a kernel that takes all sizes gets
tensors of more than 2^32 elements, and one that states a limit is checked at that limit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from weft.attention.shapes import Shape
from weft.attention.shapes import shape as shape_of
from weft.engines.check_indices import Shapes
from weft.tasks.task import Task, Workload

from .input_axes import input_axes, shapes_of

PROMPT = Shape("prompt", 256, 40, 40, 16384, 16384, 64)
CONTEXT = Shape("context", 256, 40, 40, 131071, 131071, 64)
DECODE = Shape("decode", 256, 64, 8, 1, 131071, 64)
"""Heads and lengths of models in use, with more sequences than fit; D is that of the workload. The number of heads is
not a multiple of 16, as in the small shapes, so that Triton does not specialise for it. One length is a multiple of
the tile, the other is not."""
SHORTER = 4
"""For kernels that limit the length: a quarter of it with four times as many sequences, repeatedly."""
FEW_QUERIES = 32
"""A task whose shapes all have fewer queries is decoding, which has no prompts."""


def one_per_build(todo: Sequence[Workload]) -> tuple[Workload, ...]:
    """Return a workload for each type, mask and encoding (chosen by macros). D is 64 if possible, else the largest."""
    builds: dict[tuple[str, ...], Workload] = {}
    for workload in todo:
        build = (workload.dtype, workload.mask, workload.encoding)
        builds[build] = max(builds.get(build, workload), workload, key=lambda each: (each.shape.d == 64, each.shape.d))
    return tuple(builds.values())


def large_calls(task: Task, workload: Workload) -> tuple[tuple[Shapes, ...], ...]:
    """Return the input shapes of large calls, in groups, the largest of a group first."""
    axes = input_axes(task, workload)
    if not axes:
        return ()
    prompts = any(shape_of(name).sq >= FEW_QUERIES for name in task.workloads.shapes)
    groups = [_prompts(), _fewer_sequences(CONTEXT)] if prompts else []
    groups.append(_fewer_sequences(DECODE))
    return tuple(tuple(shapes_of(axes, replace(shape, d=workload.shape.d)) for shape in group) for group in groups)


def _prompts() -> Iterator[Shape]:
    shape = PROMPT
    for _ in range(3):
        yield from _fewer_sequences(shape)
        length = shape.sq // SHORTER
        shape = replace(shape, b=shape.b * SHORTER, sq=length, skv=length)


def _fewer_sequences(shape: Shape) -> Iterator[Shape]:
    for halvings in range(shape.b.bit_length()):
        yield replace(shape, b=shape.b >> halvings)
