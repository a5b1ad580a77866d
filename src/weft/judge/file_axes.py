"""Which types, masks and encodings a file's launch lines declare."""

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.errors import UsageError
from weft.engines.kernel_file import KernelFile
from weft.kernels.ladder import ANY_FLOAT, ELEMENTS, ENCODINGS, MASKS
from weft.tasks.task import PLAIN, Task


@dataclass(frozen=True)
class FileAxes:
    """The types, masks and encodings that a file computes."""

    dtypes: tuple[str, ...]
    masks: tuple[str, ...]
    encodings: tuple[str, ...]
    only_d: int | None = None
    """The head dimension that PTX was compiled for, if it has no parameter for it."""
    any_mask: bool = False
    """Whether the file does not state which mask it computes."""


def file_axes(kernel: KernelFile, task: Task) -> FileAxes:
    """Return the element types, masks and encodings of a file: those its macros choose, or those of its arrays."""
    macros = {line.name for line in kernel.lines.defines}
    if kernel.compiled:
        return _of_ptx(kernel, task)
    first = task.outputs[0]
    fixed = {line.name: line.element for line in kernel.outputs}.get(first.name, first.dtype or ANY_FLOAT[0])
    if "ELEMENT" not in macros and fixed not in ELEMENTS:
        raise UsageError(f"{kernel.path}: {first.name} is {fixed}; {task.name} supports {', '.join(ELEMENTS)}")
    floats = _offered(kernel, "ELEMENT", {ELEMENTS[name]: name for name in ANY_FLOAT})
    dtypes = floats if "ELEMENT" in macros else (fixed,)
    encodings = task.workloads.encodings
    if encodings != (PLAIN,):
        known = _offered(kernel, "ENCODING", dict(zip("01", ENCODINGS, strict=True)))
        encodings = known if "ENCODING" in macros else encodings[:1]
    masks = _offered(kernel, "CAUSAL", dict(zip("012", MASKS, strict=True))) if "CAUSAL" in macros else ("none",)
    any_mask = "CAUSAL" not in macros and len(task.workloads.masks) > 1
    return FileAxes(dtypes, masks, encodings, any_mask=any_mask)


def _offered(kernel: KernelFile, macro: str, meaning: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a macro can select: everything, or the values of its `lever` line."""
    lever = next((line for line in kernel.lines.levers if line.name == macro), None)
    if lever is None:
        return tuple(meaning.values())
    unknown = [value for value in lever.values if value not in meaning]
    if unknown:
        raise UsageError(
            f"{kernel.lines_path}:{lever.line}: {macro} is {unknown[0]}; "
            f"the judge supports {', '.join(f'{value} ({name})' for value, name in meaning.items())}"
        )
    return tuple(name for value, name in meaning.items() if value in lever.values)


def _of_ptx(kernel: KernelFile, task: Task) -> FileAxes:
    """Return the one type, mask and encoding of compiled PTX, which its `define` lines state."""
    settled = {
        line.name: line.value if isinstance(line.value, str) else line.value.text for line in kernel.lines.defines
    }
    first = task.outputs[0]
    element = {line.name: line.element for line in kernel.outputs}.get(first.name, first.dtype or ANY_FLOAT[0])
    if element not in ELEMENTS:
        raise UsageError(f"{kernel.path}: {first.name} is {element}; {task.name} supports {', '.join(ELEMENTS)}")
    known = task.workloads.encodings
    unsaid = "0" if known == (PLAIN,) else str(ENCODINGS.index(known[0]))
    mask, encoding = settled.get("CAUSAL", "0"), settled.get("ENCODING", unsaid)
    if mask not in ("0", "1", "2") or encoding not in ("0", "1"):
        raise UsageError(f"{kernel.lines_path}: CAUSAL is {mask} (use 0, 1 or 2), ENCODING is {encoding} (use 0 or 1)")
    encodings = known if known == (PLAIN,) else (ENCODINGS[int(encoding)],)
    # A kernel without an argument D has it compiled in: the default of its `sizes` line.
    passes_d = any("D" in formula.names for launch in kernel.launches for formula in launch.passed())
    only_d = None if passes_d else kernel.sizes.get("D")
    return FileAxes((element,), (MASKS[int(mask)],), encodings, only_d=only_d)
