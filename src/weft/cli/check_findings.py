"""The distinct findings of many workloads: for the last line, annotations and SARIF of `weft check`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from weft.core.finding_text import annotation, github_lines, summary
from weft.core.records import Finding, Suppressed, first_of_each
from weft.core.status import Status
from weft.judge.verdict import Verdict

Verdicts = Mapping[str, Sequence[Verdict]]
"""By target."""


def distinct(verdicts: Verdicts) -> tuple[Finding, ...]:
    """Return the findings of each target, each bug once."""
    return tuple(
        finding
        for results in verdicts.values()
        for finding in first_of_each(finding for verdict in results for finding in verdict.findings)
    )


def distinct_suppressed(verdicts: Verdicts) -> tuple[Suppressed, ...]:
    """Return the findings that the source allows, each once."""
    found = []
    for results in verdicts.values():
        items = [item for verdict in results for item in verdict.suppressed]
        shown = {id(finding) for finding in first_of_each(item.finding for item in items)}
        found += [item for item in items if id(item.finding) in shown]
    return tuple(found)


def last_line(verdicts: Verdicts) -> str:
    """Return the summary line. A workload that fails without a finding, such as by its numbers, counts as an error."""
    wrong = sum(1 for _ in _wrong(verdicts))
    return summary(distinct(verdicts), distinct_suppressed(verdicts), wrong=wrong)


def annotations(verdicts: Verdicts, *, limit: int) -> Iterator[str]:
    """Yield GitHub annotations for findings and for workloads that fail without one."""
    yield from github_lines(distinct(verdicts), limit=limit)
    for at, (target, verdict) in enumerate(_wrong(verdicts)):
        if at < limit:
            message = f"{target} · {verdict.label} · {verdict.message}"
            yield annotation("error", {"title": str(verdict.status)}, message)


def _wrong(verdicts: Verdicts) -> Iterator[tuple[str, Verdict]]:
    for target, results in verdicts.items():
        for verdict in results:
            if verdict.status not in (Status.PASSED, Status.UNSUPPORTED, Status.UNSAFE, Status.TIMEOUT):
                yield target, verdict


def exit_code(statuses: Iterable[Status]) -> int:
    """Return 0 if everything passed, 1 if something is wrong, 3 if nothing is but something was not judged."""
    seen = set(statuses) - {Status.PASSED}
    if any(status.decided for status in seen):
        return 1
    return 3 if seen else 0
