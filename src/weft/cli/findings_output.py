"""Findings as text, and the other output formats."""

import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum

from weft.core.finding_codes import Severity
from weft.core.finding_text import counted, excerpt
from weft.core.records import Finding, worst_first

from .terminal import paint


class Format(StrEnum):
    """An output format."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


def text_lines(findings: Sequence[Finding], *, limit: int) -> Iterator[str]:
    """Yield one line per finding, errors first; on a terminal followed by its source line."""
    ordered = worst_first(findings)
    for finding in ordered[:limit]:
        style = "bad" if finding.level is Severity.ERROR else "warning"
        yield paint(finding.code, style) + str(finding).removeprefix(finding.code)
        if sys.stdout.isatty():
            yield from excerpt(finding.place)
    if len(ordered) > limit:
        yield f"{counted(len(ordered) - limit, 'more finding')}: --max-findings {len(ordered)} shows all"
