"""Our own files with levers, and where rungs of the ladder lie in them."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from weft.core.errors import UsageError

from .space import Point, Space, space_of

FAMILIES: Mapping[str, Path] = MappingProxyType({"sdpa": Path(__file__).with_name("sdpa.cu")})
"""Task → its file."""

STARTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "wmma": (
            "sdpa",
            "PRODUCT=wmma BLOCK_M=32 BLOCK_N=32 WARPS=4 COPY=plain STAGES=1 LAYOUT=padded Q_AT=shared EXP=exp "
            "RESCALE=always TAIL=every",
        ),
    }
)
"""Rung → its family, and the point that does the same in the same order."""


@lru_cache
def family(task: str) -> Space:
    """The space of a task's kernels."""
    if task not in FAMILIES:
        raise UsageError(f"no family of kernels for task {task!r}: there is one for {', '.join(FAMILIES)}")
    return space_of(FAMILIES[task])


def start_of(rung: str) -> Point:
    """Where a rung lies in the space of its task."""
    if rung not in STARTS:
        raise UsageError(f"rung {rung} is no point of a family: {', '.join(STARTS)}; or give a file with `lever` lines")
    return Point.parse(STARTS[rung][1])
