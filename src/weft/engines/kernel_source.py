"""A kernel file as it is read, once, with its launch lines.

A CUDA or Triton file contains them. PTX from a compiler has no comments of its source: launch lines may be added to it
as comments, or be in `kernel.launch` next to `kernel.ptx`, or in the file that --launch names, with the same `// weft:`
lines that a CUDA file would have.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from weft.core.errors import UsageError, at_line
from weft.core.records import Finding
from weft.toolchain.ptx_file import is_ptx

from .compiler_questions import compiler_questions
from .launch_lines import read_lines
from .launch_records import LaunchLines, LinkLine
from .suppress import Allow, parse_allows

_COMMENT = re.compile(r"\s*(//.*)?$")
_LINE = re.compile(r"\s*//+\s*weft\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class HostCode:
    """What was read of a file's host code."""

    device: str
    """Only the device code, for the compiler; its pieces keep the line numbers of the file."""
    function: str = ""
    """The host function whose launches became the launch lines; empty: the file has lines."""
    notes: tuple[str, ...] = ()
    """What was read and what was assumed, one sentence each."""
    line_macros: frozenset[str] = frozenset()
    """Macros that only the launch lines use: the compiler must not see them."""


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
    """What was read from its host code, where it has some."""
    linked: "tuple[KernelSource, ...]" = ()
    """The other files of the program, which its `link` lines name. They have this file's lines."""

    @property
    def code(self) -> str:
        """The text for the compiler."""
        return self.text if self.host is None else self.host.device

    @property
    def compiled(self) -> bool:
        """Whether the file is PTX, whose macros are fixed."""
        return is_ptx(self.path)

    @cached_property
    def questions(self) -> tuple[Finding, ...]:
        """Lines of CUDA code that test which compiler is used."""
        return () if self.compiled or self.is_triton else tuple(compiler_questions(self.text, self.path))

    @property
    def is_triton(self) -> bool:
        """Whether the file is Python."""
        return self.path.endswith(".py")

    @property
    def files(self) -> "tuple[KernelSource, ...]":
        """This file and those that are linked with it."""
        return (self, *self.linked)


def read_source(
    path: str | os.PathLike[str],
    launch: str | os.PathLike[str] | None = None,
    include_dirs: Sequence[str | os.PathLike[str]] = (),
) -> KernelSource:
    """Read a file; `launch` is the launch-line file of a PTX file; default: the `.launch` file next to it.

    A file without launch lines has no launches. Launch lines in two files are refused. Files of `link` lines are
    searched next to the file with the line, then in `include_dirs`, as those of a quoted #include are.
    """
    spelled = os.fspath(path)
    text = _text(spelled)
    if launch is not None and not is_ptx(spelled):
        raise UsageError(f"{spelled} contains its launch lines; --launch is only for PTX")
    lines, lines_path = read_lines(text, spelled), spelled
    sidecar = os.path.splitext(spelled)[0] + ".launch"
    chosen = os.fspath(launch) if launch is not None else sidecar
    if is_ptx(spelled) and (launch is not None or os.path.exists(sidecar)):
        if lines.launches:
            raise UsageError(f"{spelled} contains launch lines, and so does {chosen}: keep one set")
        lines, lines_path = read_lines(_launch_text(chosen), chosen), chosen
        if not lines.launches:
            raise UsageError(f"{chosen} has no `// weft: launch` line")
    source = KernelSource(spelled, text, lines, lines_path, parse_allows(text, spelled))
    if lines.links and source.is_triton:
        raise UsageError(f"{spelled}:{lines.links[0].line}: link: Triton compiles a kernel with all that it calls")
    return replace(source, linked=tuple(_linked(source, each, include_dirs) for each in lines.links))


def _linked(source: KernelSource, line: LinkLine, include_dirs: Sequence[str | os.PathLike[str]]) -> KernelSource:
    folders = (os.path.dirname(source.lines_path), *(os.fspath(folder) for folder in include_dirs))
    places = [os.path.join(folder, line.file) for folder in folders]
    with at_line(source.lines_path, line.line):
        path = next((place for place in places if os.path.isfile(place)), None)
        if path is None:
            searched = ", ".join(folder or "." for folder in folders)
            raise UsageError(f"link: no file {line.file} in {searched}; give its folder with -I")
        text = _text(path)
    return KernelSource(path, text, source.lines, source.lines_path, parse_allows(text, path))


def _launch_text(path: str) -> str:
    """Read a launch file, which holds only comments: a line without `// weft:` is an error."""
    text = _text(path)
    for line, content in enumerate(text.splitlines(), 1):
        if not _COMMENT.match(content):
            raise UsageError(f"{path}:{line}: {content.strip()!r} is not a launch line; each starts with `// weft:`")
        if _LINE.match(content) and re.search(r"weft\s*:\s*allow\b", content, re.IGNORECASE):
            raise UsageError(f"{path}:{line}: put allow at the line it excuses, in the PTX or its source")
    return text


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
