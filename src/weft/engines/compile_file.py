"""Compiles the kernels that a file's launches name: with NVRTC or nvcc, from PTX, or with Triton one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.core.errors import CompileError, Unsupported, at_line
from weft.core.records import Binary, Diagnostic, Place
from weft.toolchain.cuda import compile_cuda
from weft.toolchain.nvrtc import NAME_MAP
from weft.toolchain.ptx_file import ptx_binary

from .bind import Bound
from .kernel_source import KernelSource
from .launch_records import LaunchLine, LaunchLines
from .triton_file import compile_launch


@dataclass(frozen=True)
class Build:
    """How a file is compiled."""

    arch: str
    include_dirs: tuple[str, ...]
    debug: bool
    """As with -G: no optimisation, local variables in memory."""
    compiler: str


def compile_launches(
    source: KernelSource, lines: LaunchLines, build: Build, launches: Mapping[str, LaunchLine], bound: Bound
) -> dict[str, Binary]:
    """Return entry → its binary; `launches` are by entry. `lines` are the source's, with types chosen."""
    if not source.is_triton:
        return dict.fromkeys(launches, _compile_module(source, build, launches, bound))
    if build.debug:
        raise Unsupported(f"{source.path}: Triton has no debug build (-G)")
    found = {}
    for entry, launch in launches.items():
        with at_line(source.lines_path, launch.line):
            found[entry] = compile_launch(source.path, build.arch, entry, launch, lines, bound)
    return found


def _compile_module(source: KernelSource, build: Build, launches: Mapping[str, LaunchLine], bound: Bound) -> Binary:
    entries = list(launches)
    if source.compiled:
        if build.debug:
            raise Unsupported(f"{source.path} is already compiled PTX: a -G build needs the CUDA source")
        return ptx_binary(source.text, source.path, arch=build.arch, entries=entries)
    try:
        return compile_cuda(
            source.code,
            name=source.path,
            arch=build.arch,
            defines=_macros(source, bound),
            include_dirs=build.include_dirs,
            entries=entries,
            debug=build.debug,
            options=source.lines.options,
            compiler=build.compiler,
        )
    except CompileError as error:
        raise _at_launch_lines(error, source.path, launches) from error


def _macros(source: KernelSource, bound: Bound) -> dict[str, str]:
    """Return the macros, without unused ones of levers of words, which the compiler wrapper would report as unused."""
    words = {word for lever in source.lines.levers for word in lever.words}
    defines = dict(bound.defines)
    if source.host is not None:
        defines = {name: value for name, value in defines.items() if name not in source.host.line_macros}
    if '#include "' in source.code:  # a header of the user may use it
        return defines
    return {name: value for name, value in defines.items() if name not in words or name in source.code}


def _at_launch_lines(error: CompileError, path: str, launches: Mapping[str, LaunchLine]) -> CompileError:
    """Return the error of a kernel that a launch line names but the compiler cannot instantiate, at that line."""
    names = _name_errors(error.diagnostics)
    for entry, launch in launches.items():
        if any("".join(entry.split()) in "".join(message.split()) for message in names):
            message = f"{entry}: {names[0]}"
            place = Place(path, launch.line)
            return CompileError(f"{place}: {message}", (Diagnostic("error", message, place),))
    return error


def _name_errors(diagnostics: Sequence[Diagnostic]) -> list[str]:
    """Return the errors about name expressions, which have no source line."""
    return [item.message for item in diagnostics if item.place and item.place.file == NAME_MAP]
