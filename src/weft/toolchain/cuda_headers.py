"""The folders and versions of the CUDA headers from pip packages and of Weft's shims."""

import functools
import hashlib
import importlib.metadata
import os
import re
from pathlib import Path

from weft.core.errors import ToolMissing

SHIM_DIR = Path(__file__).parent / "headers"
HOST_SHIM_DIR = Path(__file__).parent / "host_headers"
"""Headers for host code, just enough that it can be parsed under -default-device."""

_MARKERS = {
    "nvidia-cuda-runtime": "cuda_fp16.h",
    "nvidia-cuda-crt": "crt/host_defines.h",
    "nvidia-cuda-cccl": "cuda/std/version",
}
"""Package → one of its headers, as it is included: the folder in which it is found is the include directory."""

_BEFORE_THE_FILE = {
    "math.h": r"",
    "limits.h": r"\b(?:S?CHAR|U?(?:CHAR|SHRT|INT|LONG|LLONG))_(?:MIN|MAX|BIT)\b",
    "stdint.h": r"\bint(?:8|16|32|64)_t\b",
    "weft_sys_types.h": r"\b(?:uint|ushort|ulong|u_int(?:8|16|32|64)_t)\b",
    "cmath": r"(?<![\w:])std::(?:abs|fma|fmin|fmax|sqrt|cbrt|exp2?|expm1|log(?:2|10|1p)?|pow|floor|ceil|trunc|fmod"
    r"|(?:ll?)?r(?:ound|int)|nearbyint|a?(?:sin|cos|tan)h?|atan2|erfc?|is(?:nan|inf|finite)|signbit|copysign|ldexp)f?\b",
    "type_traits": r"(?<![\w:])std::(?:is_\w+|enable_if\w*|conditional\w*|integral_constant|(?:true|false)_type"
    r"|remove_\w+|decay\w*)\b",
    "utility": r"(?<![\w:])std::(?:pair|move|forward|swap|declval|(?:make_)?(?:index|integer)_sequence\w*)\b",
    "cstddef": r"(?<![\w:])std::(?:size_t|ptrdiff_t)\b",
}
"""Header → what a file must mention to get it: nvcc reads cuda_runtime.h, and through it all of these, before the file.

Only <math.h> costs nothing; the library's headers take NVRTC seconds.
"""


def package_file(package: str, suffix: str, install: str = "") -> Path:
    """Returns the installed file of a pip package whose path ends with `suffix`.

    Raises ToolMissing with the package's name and the command that adds it: `install`, or `pip install` and the name.
    """
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        raise ToolMissing(f"{package} is not installed: {install or f'pip install {package}'}") from None
    for file in files:
        if file.as_posix().endswith(f"/{suffix}"):
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                return path
    raise ToolMissing(f"{package} has no {suffix}: pip install --force-reinstall {package}")


@functools.cache
def include_dirs(*, host_code: bool = False) -> tuple[Path, ...]:
    """Return the include folders: Weft's shims first (NVRTC has no C library), then each CUDA package once."""
    found = [SHIM_DIR, HOST_SHIM_DIR] if host_code else [SHIM_DIR]
    for package, marker in _MARKERS.items():
        directory = package_file(package, marker).parents[marker.count("/")]
        if directory not in found:
            found.append(directory)
    return tuple(found)


@functools.cache
def is_users(file: str) -> bool:
    """Return whether a file is not a header of CUDA or of Weft, nor part of Triton's language."""
    path = Path(os.path.abspath(file))
    if path.suffix == ".py":
        return ("triton", "language") not in zip(path.parts, path.parts[1:], strict=False)
    return not any(path.is_relative_to(directory) for directory in include_dirs())


def before_the_file(text: str) -> tuple[str, ...]:
    """Return the headers that a file uses without including them, as nvcc allows."""
    return tuple(header for header, mention in _BEFORE_THE_FILE.items() if re.search(mention, text))


def tests_macro(macro: str) -> bool:
    """Return whether a header tests `#if … macro`, as <assert.h> does for NDEBUG."""
    asked = re.compile(rb"^[ \t]*#[ \t]*(?:el)?if[^\n]*\b" + macro.encode() + rb"\b", re.MULTILINE)
    return any(
        asked.search(file.read_bytes())
        for directory in include_dirs()
        for file in directory.rglob("*")
        if file.is_file()
    )


@functools.cache
def fingerprint() -> str:
    """Return the versions of the header packages, the content of the shims and their use: part of every cache key."""
    digest = hashlib.sha256(repr(_BEFORE_THE_FILE).encode())
    for package in _MARKERS:
        digest.update(f"{package} {importlib.metadata.version(package)}\n".encode())
    for folder in (SHIM_DIR, HOST_SHIM_DIR):
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                digest.update(f"{file.relative_to(folder.parent).as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()
