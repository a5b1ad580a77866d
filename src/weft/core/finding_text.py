"""Findings in other formats: GitHub annotations, SARIF, a line of source, the last line of a run."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .finding_codes import FINDING_CODES, Severity
from .records import Finding, Place, Suppressed
from .version import __version__

_GITHUB = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_SARIF = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def summary(findings: Sequence[Finding], suppressed: Sequence[Suppressed] = (), *, wrong: int = 0) -> str:
    """Return the last line, in the form of compute-sanitizer's; `wrong` counts errors that are not findings."""
    errors = wrong + sum(finding.level is Severity.ERROR for finding in findings)
    warnings = sum(finding.level is Severity.WARNING for finding in findings)
    allowed = f", {len(suppressed)} suppressed" if suppressed else ""
    return f"ERROR SUMMARY: {counted(errors, 'error')}, {counted(warnings, 'warning')}{allowed}"


def github_lines(findings: Sequence[Finding], *, limit: int) -> Iterator[str]:
    """Yield workflow commands: GitHub shows them at the lines of a pull request."""
    for finding in findings[:limit]:
        title = f"{finding.code} {FINDING_CODES[finding.code].name}"
        place = finding.place
        where = {"file": place.file, "line": str(place.line)} if place else {}
        if place and place.column:
            where["col"] = str(place.column)
        yield annotation(_GITHUB[finding.level], {**where, "title": title}, str(finding))
    if len(findings) > limit:
        yield f"::notice::{counted(len(findings) - limit, 'more finding')}"


def annotation(level: str, fields: Mapping[str, str], message: str) -> str:
    """Return one workflow command."""
    listed = ",".join(f"{name}={_property(value)}" for name, value in fields.items())
    return f"::{level} {listed}::{_data(message)}"


def sarif(findings: Sequence[Finding], suppressed: Sequence[Suppressed] = ()) -> dict[str, object]:
    """Return a log in the Static Analysis Results Interchange Format 2.1.0, which code scanners and editors read."""
    used = {finding.code: FINDING_CODES[finding.code] for finding in [*findings, *(s.finding for s in suppressed)]}
    rules = [
        {"id": row.code, "name": row.name, "shortDescription": {"text": row.name}, "help": {"text": row.cure}}
        for row in used.values()
    ]
    results = [_sarif_result(finding) for finding in findings]
    for item in suppressed:
        excuse = [{"kind": "inSource", "justification": item.reason}]
        results.append({**_sarif_result(item.finding), "suppressions": excuse})
    driver = {"name": "weft", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def excerpt(place: Place | None) -> Iterator[str]:
    """Yield the line of source with a caret under the column, if the file exists here."""
    try:
        text = Path(place.file).read_text(errors="replace").splitlines()[place.line - 1] if place else ""
    except (OSError, IndexError):
        return
    if place and text.strip():
        number = f"{place.line:>6}"
        yield f"{number} | {text}"
        if 0 < place.column <= len(text):
            lead = "".join("\t" if sign == "\t" else " " for sign in text[: place.column - 1])
            yield f"{' ' * len(number)} | {lead}^"


def _sarif_result(finding: Finding) -> dict[str, object]:
    result: dict[str, object] = {
        "ruleId": finding.code,
        "level": _SARIF[finding.level],
        "message": {"text": str(finding)},
    }
    place = finding.place
    if place:
        region = {"startLine": place.line, **({"startColumn": place.column} if place.column else {})}
        location = {"artifactLocation": {"uri": place.file}, "region": region}
        result["locations"] = [{"physicalLocation": location}]
    return result


def counted(number: int, noun: str) -> str:
    """Return `1 error`, `2 errors`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _data(text: str) -> str:
    """Return the text escaped for GitHub's workflow commands."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
