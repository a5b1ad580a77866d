"""A named shape of attention → the sizes of a kernel file, through its arrays q, k and v, and inputs that fit them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft.attention.dtypes import Array
from weft.attention.errors import ContractError
from weft.attention.shapes import Shape
from weft.attention.shapes import shape as shape_of
from weft.core.errors import UsageError
from weft.engines.bind import NotTaken
from weft.engines.kernel_file import KernelFile
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import TASKS, find_task
from weft.tasks.task import Task

from .input_axes import InputAxes, input_axes, shapes_of
from .limits import limits_of
from .match_arrays import any_workload, match_arrays, require_layout


@dataclass(frozen=True)
class Call:
    """A call of a kernel file at a shape."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """All inputs, where some hold lengths or tables that must fit the sizes; else none, the file generates them."""


def call_at(kernel: KernelFile, name: str, target: str = "", *, seed: int = 0) -> Call:
    """Return the call of a file at a shape, named as in `weft list` or by sizes (`b1-hq2-hkv1-sq5-skv300-d64`).

    `target` is what the caller calls the file; a rung has its task's typical shape if none is named, a file its own
    sizes. Raises UsageError where the file does not have the arrays of attention, or does not take the shape.
    """
    # The sizes in a rung's file are small ones for tests.
    name = name or (find_task(RUNGS[target].task).typical if target in RUNGS else "")
    if not name:
        return Call()
    try:
        shape = shape_of(name)
    except ContractError as error:
        raise UsageError(f"shape {name}: {error}") from error
    for task in TASKS.values():
        axes = input_axes(task, any_workload(task))
        found = _sizes(kernel, task, axes, shape) if axes else _drawn(kernel, task, shape, seed)
        if found is not None:
            return found
    known = _by_name(kernel, shape)
    if not known:
        raise UsageError(
            f"shape {name}: {kernel.path} has no arrays q, k and v through which a shape gives its sizes; "
            "give its `sizes` (--size NAME=VALUE) instead"
        )
    return Call(known)


def _sizes(kernel: KernelFile, task: Task, axes: InputAxes, shape: Shape) -> Call | None:
    """Return the call by the sizes through the arrays of a task; None if the file has other arrays."""
    try:
        wanted = match_arrays(kernel, task, axes)
    except UsageError:
        return None
    adapted = kernel.adapted(wanted) if wanted else kernel
    require_layout(adapted, axes)
    for limit in limits_of(adapted, axes):
        if not limit.holds(shape):
            raise UsageError(f"shape {shape.name} does not fit {kernel.path}: {limit.why}")
    try:
        found = adapted.sizes_of(shapes_of(axes, shape))
    except NotTaken as error:
        raise UsageError(f"shape {shape.name} does not fit {kernel.path}: {error}") from error
    return Call(found)


def _drawn(kernel: KernelFile, task: Task, shape: Shape, seed: int) -> Call | None:
    """Return the call on the inputs of a task whose arrays have other dimensions than the sizes; None: see `_sizes`."""
    try:
        wanted = match_arrays(kernel, task, {})
    except UsageError:
        return None
    _require_macros(kernel, task)
    own = {each.name: each.own for each in wanted}
    first = task.outputs[0].name
    dtype = next(line.element for line in kernel.outputs if line.name == own.get(first, first))
    drawn = task.draw(replace(any_workload(task, dtype), shape=shape, seed=seed)).arrays
    arrays = {own.get(name, name): array for name, array in drawn.items()}
    try:
        return Call(kernel.sizes_of({name: array.shape for name, array in arrays.items()}), arrays)
    except NotTaken as error:
        raise UsageError(f"shape {shape.name} does not fit {kernel.path}: {error}") from error


def _require_macros(kernel: KernelFile, task: Task) -> None:
    """Refuse macros for which the task's arrays have another layout."""
    own = {line.name: getattr(line.value, "text", line.value) for line in kernel.lines.defines} | dict(kernel.defines)
    for name, value in task.macros.items():
        if own.get(name, value) != value:
            raise UsageError(
                f"{kernel.path} has {name}={own[name]}, and task {task.name} gives arrays for {name}={value}: "
                f"leave out -D {name}, or use the file without a shape, with its own sizes (--size NAME=VALUE)"
            )


def _by_name(kernel: KernelFile, shape: Shape) -> dict[str, int]:
    known: Mapping[str, int] = {axis.upper(): getattr(shape, axis) for axis in ("b", "hq", "hkv", "sq", "skv", "d")}
    return {size: value for size, value in known.items() if size in kernel.sizes}
