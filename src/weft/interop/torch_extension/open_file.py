"""A CUDA file with host code and no launch lines → a kernel source: its device code, and launch lines from host code.

Findings and errors about launch lines name the user's file: its path and its line numbers.
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
"""A file that already hides its host code from NVRTC."""


_OBVIOUS = re.compile(r"^[qkvo]\w* is assumed to have \d dimensions|^the arrays are |^cudaMemcpy is not", re.IGNORECASE)
"""Notes that are shown when the lines are written to a file, but not at each run."""


class IncompleteImport(UsageError):
    """The launch lines cannot be read completely from the host code; the message lists what is missing."""

    def __init__(self, path: str, found: Imported) -> None:
        self.missing = tuple(f"{path}:{each.line}: missing: {each.text}" for each in found.problems)
        self.sentence = (
            f"{path}: host function {found.function} read, but {len(found.problems)} parts of its launch lines are "
            f"missing. Write them to a file and replace each ???: weft import {path} -o {_output_path(path)}"
        )
        super().__init__("\n".join((self.sentence, *self.missing)))


def open_host_code(source: KernelSource, arch: str, include_dirs: Sequence[str]) -> KernelSource:
    """Return the source with its device code separated, and with launch lines from a host function where it has none.

    A file without host code is returned unchanged. Raises IncompleteImport where a line has a `???`, Unsupported where
    the file cannot be separated.
    """
    if "__global__" not in source.text:  # the compiler reports what is wrong with it
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
    read = f"{source.path}: launch lines are read from host function {found.function}; to write them to a file: "
    read += f"weft import {source.path} -o {_output_path(source.path)}"
    notes = tuple(f"{source.path}:{note.line}: {note.text}" for note in found.notes if not _OBVIOUS.search(note.text))
    macros = frozenset(line.name for line in lines.defines if line.name not in defined)
    return replace(source, lines=lines, host=HostCode(found.device, found.function, (read, *notes), macros))


def _output_path(path: str) -> str:
    return re.sub(r"\.\w+$", "", path) + "_weft.cu"


def _at_origin(lines: LaunchLines, found: Imported) -> LaunchLines:
    """Return the lines with the line numbers of the host code they were read from, for errors."""

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
