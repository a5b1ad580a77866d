"""Which files of the user a source includes, transitively: they belong to the cache key.

The scan ignores `#if`, so it may take in a file the compiler skips (a needless miss at worst), never leave
out one the compiler reads.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_GAP = r"(?:[ \t]|/\*.*?\*/)*"
_DIRECTIVE = re.compile(rf"^{_GAP}(?:#|%:){_GAP}include(?:_next)?\b{_GAP}(.*)$", re.MULTILINE)
_NAME = re.compile(r'"([^"\n]+)"|<([^>\n]+)>')
_HAS_INCLUDE = re.compile(r'__has_include(?:_next)?\s*\(\s*(?:"([^"\n]+)"|<([^>\n]+)>)')


@dataclass(frozen=True)
class Includes:
    """The user's files a source draws in, and whether the list is complete."""

    files: tuple[tuple[str, bytes], ...]
    """Path and content, in order of discovery."""
    computed: bool
    """An `#include MACRO` was seen: the list cannot be trusted as a key."""


def find_includes(source: str, *, directory: Path, include_dirs: Sequence[Path]) -> Includes:
    """Search as the compiler does: quotes look beside the including file first, then in each `-I`."""
    found: dict[str, bytes] = {}
    computed = False
    pending = [(source, directory)]
    while pending:
        text, here = pending.pop()
        spliced = text.replace("\\\r\n", "").replace("\\\n", "")
        names = [(quoted, angled) for quoted, angled in _HAS_INCLUDE.findall(spliced)]
        for rest in _DIRECTIVE.findall(spliced):
            match = _NAME.match(rest)
            if match:
                names.append((match[1] or "", match[2] or ""))
            else:
                computed = True
        for quoted, angled in names:
            places = (here, directory, *include_dirs) if quoted else tuple(include_dirs)
            for place in places:
                path = os.path.normpath(place / (quoted or angled))
                if os.path.isfile(path):
                    if path not in found:
                        found[path] = Path(path).read_bytes()
                        pending.append((found[path].decode(errors="replace"), Path(path).parent))
                    break
    return Includes(files=tuple(found.items()), computed=computed)
