"""Findings that the source allows: `// weft: allow R102 reason` on the finding's line, or on a separate line above it.

tile[t] = v;  // weft: allow R103 lanes of one warp, sm_89 only
// weft: allow I201 padding, never used
float x = tile[t + 1];
"""

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import UsageError
from weft.core.finding_codes import FINDING_CODES
from weft.core.records import Finding, Place, Suppressed, inlining_chain

_ALLOW = re.compile(r"(?://+|#+)\s*weft\s*:\s*allow\b\s*(.*?)\s*$", re.IGNORECASE)
_FORM = "`// weft: allow R102 reason`"
_ALWAYS_ON = ("memcheck", "synccheck", "kernel")


@dataclass(frozen=True)
class Allow:
    """One allow line: findings of `code` on line `covers` of `file` are excused."""

    file: str
    line: int
    covers: int
    code: str
    reason: str

    def excuses(self, finding: Finding) -> bool:
        """Whether the finding, or the other access of its race, is on the covered line, inlined or not."""
        places = [*inlining_chain(finding.place), *inlining_chain(finding.other)]
        return finding.code == self.code and any((p.file, p.line) == (self.file, self.covers) for p in places)


@dataclass(frozen=True)
class Sifted:
    """Findings that count and findings that are excused."""

    kept: tuple[Finding, ...]
    suppressed: tuple[Suppressed, ...]
    used: frozenset[Allow]


@functools.lru_cache(maxsize=16)
def parse_allows(text: str, file: str) -> tuple[Allow, ...]:
    """Return the allow lines of a source text. Raises for an invalid one, which must not excuse more or less."""
    allows: list[Allow] = []
    standing: list[tuple[int, str]] = []
    for line, content in enumerate(text.splitlines(), 1):
        match = _ALLOW.search(content)
        if match and not content[: match.start()].strip():
            standing.append((line, match[1]))
            continue
        here = [(line, match[1])] if match else []
        allows += [_parse(rest, file, at, line) for at, rest in [*standing, *here]]
        standing = []
    return (*allows, *(_parse(rest, file, at, at) for at, rest in standing))


def sift(findings: Iterable[Finding], allows: Sequence[Allow]) -> Sifted:
    """Separate the findings. Other files that they are in, such as headers, are read for allow lines too."""
    kept, suppressed, used = [], [], set()
    for finding in findings:
        excuse = next((allow for allow in _reaching(finding, allows) if allow.excuses(finding)), None)
        if excuse is None:
            kept.append(finding)
        else:
            suppressed.append(Suppressed(finding, excuse.reason))
            used.add(excuse)
    return Sifted(tuple(kept), tuple(suppressed), frozenset(used))


def unused(allows: Iterable[Allow], used: Collection[Allow], tools: Collection[str]) -> tuple[Finding, ...]:
    """Return a K502 for each allow line that excused nothing although a checker of its code ran."""
    idle = []
    for allow in allows:
        if FINDING_CODES[allow.code].tool in (*_ALWAYS_ON, *tools) and allow not in used:
            message = f"this allow line has no effect: the run has no {allow.code} on line {allow.covers}"
            idle.append(Finding("K502", message, place=Place(allow.file, allow.line)))
    return tuple(idle)


def _parse(rest: str, file: str, line: int, covers: int) -> Allow:
    code, _, reason = rest.partition(" ")
    row = FINDING_CODES.get(code)
    if row is None:
        known = ", ".join(FINDING_CODES)
        raise UsageError(f"{file}:{line}: allow needs a code, as in {_FORM}, not {code!r}; there are {known}")
    if row.ends_launch:
        raise UsageError(f"{file}:{line}: {code} ends the launch and cannot be allowed")
    if not reason.strip():
        raise UsageError(f"{file}:{line}: allow {code} needs a reason, as in {_FORM}")
    return Allow(file, line, covers, code, reason.strip())


def _reaching(finding: Finding, allows: Sequence[Allow]) -> Iterator[Allow]:
    yield from allows
    known = {allow.file for allow in allows}
    for file in dict.fromkeys(place.file for place in [*inlining_chain(finding.place), *inlining_chain(finding.other)]):
        if file not in known:
            yield from parse_allows(_read(file), file)


def _read(file: str) -> str:
    """Return the file's text; empty for a compiler's built-in file or one that no longer exists."""
    try:
        return Path(file).read_text(errors="replace")
    except OSError:
        return ""
