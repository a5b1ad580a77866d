"""CUDA C++ → Binary through NVRTC, or nvcc if requested. No GPU, driver or toolkit is needed by default."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from weft.core.errors import CompileError, UsageError
from weft.core.records import Binary, Diagnostic, Place

from . import binary_file, cuda_headers, nvcc, nvcc_dialect, nvrtc
from .cache import Cache, cache_key
from .demangle import demangle
from .includes import Includes, find_includes
from .ptxas_log import parse_notes, parse_resources
from .shared_layout import shared_symbols

_ARCH = re.compile(r"sm_\d{2,3}[af]?")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$%]+)", re.MULTILINE)
"""A kernel in PTX text."""
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
    "-gencode": "arch",
    "--generate-code": "arch",
    "-G": "debug",
    "--device-debug": "debug",
    "-fmad": "fmad",
    "--fmad": "fmad",
}
"""Options for which `compile_cuda` has a parameter; given there, they are checked and part of the cache key."""


COMPILERS = ("nvrtc", "nvcc")
RELOCATABLE = frozenset(("-rdc=true", "--relocatable-device-code=true"))
"""Options with which a file may use functions and variables that another file defines."""
_READS_HOST_CODE = frozenset(("-default-device", "--device-as-default-execution-space"))
_MESSAGE = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?P<severity>(?:catastrophic )?error|warning|remark)"
    r"(?: #[\w-]+)?: (?P<message>.*)$"
)
_OF_THE_HOST_COMPILER = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?P<severity>(?:fatal )?error|warning): (?P<message>.*)$"
)
"""nvcc uses gcc to preprocess: a missing header is reported by gcc."""
_BARE = re.compile(r"^(?:nvrtc: |ptxas )?(?P<severity>error|fatal|warning)\s*: (?P<message>.*)$")
_OWN_PRAGMA = "Pragma 'weft."
"""The start of ptxas' warning about the marks of weft.h, which it ignores."""
_DEVICE_ONLY = (
    "The kernel's file may contain host code, which Weft leaves out (docs/tutorials/own_kernel.md), but this is "
    "compiled as device code: remove it, or put it between `#ifndef __CUDACC_RTC__` and `#endif`, which nvcc still "
    "compiles"
)
_HOST_HEADERS = frozenset(
    (
        "chrono",
        "fstream",
        "iomanip",
        "iostream",
        "map",
        "memory",
        "random",
        "sstream",
        "stdexcept",
        "string",
        "thread",
        "unordered_map",
        "vector",
        "torch/extension.h",
        "torch/all.h",
        "ATen/ATen.h",
        "cublas_v2.h",
    )
)


_DECLARED_IN = {
    r"(?:FLT|DBL)_\w+": "cfloat",
    r"(?:CHAR|SCHAR|UCHAR|SHRT|USHRT|INT|UINT|LONG|ULONG|LLONG|ULLONG)_(?:MIN|MAX|BIT)": "climits",
    r"CUDART_\w+": "math_constants.h",
    r"u?int(?:8|16|32|64)_t|U?INT(?:8|16|32|64)_(?:MIN|MAX)|SIZE_MAX": "cstdint",
    r"half2?|__half2?": "cuda_fp16.h",
    r"__nv_bfloat16\w*|nv_bfloat16\w*": "cuda_bf16.h",
    r"__nv_fp8_\w+": "cuda_fp8.h",
}
"""Names that a kernel often uses without the header that nvcc, too, needs for them."""


class _CompileProgram(Protocol):
    def __call__(
        self, source: str, *, name: str, options: Sequence[str], expressions: Sequence[str]
    ) -> nvrtc.Compilation: ...


@dataclass(frozen=True)
class _FrontEnd:
    """One of COMPILERS: the parts in which the two differ."""

    version: str
    fingerprint: str
    compile_program: _CompileProgram
    search: tuple[str, ...]
    """Its options to find headers, and the headers that it reads before the file."""
    headers: tuple[Path, ...]
    """Folders whose warnings the user does not see."""


