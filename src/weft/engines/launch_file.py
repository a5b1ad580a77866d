"""Where the launch lines of compiled PTX stand: in the PTX itself, as comments, or in a file beside it.

PTX from a compiler carries no line of its source's comments. `kernel.ptx` is joined by `kernel.launch`, or by the
file that --launch names, with the same `// weft:` lines a CUDA file would have.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import UsageError

from .launch_lines import parse_lines
from .launch_records import LaunchLines

_COMMENT = re.compile(r"\s*(//.*)?$")
_LINE = re.compile(r"\s*//+\s*weft\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class PtxLines:
    """The lines and the file they stand in."""

    lines: LaunchLines
    path: str


def ptx_lines(text: str, path: str, launch: str | os.PathLike[str] | None) -> PtxLines | None:
    """The lines of the PTX `text` of file `path`; None if there are none. Lines in two places are refused."""
    own = parse_lines(text, path)
    beside = os.path.splitext(path)[0] + ".launch"
    chosen = os.fspath(launch) if launch is not None else beside if os.path.exists(beside) else None
    if chosen is None:
        return PtxLines(own, path) if own.launches else None
    if own.launches:
        raise UsageError(f"{path} has launch lines of its own and those of {chosen}: keep one")
    lines = parse_lines(_read(chosen), chosen)
    if not lines.launches:
        raise UsageError(f"{chosen} has no `// weft: launch` line")
    return PtxLines(lines, chosen)


def _read(path: str) -> str:
    """A launch file holds nothing but comments: a line that lacks its `// weft:` must not be overlooked."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    for line, content in enumerate(text.splitlines(), 1):
        if not _COMMENT.match(content):
            raise UsageError(f"{path}:{line}: {content.strip()!r} is no launch line; each starts with `// weft:`")
        if _LINE.match(content) and re.search(r"weft\s*:\s*allow\b", content, re.IGNORECASE):
            raise UsageError(f"{path}:{line}: allow stands at the line it excuses, in the PTX or its source")
    return text
