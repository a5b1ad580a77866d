"""The log of NVRTC, nvcc and ptxas → Diagnostics in the user's files, with the cure where Weft knows one."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.core.records import Diagnostic, Place

_MESSAGE = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?P<severity>(?:catastrophic )?error|warning|remark)"
    r"(?: #[\w-]+)?: (?P<message>.*)$"
)
_OF_THE_HOST_COMPILER = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?P<severity>(?:fatal )?error|warning): (?P<message>.*)$"
)
"""nvcc lets gcc preprocess: a missing header is its message."""
_BARE = re.compile(r"^(?:nvrtc: |ptxas )?(?P<severity>error|fatal|warning)\s*: (?P<message>.*)$")

_OWN_PRAGMA = "Pragma 'weft."
"""ptxas says so of the marks of weft.h, and leaves them out."""

_DEVICE_ONLY = (
    "Weft takes device code only: remove it, or put it between `#ifndef __CUDACC_RTC__` and `#endif`, "
    "which nvcc still compiles"
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


def parse_log(log: str, *, names: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """One Diagnostic per message. `names` maps the paths the compiler saw to the spelling of the user."""
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
    """Without the warnings inside CUDA's own headers and about our marks, which the user cannot mend."""
    roots = tuple(f"{directory}{os.sep}" for directory in header_dirs)

    def inside(place: Place | None) -> bool:
        return place is not None and place.file.startswith(roots)

    return tuple(
        item
        for item in diagnostics
        if item.severity == "error" or not (inside(item.place) or item.message.startswith(_OWN_PRAGMA))
    )


def _with_cure(message: str) -> str:
    if "host function" in message or "__host__ function" in message:
        return f"host function. {_DEVICE_ONLY}"
    if "considered a host variable" in message:
        return f"host variable (no __device__, __constant__ or constexpr). {_DEVICE_ONLY}"
    missing = re.fullmatch(r'cannot open source file "(.*)"', message)
    if missing and missing[1] in _HOST_HEADERS:
        return f"{message}: a header of host code. {_DEVICE_ONLY}"
    if missing or message.endswith(": No such file or directory"):
        return f"{message}: give its folder with -I (include_dirs)"
    undefined = re.fullmatch(r'identifier "(cuda[A-Z]\w*)" is undefined', message)
    if undefined:
        return f"{undefined[1]} is a call of the host's runtime. {_DEVICE_ONLY}"
    return message
