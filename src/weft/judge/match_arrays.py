"""Which array of a file is which array of its task: by name or by a synonym (`Q`, `query`, `d_q`, `Out`)."""

from collections.abc import Sequence

from weft.attention.shapes import shape as shape_of
from weft.attention.words import ARRAY_WORDS, HEAD_WORDS, LENGTH_WORDS, array_named
from weft.core.errors import UsageError
from weft.engines.adapt_lines import Wanted
from weft.engines.element_types import ELEMENT_TYPES
from weft.engines.kernel_file import KernelFile
from weft.engines.launch_records import ArrayLine
from weft.tasks.registry import TASKS
from weft.tasks.task import Task, Workload

from .input_axes import InputAxes

LAYOUT = "[batch, heads, length, D]"


def any_workload(task: Task, dtype: str = "") -> Workload:
    """Return some workload of a task: the form of its arrays depends only on the type."""
    quick = task.quick
    shape = shape_of((*quick.shapes, *task.workloads.shapes)[0])
    return Workload(shape, dtype or quick.dtypes[0], quick.masks[0], quick.regimes[0], 0, quick.encodings[0])


def match_arrays(kernel: KernelFile, task: Task, axes: InputAxes) -> tuple[Wanted, ...]:
    """Return the task's names and shapes of a file's arrays; empty if the file already uses them.

    Raises UsageError where an array is missing, a name is ambiguous, or a layout is not the task's.
    """
    inputs = [line.name for line in kernel.arrays if line.role != "out" and not _starts_by_itself(line, task)]
    own = _named(kernel, inputs, task.inputs)
    if len(own) != len(inputs) or len(own) != len(task.inputs):
        given = ", ".join(task.inputs)
        raise UsageError(
            f"{kernel.path} takes {', '.join(inputs) or 'nothing'}; task {task.name} gives {given}. "
            f"{_advice(kernel, inputs, task)}"
        )
    outputs = _named(kernel, [line.name for line in kernel.outputs], [output.name for output in task.outputs])
    for output in task.outputs:
        if output.name not in outputs and not output.optional:
            named = _other_words((output.name,))
            raise UsageError(
                f"{kernel.path} declares no output `{output.name}`, which task {task.name} requires{named}"
            )
    ranks = {name: len(each) for name, each in axes.items()}
    if axes:
        ranks |= {output.name: len(output.shape(shape_of(task.quick.shapes[0]))) for output in task.outputs}
    found = tuple(Wanted(name, mine, ranks.get(name)) for name, mine in {**own, **outputs}.items())
    lines = {line.name: line for line in kernel.arrays}
    changed = (each.name != each.own or each.rank not in (None, len(lines[each.own].shape)) for each in found)
    return found if any(changed) else ()


def _advice(kernel: KernelFile, inputs: Sequence[str], task: Task) -> str:
    """Return what to change: the --task, if others take exactly these inputs; else the names."""
    fit = [
        each.name
        for each in TASKS.values()
        if len(_named(kernel, inputs, each.inputs)) == len(inputs) == len(each.inputs)
    ]
    if fit:
        return f"These are the inputs of --task {' or '.join(fit)}"
    return f"Use the task's names{_other_words(task.inputs)}, or choose another --task"


def _starts_by_itself(line: ArrayLine, task: Task) -> bool:
    """Whether an array that the kernel updates is not an input of the task: `inout O : f16[…] = zeros`."""
    filled = line.role == "inout" and line.initialiser is not None
    return filled and not array_named(line.name, task.inputs)


def _named(kernel: KernelFile, declared: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """Return the task's name → the file's name; equal names first."""
    own = {name: name for name in wanted if name in declared}
    for name in declared:
        meant = array_named(name, tuple(wanted))
        if not meant or own.get(meant) == name or own.get(meant) == meant:
            continue
        if meant in own:
            raise UsageError(f"{kernel.path}: {own[meant]} and {name} could both be `{meant}`: rename one to it")
        own[meant] = name
    return own


def _other_words(names: Sequence[str]) -> str:
    words = [f"{name}: {', '.join((name.upper(), *ARRAY_WORDS[name][:2]))}" for name in names if name in ARRAY_WORDS]
    return f" (also accepted, in upper or lower case: {'; '.join(words)})" if words else ""


def require_layout(kernel: KernelFile, axes: InputAxes) -> None:
    """Refuse arrays whose size names show another layout: their results would be wrong although the kernel is right."""
    for line in kernel.arrays:
        names = axes.get(line.name, ())
        if names[1:3] not in (("hq", "sq"), ("hkv", "skv")) or len(line.shape) != len(names):
            continue
        heads, length = (size.name.lower() for size in line.shape[1:3])
        if heads in LENGTH_WORDS and length in HEAD_WORDS:
            raise UsageError(
                f"{kernel.path}: {line.text} is [batch, length, heads, D]; the task's arrays are {LAYOUT}, and other "
                f"layouts are not judged. Use that layout, or give a --task file whose `draw` and `reference` use yours"
            )
        spelled = {size.name for size in line.shape}
        packed = [name for name in kernel.sizes if name.lower() in HEAD_WORDS and name not in spelled]
        if packed and names[1] == "hq" and not heads and length in LENGTH_WORDS:
            raise UsageError(
                f"{kernel.path}: {line.text} has no dimension {packed[0]}; the task's arrays are {LAYOUT}, and heads "
                f"packed into D are not judged. Use that layout, or give a --task file that draws packed arrays"
            )


def require_types(kernel: KernelFile, task: Task, dtype: str) -> None:
    """Refuse inputs whose type is not the one that the task gives for this output type."""
    drawn = task.draw(any_workload(task, dtype)).arrays
    for line in kernel.arrays:
        if line.name in drawn and ELEMENT_TYPES[line.element].itemsize != drawn[line.name].dtype.itemsize:
            first = task.outputs[0].name
            raise UsageError(
                f"{kernel.path}: {line.name} is {line.element} and {first} is {dtype}; task {task.name} has one type "
                f"for both. Declare {first} as {line.element}, or give a --task file with these types"
            )
