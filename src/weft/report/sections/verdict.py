"""The top of the page: the verdict, the workloads, and the commands to reproduce it."""

from ..markup import Markup, tag
from ..records import KernelReport, WorkloadResult
from .parts import commands, facts

OPEN = "UNSUPPORTED"
SHOWN = 12
"""Number of failing workloads that are listed."""


def verdict_section(report: KernelReport) -> Markup:
    """Return status, sentence, cure, facts, commands, and every workload."""
    kind = "good" if report.passed else "warn" if report.status == OPEN else "bad"
    cure = report.diagnosed.cure if report.diagnosed is not None else ""
    return tag(
        "section",
        tag("span", report.status, class_=f"badge {kind}"),
        tag("h1", report.target),
        tag("p", report.sentence, class_="sentence"),
        tag("p", tag("b", "Cure"), cure, class_="cure") if cure else None,
        facts(report.facts),
        commands(report.commands),
        _workloads(report.results),
        id="verdict",
        class_="verdict",
    )


def _workloads(results: tuple[WorkloadResult, ...]) -> Markup | None:
    """Return a table of passed and judged workloads: a row per shape, type and mask, a column per regime."""
    if not results:
        return None
    columns = list(dict.fromkeys(each.column for each in results))
    lines = list(dict.fromkeys(each.row for each in results))
    cells = {(line, column): _cell(results, line, column) for line in lines for column in columns}
    head = tag("tr", tag("th", "workload", scope="col"), [tag("th", column, scope="col") for column in columns])
    body = [
        tag("tr", tag("th", line, scope="row"), [cells[line, column] for column in columns], class_="workload")
        for line in lines
    ]
    table = tag("table", tag("thead", head), tag("tbody", body), class_="matrix")
    return tag(
        "div",
        tag("h3", "Workloads"),
        tag(
            "div",
            tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="Workloads"),
            class_="panel table-panel",
        ),
        _failing(results),
    )


def _cell(results: tuple[WorkloadResult, ...], line: str, column: str) -> Markup:
    here = [each for each in results if each.row == line and each.column == column]
    if not here:
        return tag("td", "", aria_label="not judged")
    passed = sum(each.passed for each in here)
    tip = "\n".join(f"{each.label}: {each.status} {each.message}".strip() for each in here if not each.passed)
    if passed == len(here):
        return tag("td", f"✓ {passed}/{len(here)}", class_="ok")
    kind, sign = ("open", "?") if all(each.passed or each.status == OPEN for each in here) else ("no", "✕")
    return tag("td", f"{sign} {passed}/{len(here)}", class_=kind, title=tip)


def _failing(results: tuple[WorkloadResult, ...]) -> Markup | None:
    wrong = [each for each in results if not each.passed]
    if not wrong:
        return None
    items = [tag("li", tag("code", each.label), f" · {each.status}: {each.message}") for each in wrong[:SHOWN]]
    if len(wrong) > SHOWN:
        items.append(tag("li", f"and {len(wrong) - SHOWN} more", class_="quiet"))
    noun = "workload" if len(wrong) == 1 else "workloads"
    word = "could not be judged" if all(each.status == OPEN for each in wrong) else "did not pass"
    return tag("details", tag("summary", f"{len(wrong)} {noun} that {word}"), tag("ul", items, class_="list"))
