"""NVRTC for sources and options that are written for nvcc.

NVRTC compiles device code only: it refuses options of nvcc that concern the host, every function without `__device__`,
and `__device__` at a lambda. nvcc accepts constexpr functions without `__device__`: for constants outside device code,
and with `--expt-relaxed-constexpr` (which PyTorch's builds set) in every call. A file whose only errors are such
functions is compiled again with NVRTC's `-default-device`, which makes device functions of them. Without nvcc's option
each gets a warning, because NVRTC then accepts more than nvcc.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from . import nvrtc
from .nvrtc import Compilation

_WITHOUT_EFFECT = re.compile(
    r"--?expt-relaxed-constexpr|--?(?:expt-)?extended-lambda|-O[0-3]|--optimize=\d|-m64|--?threads=\d+|-t=?\d+"
    r"|(?:-Xcompiler|--compiler-options|-ccbin|--compiler-bindir|--?default-stream)=\S+|--?keep|--?resource-usage|-res-usage"
    r"|-Wno-deprecated-gpu-targets"
)
"""Options of nvcc that NVRTC does not know: about the host, about messages, or what is done here."""
_LAMBDA = re.compile(r"(?<=\])(\s*)((?:__(?:host|device)__\s*)+)(?=\(|\{|mutable\b|noexcept\b|->)")
_UNANNOTATED = re.compile(
    r"(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): error: A function without execution space annotations"
)
_ERROR = re.compile(r"^\S.*: (?:catastrophic )?error\b", re.MULTILINE)
_AS_DEVICE = "-default-device"
_MORE_THAN_NVCC = (
    "constexpr function without __device__: nvcc lets device code call it only with --expt-relaxed-constexpr"
)


def compile_program(source: str, *, name: str, options: Sequence[str], expressions: Sequence[str] = ()) -> Compilation:
    """Compile as nvrtc.compile_program does, with nvcc's options and its rule for constexpr functions."""
    known = [option for option in options if not _WITHOUT_EFFECT.fullmatch(option)]
    relaxed = any(option.endswith("expt-relaxed-constexpr") for option in options)
    if any(option.endswith("extended-lambda") for option in options):
        source = _LAMBDA.sub(lambda match: match[1] + " " * len(match[2]), source)
    made = nvrtc.compile_program(source, name=name, options=known, expressions=expressions)
    found = [] if made.ok else [line for line in made.log.splitlines() if _is_about_constexpr(line, source, name)]
    if not found:
        return made
    rest = "\n".join(line for line in made.log.splitlines() if line not in found)
    if _ERROR.search(rest):
        return replace(made, log=rest)
    again = nvrtc.compile_program(source, name=name, options=[*known, _AS_DEVICE], expressions=expressions)
    warnings = [f"{line.partition(': ')[0]}: warning: {_MORE_THAN_NVCC}" for line in found if not relaxed]
    return replace(again, log="\n".join([*warnings, again.log]))


def _is_about_constexpr(line: str, source: str, name: str) -> bool:
    """Return whether a line of the log is an error about a constexpr function that has no `__device__`."""
    match = _UNANNOTATED.match(line)
    if match is None:
        return False
    return _is_constexpr(source if match["file"] == name else _text(match["file"]), int(match["line"]))


def _is_constexpr(text: str, line: int) -> bool:
    """Return whether the declaration that reaches this line has `constexpr`, perhaps on a line above."""
    lines = text.splitlines()[:line]
    head = lines.pop() if lines else ""
    while lines and lines[-1].strip() and not lines[-1].rstrip().endswith((";", "{", "}", ":")):
        head = f"{lines.pop()}\n{head}"
    return re.search(r"\bconst(?:expr|eval)\b", head) is not None


def _text(file: str) -> str:
    try:
        return Path(file).read_text(errors="replace")
    except OSError:
        return ""
