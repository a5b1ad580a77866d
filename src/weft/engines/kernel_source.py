"""A kernel file as it is read: once, whole, with the launch lines that belong to it.

A CUDA or Triton file has them in itself. PTX from a compiler carries no line of its source's comments: it may have
lines as comments, or `kernel.ptx` is joined by `kernel.launch`, or by the file that --launch names, with the same
`// weft:` lines that a CUDA file would have.
"""

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from weft.core.errors import UsageError
from weft.core.records import Finding
from weft.toolchain.ptx_file import is_ptx

from .compiler_questions import compiler_questions
from .launch_lines import read_lines
from .launch_records import LaunchLines
from .suppress import Allow, parse_allows

_COMMENT = re.compile(r"\s*(//.*)?$")
_LINE = re.compile(r"\s*//+\s*weft\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class HostCode:
    """What was read of a file's host code."""

    device: str
    """The device code alone, for the compiler; its pieces carry the line numbers of the file."""
    function: str = ""
    """The host function whose launches became the launch lines; empty: the file has lines."""
    notes: tuple[str, ...] = ()
    """What was read, and what was taken for granted, one sentence each."""
    line_macros: frozenset[str] = frozenset()
    """Macros of the launch lines alone: the compiler must not see them."""


@dataclass(frozen=True)
class KernelSource:
    """A file's text and its lines, before macros choose types."""

    path: str
    text: str
    lines: LaunchLines
    lines_path: str
    """The file with the launch lines: the source file, or the `.launch` file next to it."""
    allows: tuple[Allow, ...]
    """The file's own allow lines."""
    host: HostCode | None = None
    """What its host code says, where it has some."""

    @property
    def code(self) -> str:
        """What the compiler gets."""
        return self.text if self.host is None else self.host.device

    @property
    def compiled(self) -> bool:
        """Whether the file is PTX: its macros are settled."""
        return is_ptx(self.path)

    @cached_property
    def questions(self) -> tuple[Finding, ...]:
        """Where CUDA code asks which compiler reads it."""
        return () if self.compiled or self.is_triton else tuple(compiler_questions(self.text, self.path))

    @property
    def is_triton(self) -> bool:
        """Whether the file is Python."""
        return self.path.endswith(".py")


def read_source(path: str | os.PathLike[str], launch: str | os.PathLike[str] | None = None) -> KernelSource:
    """Read a file; `launch` is the launch-line file of a PTX file; default: the `.launch` file next to it.

    A file without launch lines is one with no launches. Lines in two places are refused.
    """
    spelled = os.fspath(path)
    text = _text(spelled)
    if launch is not None and not is_ptx(spelled):
        raise UsageError(f"{spelled} has its launch lines in itself; --launch is for PTX")
    lines, lines_path = read_lines(text, spelled), spelled
    sidecar = os.path.splitext(spelled)[0] + ".launch"
    chosen = os.fspath(launch) if launch is not None else sidecar
    if is_ptx(spelled) and (launch is not None or os.path.exists(sidecar)):
        if lines.launches:
            raise UsageError(f"{spelled} contains launch lines, and so does {chosen}: keep one set")
        lines, lines_path = read_lines(_launch_text(chosen), chosen), chosen
        if not lines.launches:
            raise UsageError(f"{chosen} has no `// weft: launch` line")
    return KernelSource(spelled, text, lines, lines_path, parse_allows(text, spelled))


def _launch_text(path: str) -> str:
    """A launch file holds nothing but comments: a line that lacks its `// weft:` must not be overlooked."""
    text = _text(path)
    for line, content in enumerate(text.splitlines(), 1):
        if not _COMMENT.match(content):
            raise UsageError(f"{path}:{line}: {content.strip()!r} is no launch line; each starts with `// weft:`")
        if _LINE.match(content) and re.search(r"weft\s*:\s*allow\b", content, re.IGNORECASE):
            raise UsageError(f"{path}:{line}: allow stands at the line it excuses, in the PTX or its source")
    return text


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
