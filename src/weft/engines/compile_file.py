"""Compiles the kernels that a file's launches name: with NVRTC or nvcc, from PTX, or with Triton one by one.

A file with `link` lines is a program of several files: each is compiled as relocatable device code, then Weft links.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from weft.core.errors import CompileError, Unsupported, UsageError, at_line
from weft.core.records import Binary, Diagnostic, Place
from weft.ptx.link import Unit, link
from weft.toolchain.cuda import RELOCATABLE, compile_cuda
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
    try:
        return compile_source(source, build, defines=_macros(source, bound), entries=list(launches))
    except CompileError as error:
        raise _at_launch_lines(error, source.path, launches) from error


def compile_source(
    source: KernelSource, build: Build, *, defines: Mapping[str, str], entries: Sequence[str] = ()
) -> Binary:
    """Compile a CUDA or PTX file, with the files that are linked with it; without `entries` all kernels are listed."""
    if not source.linked:
        return _compile_one(source, build, defines, entries)
    # Kernels of PTX are found by their names, wherever they are; name expressions are for the file with the lines.
    own = () if source.compiled else tuple(entries)
    parts = [_compile_one(file, build, defines, own if file is source else ()) for file in source.files]
    text = link([Unit(file.path, part.ptx) for file, part in zip(source.files, parts, strict=True)])
    whole = ptx_binary(text, source.path, arch=build.arch, entries=() if own else entries)
    for expression, lowered in parts[0].entries.items() if own else ():
        if lowered not in whole.entries.values():
            files = ", ".join(file.path for file in source.files)
            raise UsageError(f"entry {expression!r} is not a __global__ function of {files}")
    used = {name: value for part in reversed(parts) for name, value in part.defines.items()}
    used |= {name: defines[name] for part in parts for name in defines if part.defines.get(name) == defines[name]}
    return replace(
        whole,
        compiler=next((part.compiler for part in parts if part.flags), whole.compiler),
        flags=next((part.flags for part in parts if part.flags), ()),
        entries=parts[0].entries if own else whole.entries,
        source_digest=hashlib.sha256("".join(part.source_digest for part in parts).encode()).hexdigest(),
        defines=used,
        diagnostics=tuple(dict.fromkeys(each for part in parts for each in part.diagnostics)),
        notes=tuple(replace(each, line=0) for part in parts for each in part.notes),  # lines of the part's own PTX
    )


def _compile_one(source: KernelSource, build: Build, defines: Mapping[str, str], entries: Sequence[str]) -> Binary:
    if source.compiled:
        if build.debug:
            raise Unsupported(f"{source.path} is already compiled PTX: a -G build needs the CUDA source")
        return ptx_binary(source.text, source.path, arch=build.arch, entries=entries)
    return compile_cuda(
        source.code,
        name=source.path,
        arch=build.arch,
        defines=defines,
        include_dirs=build.include_dirs,
        entries=entries,
        debug=build.debug,
        options=compiler_options(source.lines),
        compiler=build.compiler,
    )


def compiler_options(lines: LaunchLines) -> tuple[str, ...]:
    """Return the options of the lines; files that are linked are compiled as relocatable device code."""
    relocatable = ("-rdc=true",) if lines.links and RELOCATABLE.isdisjoint(lines.options) else ()
    return (*lines.options, *relocatable)


def _macros(source: KernelSource, bound: Bound) -> dict[str, str]:
    """Return the macros, without unused ones of levers of words, which the compiler wrapper would report as unused."""
    words = {word for lever in source.lines.levers for word in lever.words}
    defines = dict(bound.defines)
    if source.host is not None:
        defines = {name: value for name, value in defines.items() if name not in source.host.line_macros}
    code = "\n".join(file.code for file in source.files)
    if '#include "' in code:  # a header of the user may use it
        return defines
    return {name: value for name, value in defines.items() if name not in words or name in code}


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
