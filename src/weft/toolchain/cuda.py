"""CUDA C++ → Binary through NVRTC. Device code only; no GPU, driver or toolkit is needed."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import CompileError, UsageError
from weft.core.records import Binary

from . import binary_file, cuda_headers, nvrtc
from .cache import Cache, cache_key
from .demangle import demangle
from .diagnostics import of_the_user, parse_log
from .includes import Includes, find_includes
from .ptxas_log import parse_resources
from .shared_layout import shared_symbols

_ARCH = re.compile(r"sm_\d{2,3}[af]?")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$%]+)", re.MULTILINE)
_OWN_OPTIONS = {
    "-I": "include_dirs",
    "--include-path": "include_dirs",
    "-include": "an #include in the file",
    "--pre-include": "an #include in the file",
    "-D": "defines",
    "--define-macro": "defines",
    "-U": "defines",
    "--undefine-macro": "defines",
    "-arch": "arch",
    "--gpu-architecture": "arch",
    "-G": "debug",
    "--device-debug": "debug",
    "-fmad": "fmad",
    "--fmad": "fmad",
}
"""Options with a parameter of their own: taken there, they are checked and part of the cache key."""


@dataclass(frozen=True)
class _Unit:
    """A translation unit as NVRTC gets it."""

    text: str
    spelled: str
    """The name as the user gave it."""
    path: str
    """The absolute path NVRTC is told: line tables, relative includes."""


def compile_cuda(
    source: str | os.PathLike[str],
    *,
    arch: str = "sm_89",
    defines: Mapping[str, str] = {},
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    entries: Sequence[str] = (),
    options: Sequence[str] = (),
    debug: bool = False,
    fmad: bool = True,
    cache: bool = True,
    name: str | None = None,
) -> Binary:
    """Compile a file, or source text if `name` is given, to PTX and cubin.

    `entries` are name expressions such as `attn<64,64,true>`; without them every kernel of the PTX is listed.
    Raises CompileError with one Diagnostic per message of the compiler.
    """
    if not _ARCH.fullmatch(arch):
        raise UsageError(f"arch {arch!r} is not of the form sm_89")
    unit = _read(source, name)
    folders = [Path(os.path.abspath(directory)) for directory in include_dirs]
    flags = _flags(arch, defines, options, debug=debug, fmad=fmad)
    includes = find_includes(unit.text, directory=Path(unit.path).parent, include_dirs=folders)
    key = cache_key(
        [
            "cuda",
            nvrtc.version(),
            cuda_headers.fingerprint(),
            unit.spelled,
            unit.path,
            unit.text,
            "\0".join(flags),
            "\0".join(map(str, folders)),
            "\0".join(entries),
            *(part for file in includes.files for part in file),
        ]
    )
    store = Cache("cuda")
    if cache and not includes.computed:
        stored = store.get(key)
        binary = binary_file.unpack(stored) if stored is not None else None
        if binary is not None:
            return binary
    binary = _compile(unit, arch, flags, folders, entries, _read_back(defines, unit, includes))
    if cache and not includes.computed:
        store.put(key, binary_file.pack(binary))
    return binary


def _read(source: str | os.PathLike[str], name: str | None) -> _Unit:
    if name is not None:
        if not isinstance(source, str):
            raise UsageError("with name=, source is the text of the program")
        return _Unit(text=source, spelled=name, path=os.path.abspath(name))
    spelled = os.fspath(source)
    if "\n" in spelled:
        raise UsageError("source looks like program text: give it a name, e.g. name='kernel.cu'")
    try:
        text = Path(spelled).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {spelled}: {error}") from error
    return _Unit(text=text, spelled=spelled, path=os.path.abspath(spelled))


def _flags(
    arch: str, defines: Mapping[str, str], options: Sequence[str], *, debug: bool, fmad: bool
) -> tuple[str, ...]:
    for macro in defines:
        if not _IDENTIFIER.fullmatch(macro):
            raise UsageError(f"-D {macro!r} is not a macro name")
    for option in options:
        for own, parameter in _OWN_OPTIONS.items():
            if option == own or option.startswith(f"{own}=") or (len(own) == 2 and option.startswith(own)):
                raise UsageError(f"option {option!r}: use {parameter} instead")
    standard = () if any(re.match(r"--?std=", option) for option in options) else ("-std=c++17",)
    return (
        f"-arch={arch}",
        *standard,
        "-G" if debug else "-lineinfo",
        f"-fmad={'true' if fmad else 'false'}",
        "--ptxas-options=-v",
        *options,
        *(f"-D{macro}={value}" for macro, value in defines.items()),
    )


def _compile(
    unit: _Unit,
    arch: str,
    flags: tuple[str, ...],
    folders: Sequence[Path],
    entries: Sequence[str],
    defines: Mapping[str, str],
) -> Binary:
    headers = cuda_headers.include_dirs()
    search = tuple(f"-I{directory}" for directory in (*folders, *headers))
    result = nvrtc.compile_program(unit.text, name=unit.path, options=(*flags, *search), expressions=entries)
    diagnostics = of_the_user(parse_log(result.log, names={unit.path: unit.spelled}), headers)
    if not result.ok:
        errors = [str(diagnostic) for diagnostic in diagnostics if diagnostic.severity == "error"]
        more = f" (and {len(errors) - 1} more)" if errors[1:] else ""
        shown = errors[0] + more if errors else result.log
        raise CompileError(f"{unit.spelled} does not compile for {arch}: {shown}", diagnostics)
    kernels = list(dict.fromkeys(_ENTRY.findall(result.ptx)))  # once, even if declared before it is defined
    for expression, lowered in result.lowered.items():
        if lowered not in kernels:
            raise UsageError(f"entry {expression!r} of {unit.spelled} is not a __global__ function")
    return Binary(
        source_name=unit.spelled,
        arch=arch,
        compiler=nvrtc.version(),
        flags=flags,
        ptx=result.ptx,
        cubin=result.cubin,
        entries=result.lowered or _plain_names(kernels),
        resources=parse_resources(result.log),
        shared=shared_symbols(result.ptx, result.cubin, kernels),
        source_digest=hashlib.sha256(unit.text.encode()).hexdigest(),
        ptx_digest=hashlib.sha256(result.ptx.encode()).hexdigest(),
        defines=defines,
        diagnostics=diagnostics,
    )


def _plain_names(kernels: Sequence[str]) -> dict[str, str]:
    """Readable name → PTX name; overloads, whose readable names clash, keep the mangled one."""
    readable = [demangle(kernel) for kernel in kernels]
    return {
        plain if readable.count(plain) == 1 else kernel: kernel for plain, kernel in zip(readable, kernels, strict=True)
    }


def _read_back(defines: Mapping[str, str], unit: _Unit, includes: Includes) -> dict[str, str]:
    """Mark each macro that no file of the user mentions, nor a header asks for: a misspelt -D, likely."""
    words = set(_IDENTIFIER.findall(unit.text))
    for _, content in includes.files:
        words.update(_IDENTIFIER.findall(content.decode(errors="replace")))
    return {
        macro: value if macro in words or cuda_headers.tests_macro(macro) else f"{value} (unused)"
        for macro, value in defines.items()
    }
