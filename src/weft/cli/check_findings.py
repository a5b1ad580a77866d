"""The findings of many workloads, each said once: for the last line, annotations and SARIF of `weft check`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from weft.core.finding_text import annotation, github_lines, summary
from weft.core.records import Finding, Suppressed
from weft.core.status import Status
from weft.judge.verdict import Verdict

Verdicts = Mapping[str, Sequence[Verdict]]
"""By target."""


def distinct(verdicts: Verdicts) -> tuple[Finding, ...]:
    """The first finding of each code at each line: shapes and seeds repeat one bug with other numbers."""
    first: dict[tuple[object, ...], Finding] = {}
    for target, results in verdicts.items():
        for finding in (finding for verdict in results for finding in verdict.findings):
            first.setdefault((target, *_key(finding)), finding)
    return tuple(first.values())


def distinct_suppressed(verdicts: Verdicts) -> tuple[Suppressed, ...]:
    """The same for what the source allows."""
    first: dict[tuple[object, ...], Suppressed] = {}
    for target, results in verdicts.items():
        for item in (item for verdict in results for item in verdict.suppressed):
            first.setdefault((target, *_key(item.finding)), item)
    return tuple(first.values())


def last_line(verdicts: Verdicts) -> str:
    """A workload that fails without a finding, by its numbers for example, is an error too."""
    wrong = sum(1 for _ in _wrong(verdicts))
    return summary(distinct(verdicts), distinct_suppressed(verdicts), wrong=wrong)


def annotations(verdicts: Verdicts, *, limit: int) -> Iterator[str]:
    """GitHub's, for findings and for workloads that fail without one."""
    yield from github_lines(distinct(verdicts), limit=limit)
    for at, (target, verdict) in enumerate(_wrong(verdicts)):
        if at < limit:
            message = f"{target} · {verdict.label} · {verdict.message}"
            yield annotation("error", {"title": str(verdict.status)}, message)


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.code, finding.place or finding.ptx_line, finding.severity


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
