"""The kernel's file: its text, the findings and the cost of its lines."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.core.records import Finding, Place
from weft.core.status import Status
from weft.coverage.records import Coverage
from weft.diagnose.conclusion import cure_of, cure_place_of, place_of, sentence
from weft.diagnose.records import Diagnosis
from weft.judge.verdict import Verdict
from weft.profile.kernel_profile import KernelProfile

from .cost import line_costs_of
from .records import SourceFinding, SourceView

LANGUAGES = {".py": "python", ".ptx": "ptx"}
"""Language by file name suffix; others are CUDA C++."""

LineHere = Callable[[Place | None], int | None]


def lines_in(path: Path) -> LineHere:
    """Return a function that gives the line of a place, if it is in this file."""
    own = os.path.abspath(path)

    def line(place: Place | None) -> int | None:
        return place.line if place is not None and os.path.abspath(place.file) == own else None

    return line


def source_view(
    path: Path,
    verdicts: Sequence[Verdict],
    diagnosis: Diagnosis | None,
    profile: KernelProfile | None,
    coverage: Coverage,
) -> SourceView | None:
    """Return the view; None if the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    line_here = lines_in(path)
    found: list[SourceFinding] = []
    if diagnosis is not None and not diagnosis.healthy:
        found.append(_cause(diagnosis, line_here))
    first: dict[object, Finding] = {}
    for finding in (finding for verdict in verdicts for finding in verdict.findings):
        first.setdefault((finding.code, finding.place or finding.ptx_line, finding.level), finding)
    found += [_finding(finding, line_here) for finding in first.values()]
    found += _refused(path.name, verdicts)
    costs = line_costs_of(profile, line_here) if profile is not None else ()
    here = os.path.abspath(path)
    runs = {line.number: line.runs for line in coverage.lines if os.path.abspath(line.file) == here}
    return SourceView(path.name, LANGUAGES.get(path.suffix, "cuda"), text, tuple(found), costs, runs)


def _refused(name: str, verdicts: Sequence[Verdict]) -> list[SourceFinding]:
    """Return the compiler's messages, each once."""
    said = dict.fromkeys(v.message for v in verdicts if v.status in (Status.COMPILE_ERROR, Status.UNSUPPORTED))
    found = []
    for message in said:
        place = re.search(rf"{re.escape(name)}:(\d+)", message)
        if place is not None:
            found.append(SourceFinding("compiler", "error", message, "", int(place[1]), place[0]))
    return found


def _cause(diagnosis: Diagnosis, line_here: LineHere) -> SourceFinding:
    place, fix = place_of(diagnosis), line_here(cure_place_of(diagnosis))
    line = line_here(place)
    known = diagnosis.signatures[0].name if diagnosis.signatures else "first wrong"
    other = fix if fix != line else None
    return SourceFinding(known, "cause", sentence(diagnosis), cure_of(diagnosis), line, _spelled(place), other)


def _finding(finding: Finding, line_here: LineHere) -> SourceFinding:
    return SourceFinding(
        finding.code,
        str(finding.level),
        finding.message,
        finding.remedy,
        line_here(finding.place),
        _spelled(finding.place) or f"PTX line {finding.ptx_line}",
        line_here(finding.other),
    )


def _spelled(place: Place | None) -> str:
    return f"{Path(place.file).name}:{place.line}" if place is not None else ""