@dataclass(frozen=True)
class _Unit:
    """A translation unit as the compiler receives it."""

    text: str
    spelled: str
    """The name as the user gave it."""
    path: str
    """The absolute path given to the compiler, for line tables and relative includes."""


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
    compiler: str = "nvrtc",
) -> Binary:
    """Compile a file, or source text if `name` is given, to PTX and cubin.

    `entries` are name expressions such as `attn<64,64,true>`; without them every kernel of the PTX is listed.
    `compiler="nvcc"` is for files with host code, where a CUDA toolkit is installed. With the option `-default-device`
    NVRTC reads the host code of headers too, as device code that nothing calls.
    Raises CompileError with one Diagnostic per message of the compiler.
    """
    if not _ARCH.fullmatch(arch):
        raise UsageError(f"arch {arch!r} is not of the form sm_89")
    if compiler not in COMPILERS:
        raise UsageError(f"compiler {compiler!r}: use {' or '.join(COMPILERS)}")
    unit = _read(source, name)
    front_end = _front_end(compiler, options, unit.text)
    folders = [Path(os.path.abspath(directory)) for directory in include_dirs]
    flags = _flags(arch, defines, options, debug=debug, fmad=fmad)
    includes = find_includes(unit.text, directory=Path(unit.path).parent, include_dirs=folders, defines=defines)
    key = cache_key(
        [
            "cuda",
            front_end.version,
            front_end.fingerprint,
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
    binary = _compile(front_end, unit, arch, flags, folders, entries, _read_back(defines, unit, includes))
    if cache and not includes.computed:
        store.put(key, binary_file.pack(binary))
    return binary


def _read(source: str | os.PathLike[str], name: str | None) -> _Unit:
    if name is not None:
        if not isinstance(source, str):
            raise UsageError("with name=, source must be the text of the program")
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


def _front_end(compiler: str, options: Sequence[str], text: str) -> _FrontEnd:
    if compiler == "nvcc":
        return _FrontEnd(nvcc.version(), nvcc.fingerprint(), nvcc.compile_program, (), nvcc.include_dirs())
    headers = cuda_headers.include_dirs(host_code=not _READS_HOST_CODE.isdisjoint(options))
    before = cuda_headers.before_the_file(text)
    if cuda_headers.HOST_SHIM_DIR in headers:
        before = (str(cuda_headers.HOST_SHIM_DIR / "weft_host.h"), *before)
    search = (*(f"--pre-include={header}" for header in before), *(f"-I{directory}" for directory in headers))
    return _FrontEnd(nvrtc.version(), cuda_headers.fingerprint(), nvcc_dialect.compile_program, search, headers)


def _compile(
    front_end: _FrontEnd,
    unit: _Unit,
    arch: str,
    flags: tuple[str, ...],
    folders: Sequence[Path],
    entries: Sequence[str],
    defines: Mapping[str, str],
) -> Binary:
    search = (*(f"-I{directory}" for directory in folders), *front_end.search)
    result = front_end.compile_program(unit.text, name=unit.path, options=(*flags, *search), expressions=entries)
    diagnostics = of_the_user(parse_log(result.log, names={unit.path: unit.spelled}), front_end.headers)
    if not result.ok:
        errors = [str(diagnostic) for diagnostic in diagnostics if diagnostic.severity == "error"]
        more = f" (and {len(errors) - 1} more)" if errors[1:] else ""
        shown = errors[0] + more if errors else result.log
        raise CompileError(f"{unit.spelled} does not compile for {arch}: {shown}", diagnostics)
    kernels = list(dict.fromkeys(ENTRY.findall(result.ptx)))  # once, even if declared before it is defined
    for expression, lowered in result.lowered.items():
        if lowered not in kernels and RELOCATABLE.isdisjoint(flags):
            raise UsageError(f"entry {expression!r} of {unit.spelled} is not a __global__ function")
    return Binary(
        source_name=unit.spelled,
        arch=arch,
        compiler=front_end.version,
        flags=flags,
        ptx=result.ptx,
        cubin=result.cubin,
        entries=result.lowered or plain_names(kernels),
        resources=parse_resources(result.log),
        notes=parse_notes(result.log),
        shared=shared_symbols(result.ptx, result.cubin, kernels),
        source_digest=hashlib.sha256(unit.text.encode()).hexdigest(),
        ptx_digest=hashlib.sha256(result.ptx.encode()).hexdigest(),
        defines=defines,
        diagnostics=diagnostics,
    )


def plain_names(kernels: Sequence[str]) -> dict[str, str]:
    """Return readable name → PTX name; overloads, whose readable names clash, keep the mangled one."""
    readable = [demangle(kernel) for kernel in kernels]
    return {
        plain if readable.count(plain) == 1 else kernel: kernel for plain, kernel in zip(readable, kernels, strict=True)
    }


def _read_back(defines: Mapping[str, str], unit: _Unit, includes: Includes) -> dict[str, str]:
    """Mark each macro that no file of the user mentions and no header tests: probably a misspelt -D."""
    words = set(_IDENTIFIER.findall(unit.text))
    for _, content in includes.files:
        words.update(_IDENTIFIER.findall(content.decode(errors="replace")))
    return {
        macro: value if macro in words or cuda_headers.tests_macro(macro) else f"{value} (unused)"
        for macro, value in defines.items()
    }


def parse_log(log: str, *, names: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return one Diagnostic per message of NVRTC, nvcc or ptxas, with the cure if Weft has one.

    `names` maps the paths given to the compiler to the user's spelling.
    """
    found: list[Diagnostic] = []
    for text in log.splitlines():
        match = _MESSAGE.match(text) or _OF_THE_HOST_COMPILER.match(text)
        if match:
            file = names.get(match["file"], match["file"])
            severity = match["severity"].removeprefix("catastrophic ").removeprefix("fatal ")
            found.append(Diagnostic(severity, _with_cure(match["message"]), Place(file, int(match["line"]))))
            continue
        match = _BARE.match(text)
        if match:
            severity = "error" if match["severity"] == "fatal" else match["severity"]
            found.append(Diagnostic(severity, match["message"]))
    return tuple(found)


def of_the_user(diagnostics: Sequence[Diagnostic], header_dirs: Sequence[Path]) -> tuple[Diagnostic, ...]:
    """Return the diagnostics without warnings in CUDA's headers and about our marks, which the user cannot fix."""
    roots = tuple(f"{directory}{os.sep}" for directory in header_dirs)

    def inside(place: Place | None) -> bool:
        return place is not None and place.file.startswith(roots)

    return tuple(
        item
        for item in diagnostics
        if item.severity == "error" or not (inside(item.place) or item.message.startswith(_OWN_PRAGMA))
    )


def _with_cure(message: str) -> str:
    for flag in ("--expt-relaxed-constexpr", "--extended-lambda"):
        if flag in message:
            return f"{message} (`// weft: option {flag}`, if your build has it)"
    if "host function" in message or "__host__ function" in message:
        return f"host function. {_DEVICE_ONLY}"
    if "considered a host variable" in message:
        return f"host variable (no __device__, __constant__ or constexpr). {_DEVICE_ONLY}"
    missing = re.fullmatch(r'cannot open source file "(.*)"', message)
    if missing and missing[1] in _HOST_HEADERS:
        return f"{message}: a host-only header. {_DEVICE_ONLY}"
    if missing or message.endswith(": No such file or directory"):
        return f"{message}: give its folder with -I (include_dirs)"
    undefined = re.fullmatch(r'identifier "(\w+)" is undefined', message)
    if undefined and re.match(r"cuda[A-Z]", undefined[1]):
        return f"{undefined[1]} is a function of the CUDA runtime on the host. {_DEVICE_ONLY}"
    if undefined:
        header = next((header for names, header in _DECLARED_IN.items() if re.fullmatch(names, undefined[1])), "")
        return f"{message}: #include <{header}>" if header else message
    return message
