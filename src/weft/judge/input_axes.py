"""Which dimension of an input is which size of attention: shapes of calls whose inputs are never generated."""

from collections.abc import Mapping
from dataclasses import fields, replace

from weft.attention.shapes import Shape
from weft.engines.check_indices import Shapes
from weft.tasks.task import Task, Workload

InputAxes = Mapping[str, tuple[str, ...]]
"""Input → the size (`b`, `hq`, `hkv`, `sq`, `skv`, `d`) that each of its dimensions is."""

TELLING = Shape("telling", 2, 15, 5, 7, 11, 13)
"""All sizes differ, so that an array's shape shows which of its dimensions is which size."""


def input_axes(task: Task, workload: Workload) -> InputAxes:
    """Return the axes of a task's inputs; empty for a task that is not attention."""
    if not task.workloads.shapes:
        return {}
    sizes = {getattr(TELLING, axis.name): axis.name for axis in fields(Shape) if axis.name != "name"}
    drawn = task.draw(replace(workload, shape=TELLING)).arrays
    if any(size not in sizes for array in drawn.values() for size in array.shape):
        return {}
    return {name: tuple(sizes[size] for size in array.shape) for name, array in drawn.items()}


def shapes_of(axes: InputAxes, shape: Shape) -> Shapes:
    """Return the shapes of the inputs of a call."""
    return {name: tuple(getattr(shape, axis) for axis in names) for name, names in axes.items()}
