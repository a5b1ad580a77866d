"""A named shape of attention → the sizes of a kernel file, through its arrays q, k and v."""

from collections.abc import Mapping

from weft.attention.errors import ContractError
from weft.attention.shapes import Shape
from weft.attention.shapes import shape as shape_of
from weft.core.errors import UsageError
from weft.engines.bind import NotTaken
from weft.engines.kernel_file import KernelFile
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import TASKS
from weft.tasks.task import Task

from .input_axes import InputAxes, input_axes, shapes_of
from .limits import limits_of
from .match_arrays import any_workload, match_arrays, require_layout

DEFAULT = "mission"
"""The shape of a rung if none is named: the sizes in its file are small ones for tests."""


def shape_sizes(kernel: KernelFile, name: str, target: str = "") -> dict[str, int]:
    """Return the sizes of a file at a shape, named as in `weft list` or by sizes (`b1-hq2-hkv1-sq5-skv300-d64`).

    `target` is what the caller calls the file; a rung has the shape `mission` if none is named, a file its own sizes.
    Raises UsageError where the file does not have the arrays of attention, or does not take the shape.
    """
    name = name or (DEFAULT if target in RUNGS else "")
    if not name:
        return {}
    try:
        shape = shape_of(name)
    except ContractError as error:
        raise UsageError(f"--shape {name}: {error}") from error
    for task in TASKS.values():
        axes = input_axes(task, any_workload(task))
        if axes and (found := _sizes(kernel, task, axes, shape)) is not None:
            return found
    known = _by_name(kernel, shape)
    if not known:
        raise UsageError(
            f"--shape {name}: {kernel.path} has no arrays q, k and v through which a shape gives its sizes; "
            "give its `sizes` (--size NAME=VALUE) instead"
        )
    return known


def _sizes(kernel: KernelFile, task: Task, axes: InputAxes, shape: Shape) -> dict[str, int] | None:
    """Return the sizes through the arrays of a task; None if the file has other arrays."""
    try:
        wanted = match_arrays(kernel, task, axes)
    except UsageError:
        return None
    adapted = kernel.adapted(wanted) if wanted else kernel
    require_layout(adapted, axes)
    for limit in limits_of(adapted, axes):
        if not limit.holds(shape):
            raise UsageError(f"--shape {shape.name} does not fit {kernel.path}: {limit.why}")
    try:
        found = adapted.sizes_of(shapes_of(axes, shape))
    except NotTaken as error:
        raise UsageError(f"--shape {shape.name} does not fit {kernel.path}: {error}") from error
    return dict(found)


def _by_name(kernel: KernelFile, shape: Shape) -> dict[str, int]:
    known: Mapping[str, int] = {axis.upper(): getattr(shape, axis) for axis in ("b", "hq", "hkv", "sq", "skv", "d")}
    return {size: value for size, value in known.items() if size in kernel.sizes}
