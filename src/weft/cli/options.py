"""Options that several verbs share: `K=V` pairs, the GPU, the compiler."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from weft.core.chips import DEFAULT_GPU, chips, smallest_chips
from weft.core.errors import UsageError


class Compiler(StrEnum):
    """The compiler front end for CUDA C++."""

    NVRTC = "nvrtc"
    NVCC = "nvcc"


class Mode(StrEnum):
    """Tensor-core arithmetic."""

    HARDWARE = "hardware"
    IEEE = "ieee"


STRICT_HELP = "Treat warnings as errors."
GPU_HELP = f"The GPU: {', '.join(chips())} (default: {DEFAULT_GPU})."
ARCH_HELP = (
    "An architecture instead of a GPU; selects the smallest GPU of it: "
    + ", ".join(f"{target} {one.name}" for target, one in smallest_chips().items())
    + "."
)
COMPILER_HELP = "nvcc compiles host code, too; it needs an installed CUDA toolkit."


def macros(texts: Sequence[str] | None) -> dict[str, str]:
    """Parse `-D K=V`, or `-D K` for the value 1, as a C++ compiler does."""
    pairs = (text.partition("=") for text in texts or ())
    return {name: value if sign else "1" for name, sign, value in pairs}


def sizes(texts: Sequence[str] | None) -> dict[str, int]:
    """Parse `--size S=1024`."""
    found: dict[str, int] = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not value.isdecimal():
            raise UsageError(f"--size {text}: give it as NAME=NUMBER, such as S=1024")
        found[name] = int(value)
    return found


def files(option: str, texts: Sequence[str] | None) -> dict[str, Path]:
    """Parse `--input q=file.npy`."""
    found: dict[str, Path] = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not name or not value:
            raise UsageError(f"{option} {text}: give it as NAME=FILE.npy")
        found[name] = Path(value)
    return found
