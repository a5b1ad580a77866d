"""Options that several verbs share: `K=V` pairs, the GPU, the compiler."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from weft.core.chips import DEFAULT_GPU, chips, smallest_chips
from weft.core.errors import UsageError


class Compiler(StrEnum):
    """The front end of CUDA C++."""

    NVRTC = "nvrtc"
    NVCC = "nvcc"


STRICT_HELP = "Let warnings fail as errors do."
GPU_HELP = f"The GPU: {', '.join(chips())} (default: {DEFAULT_GPU})."
ARCH_HELP = (
    "An architecture instead of a GPU; it chooses its smallest GPU: "
    + ", ".join(f"{target} {one.name}" for target, one in smallest_chips().items())
    + "."
)
COMPILER_HELP = "nvcc reads host code too, where a CUDA toolkit is installed."


def macros(texts: Sequence[str] | None) -> dict[str, str]:
    """`-D K=V` or `-D K`, which is 1, as for a C++ compiler."""
    pairs = (text.partition("=") for text in texts or ())
    return {name: value if sign else "1" for name, sign, value in pairs}


def sizes(texts: Sequence[str] | None) -> dict[str, int]:
    """`--size S=1024`."""
    found: dict[str, int] = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not value.isdecimal():
            raise UsageError(f"--size {text}: give it as NAME=NUMBER, such as S=1024")
        found[name] = int(value)
    return found


def files(option: str, texts: Sequence[str] | None) -> dict[str, Path]:
    """`--input q=file.npy`."""
    found: dict[str, Path] = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not name or not value:
            raise UsageError(f"{option} {text}: give it as NAME=FILE.npy")
        found[name] = Path(value)
    return found
