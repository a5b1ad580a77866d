"""A CUDA file with host code and no launch lines → a kernel source: its device code, and lines from its host code.

What the user sees stays the user's file: its text, its path, and the numbers of its lines, in findings and in errors
about launch lines alike.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from weft.core.errors import UsageError
from weft.engines.kernel_source import HostCode, KernelSource
from weft.engines.launch_lines import read_lines
from weft.engines.launch_records import LaunchLines

from .device_part import separate
from .import_file import Imported, import_torch

_LAUNCHES = re.compile(r"<<<|\bcudaLaunch(Cooperative)?Kernel")
_HOST_CODE = re.compile(r"^\s*#\s*include\s*<(torch|ATen|c10|pybind11)/|<<<|\bint\s+main\s*\(", re.MULTILINE)
_PARTED = re.compile(r"__CUDACC_RTC__|-default-device")
"""A file that keeps its host code away from NVRTC by itself."""


_OBVIOUS = re.compile(r"^[qkvo]\w* is taken to have \d dimensions|^the arrays are |^cudaMemcpy is not", re.IGNORECASE)
"""Notes for the lines that are written out, not for each run."""


class IncompleteImport(UsageError):
    """The host code does not say all of the launch lines: what is missing, and how to complete it."""

    def __init__(self, path: str, found: Imported) -> None:
        self.missing = tuple(f"{path}:{each.line}: to complete: {each.text}" for each in found.problems)
        self.sentence = (
            f"{path}: host function {found.function} read, but {len(found.problems)} of its launch lines' parts are to "
            f"complete: write the file out, then replace each ???: weft import {path} -o {_output_path(path)}"
        )
        super().__init__("\n".join((self.sentence, *self.missing)))


def open_host_code(source: KernelSource, arch: str, include_dirs: Sequence[str]) -> KernelSource:
    """Return the source with its device code apart, and with launch lines from a host function where it has none.

    A file without host code is returned as it is. Raises IncompleteImport where a line has a hole, Unsupported where
    the file cannot be separated.
    """
    if "__global__" not in source.text:  # the compiler says what is wrong with it
        return source
    if source.lines.launches or not _LAUNCHES.search(source.text):
        if _HOST_CODE.search(source.text) is None or _PARTED.search(source.text):
            return source
        settled = frozenset(line.name for line in source.lines.defines)
        return replace(source, host=HostCode(separate(source.text, source.path, without=settled).text))
    found = import_torch(source.path, text=source.text, arch=arch, include_dirs=include_dirs, attention=True)
    if found.problems:
        raise IncompleteImport(source.path, found)
    defined = set(re.findall(r"^\s*#\s*define\s+(\w+)", source.text, re.MULTILINE))
    lines = _at_origin(read_lines("\n".join(found.lines), source.path), found)
    read = f"{source.path}: host function {found.function} read: launch lines from it; write them out with "
    read += f"weft import {source.path} -o {_output_path(source.path)}"
    notes = tuple(f"{source.path}:{note.line}: {note.text}" for note in found.notes if not _OBVIOUS.search(note.text))
    macros = frozenset(line.name for line in lines.defines if line.name not in defined)
    return replace(source, lines=lines, host=HostCode(found.device, found.function, (read, *notes), macros))


def _output_path(path: str) -> str:
    return re.sub(r"\.\w+$", "", path) + "_weft.cu"


def _at_origin(lines: LaunchLines, found: Imported) -> LaunchLines:
    """An error about a line belongs to what it was read from in the user's file."""

    def own(line: int) -> int:
        return found.origins[line - 1]

    return replace(
        lines,
        arrays=tuple(replace(each, line=own(each.line)) for each in lines.arrays),
        scalars=tuple(replace(each, line=own(each.line)) for each in lines.scalars),
        defines=tuple(replace(each, line=own(each.line)) for each in lines.defines),
        launches=tuple(replace(each, line=own(each.line)) for each in lines.launches),
        levers=tuple(replace(each, line=own(each.line)) for each in lines.levers),
        requires=tuple(replace(each, line=own(each.line)) for each in lines.requires),
    )
