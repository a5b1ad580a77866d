"""The kernels that a file's launches name → binaries: by NVRTC or nvcc, from PTX, or by Triton one by one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.core.errors import CompileError, Unsupported
from weft.core.records import Binary, Diagnostic, Place
from weft.toolchain.cuda import compile_cuda
from weft.toolchain.nvrtc import NAME_MAP
from weft.toolchain.ptx_file import read_ptx

from .bind import Bound
from .launch_lines import at_line
from .launch_records import LaunchLine
from .triton_file import compile_launch, is_triton

if TYPE_CHECKING:
    from .kernel_file import KernelFile


def compile_launches(kernel: "KernelFile", launches: Mapping[str, LaunchLine], bound: Bound) -> dict[str, Binary]:
    """Entry → its binary, for launches by the entry that each names."""
    if not is_triton(kernel.path):
        return dict.fromkeys(launches, _compile_module(kernel, launches, bound))
    if kernel.debug:
        raise Unsupported(f"{kernel.path}: Triton has no debug build (-G)")
    found = {}
    for entry, launch in launches.items():
        with at_line(kernel.lines_path, launch.line):
            found[entry] = compile_launch(kernel.path, kernel.arch, entry, launch, kernel.lines, bound)
    return found


def _compile_module(kernel: "KernelFile", launches: Mapping[str, LaunchLine], bound: Bound) -> Binary:
    entries = list(launches)
    if kernel.compiled:
        return read_ptx(kernel.path, arch=kernel.arch, entries=entries, debug=kernel.debug)
    try:
        return compile_cuda(
            kernel.path,
            arch=kernel.arch,
            defines=_macros(kernel, bound),
            include_dirs=kernel.include_dirs,
            entries=entries,
            debug=kernel.debug,
            options=kernel.lines.options,
            compiler=kernel.compiler,
        )
    except CompileError as error:
        raise _at_launch_lines(error, kernel.path, launches) from error


def _macros(kernel: "KernelFile", bound: Bound) -> dict[str, str]:
    """All but words of levers that nothing asks for: the compiler's wrapper would call them unused."""
    words = {word for lever in kernel.lines.levers for word in lever.words}
    text = Path(kernel.path).read_text() if words else ""
    if '#include "' in text:  # a header of the user may ask
        return dict(bound.defines)
    return {name: value for name, value in bound.defines.items() if name not in words or name in text}


def _at_launch_lines(error: CompileError, path: str, launches: Mapping[str, LaunchLine]) -> CompileError:
    """A kernel that a launch line names but nobody can instantiate: the error belongs to that line."""
    names = _name_errors(error.diagnostics)
    for entry, launch in launches.items():
        if any("".join(entry.split()) in "".join(message.split()) for message in names):
            message = f"{entry}: {names[0]}"
            place = Place(path, launch.line)
            return CompileError(f"{place}: {message}", (Diagnostic("error", message, place),))
    return error


def _name_errors(diagnostics: Sequence[Diagnostic]) -> list[str]:
    """Of name expressions: they have no line of the source."""
    return [item.message for item in diagnostics if item.place and item.place.file == NAME_MAP]
